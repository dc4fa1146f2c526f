#include "lockstep/train/out_of_memory.h"

#include <atomic>
#include <mutex>
#include <new>
#include <string_view>

#include <ATen/Context.h>
#include <ATen/ops/_foreach_copy.h>
#include <c10/core/CPUAllocator.h>

#include "lockstep/base/error.h"
#include "lockstep/models/dropout.h"

namespace lockstep::train {

bool is_out_of_memory(const std::exception& error) noexcept {
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) return true;
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return true;
  const std::string_view text = error.what();
  // LibTorch's host allocator, cuBLAS and cuDNN have no type for it.
  for (const std::string_view sign :
       {"DefaultCPUAllocator: can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED",
        "CUDNN_STATUS_ALLOC_FAILED", "CUDA out of memory", "out of memory"}) {
    if (text.find(sign) != std::string_view::npos) return true;
  }
  return false;
}

// Lives as long as one of its tensors.
class HostMemoryLimit::Allocator : public c10::Allocator,
                                   public std::enable_shared_from_this<Allocator> {
 public:
  Allocator(c10::Allocator& base, std::int64_t bytes) : base_(base), limit_(bytes) {}

  c10::DataPtr allocate(std::size_t num_bytes) override {
    const auto wanted = static_cast<std::int64_t>(num_bytes);
    const auto before = used_.fetch_add(wanted);
    if (before + wanted > limit_) {
      used_.fetch_sub(wanted);
      throw c10::OutOfMemoryError(
          {__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)},
          str("a tensor of ", num_bytes, " bytes does not fit: ", before,
              " bytes of memory.host_limit ", limit_, " are in use"));
    }
    try {
      auto held = std::make_unique<Held>(Held{shared_from_this(), {}, wanted});
      held->memory = base_.allocate(num_bytes);
      auto* data = held->memory.get();
      return {data, held.release(), &Allocator::free, torch::kCPU};
    } catch (...) {
      used_.fetch_sub(wanted);
      throw;
    }
  }

  void copy_data(void* to, const void* from, std::size_t num_bytes) const override {
    base_.copy_data(to, from, num_bytes);
  }

  std::int64_t used() const noexcept { return used_; }
  c10::Allocator& base() const noexcept { return base_; }

 private:
  struct Held {
    std::shared_ptr<Allocator> owner;
    c10::DataPtr memory;
    std::int64_t num_bytes;
  };

  static void free(void* context) {
    const std::unique_ptr<Held> held(static_cast<Held*>(context));
    held->memory.clear();
    held->owner->used_.fetch_sub(held->num_bytes);
  }

  c10::Allocator& base_;
  const std::int64_t limit_;
  std::atomic<std::int64_t> used_ = 0;
};

namespace {
constexpr std::uint8_t kAboveTheDefault = 100;
}

HostMemoryLimit::HostMemoryLimit(std::int64_t bytes)
    : allocator_(std::make_shared<Allocator>(*c10::GetCPUAllocator(), bytes)),
      before_(c10::GetCPUAllocator()) {
  c10::SetCPUAllocator(allocator_.get(), kAboveTheDefault);
}

HostMemoryLimit::~HostMemoryLimit() {
  c10::SetCPUAllocator(before_, kAboveTheDefault);
}

std::int64_t HostMemoryLimit::used_bytes() const noexcept {
  return allocator_->used();
}

StepStart::StepStart(models::Model& model, const torch::Device& device)
    : buffers_(model.buffers()) {
  for (const auto& buffer : buffers_) copies_.push_back(torch::empty_like(buffer));
  const auto add = [&](const at::Generator& generator) {
    for (const auto& draws : draws_) {
      if (draws.generator == generator) return;
    }
    draws_.push_back({generator, {}});
  };
  for (const auto& module : model.modules(/*include_self=*/false)) {
    const auto* dropout = module->as<models::DropoutImpl>();
    if (dropout == nullptr) continue;
    const bool own = dropout->generator().defined();
    add(own ? dropout->generator() : at::globalContext().defaultGenerator(device));
  }
}

void StepStart::take() {
  const torch::NoGradGuard no_grad;
  if (!buffers_.empty()) at::_foreach_copy_(copies_, buffers_);
  for (auto& draws : draws_) {
    const std::lock_guard lock(draws.generator.mutex());
    draws.state = draws.generator.get_state();
  }
}

void StepStart::restore() {
  const torch::NoGradGuard no_grad;
  if (!buffers_.empty()) at::_foreach_copy_(buffers_, copies_);
  for (auto& draws : draws_) {
    const std::lock_guard lock(draws.generator.mutex());
    draws.generator.set_state(draws.state);
  }
}

void empty_cache(const torch::Device& device) {
  if (device.is_cpu()) return;
  at::getDeviceAllocator(device.type())->emptyCache();
}

}  // namespace lockstep::train
