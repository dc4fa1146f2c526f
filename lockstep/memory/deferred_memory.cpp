#include "lockstep/memory/deferred_memory.h"

#include <algorithm>

namespace lockstep::memory {
namespace {

constexpr std::uint8_t kAboveTheDefault = 100;

struct Sums {
  std::int64_t used = 0, peak = 0;
};

// The context that a tensor holds instead of memory: it may outlive the count.
struct Share {
  std::shared_ptr<Sums> sums;
  std::int64_t num_bytes = 0;
};

void give_back(void* context) {
  const std::unique_ptr<Share> share(static_cast<Share*>(context));
  share->sums->used -= share->num_bytes;
}

}  // namespace

class DeferredMemoryCount::Allocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t num_bytes) override {
    const auto bytes = static_cast<std::int64_t>(num_bytes);
    sums_->used += bytes;
    sums_->peak = std::max(sums_->peak, sums_->used);
    auto share = std::make_unique<Share>(Share{sums_, bytes});
    return {nullptr, share.release(), &give_back, c10::Device(c10::kMeta)};
  }

  void copy_data(void* /*to*/, const void* /*from*/,
                 std::size_t /*num_bytes*/) const override {}

  Sums& sums() const noexcept { return *sums_; }

 private:
  const std::shared_ptr<Sums> sums_ = std::make_shared<Sums>();
};

DeferredMemoryCount::DeferredMemoryCount()
    : allocator_(std::make_shared<Allocator>()),
      before_(c10::GetAllocator(c10::kMeta)) {
  c10::SetAllocator(c10::kMeta, allocator_.get(), kAboveTheDefault);
}

DeferredMemoryCount::~DeferredMemoryCount() {
  c10::SetAllocator(c10::kMeta, before_, kAboveTheDefault);
}

std::int64_t DeferredMemoryCount::used_bytes() const noexcept {
  return allocator_->sums().used;
}

std::int64_t DeferredMemoryCount::peak_bytes() const noexcept {
  return allocator_->sums().peak;
}

void DeferredMemoryCount::restart_peak() noexcept {
  allocator_->sums().peak = allocator_->sums().used;
}

}  // namespace lockstep::memory
