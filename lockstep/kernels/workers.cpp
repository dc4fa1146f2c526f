#include "lockstep/kernels/workers.h"

#include <ATen/ops/empty.h>

#include "lockstep/base/error.h"

namespace lockstep::kernels {

Workers::Workers(std::int64_t count, std::int64_t grain)
    : items_(at::empty({count}, at::kByte)),
      iterator_(at::TensorIterator::nullary_op(items_)),
      grain_(grain) {}

void Workers::run(c10::function_ref<void(std::int64_t begin, std::int64_t end)> body) {
  const char* first = static_cast<const char*>(items_.const_data_ptr());
  const auto loop = [&](char** data, const std::int64_t*, std::int64_t count,
                        std::int64_t rows) {
    LOCKSTEP_CHECK(rows == 1);  // there is one dimension
    const auto begin = static_cast<std::int64_t>(data[0] - first);
    body(begin, begin + count);
  };
  iterator_.for_each(loop, grain_);
}

}  // namespace lockstep::kernels
