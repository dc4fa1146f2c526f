#include "lockstep/train/offload.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

namespace lockstep::train {
namespace {

using torch::Tensor;

// So many tensors come back before they are needed.
constexpr std::size_t kAhead = 3;

// A tensor that waits for its turn.
struct Entry {
  Tensor kept;     // where it was, if it is not worth the way
  Tensor host;     // else
  Tensor fetched;  // back on the device
  std::optional<c10::Event> ready;
  std::size_t number = 0;
  std::uint32_t version = 0;
  std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> storage;  // it came from
};

bool same_view(const Entry& entry, const Tensor& tensor) {
  return entry.host.sizes() == tensor.sizes() &&
         entry.host.strides() == tensor.strides() &&
         entry.version == tensor._version() &&
         entry.storage->lock().get() == tensor.storage().unsafeGetStorageImpl();
}

}  // namespace

class Offload::Store : public std::enable_shared_from_this<Offload::Store> {
 public:
  explicit Store(const Options& options)
      : device_(options.device), smallest_(options.smallest_bytes) {
    for (const auto& tensor : options.resident) {
      resident_.insert(tensor.storage().unsafeGetStorageImpl());
    }
    if (!device_.is_cpu()) {
      stream_.emplace(
          c10::impl::VirtualGuardImpl(device_.type()).getStreamFromGlobalPool(device_));
    }
  }

  std::shared_ptr<Entry> put(const Tensor& tensor) {
    const std::lock_guard lock(mutex_);
    if (!is_worth_it(tensor)) {
      auto entry = std::make_shared<Entry>();
      entry->kept = tensor;
      return entry;
    }
    auto& known = by_address_[tensor.const_data_ptr()];
    if (auto entry = known.lock(); entry && same_view(*entry, tensor)) return entry;
    auto entry = std::make_shared<Entry>();
    entry->version = static_cast<std::uint32_t>(tensor._version());
    entry->storage = tensor.storage().getWeakStorageImpl();
    to_host(tensor, *entry);
    entry->number = order_.size();
    order_.push_back(entry);
    known = entry;
    moved_ += static_cast<std::int64_t>(tensor.nbytes());
    return entry;
  }

  Tensor get(Entry& entry) {
    if (entry.kept.defined()) return entry.kept;
    if (!stream_) return entry.host;
    const std::lock_guard lock(mutex_);
    for (std::size_t back = 0; back <= kAhead && back <= entry.number; ++back) {
      if (const auto one = order_[entry.number - back].lock()) fetch(*one);
    }
    entry.ready->block(current_stream());
    return entry.fetched;
  }

  // A forward pass begins: those of before are over, or have their entries still.
  void begin() {
    const std::lock_guard lock(mutex_);
    const bool over = std::all_of(order_.begin(), order_.end(),
                                  [](const auto& one) { return one.expired(); });
    if (over) order_.clear();
    by_address_.clear();
  }

  std::int64_t moved() const noexcept { return moved_; }

 private:
  bool is_worth_it(const Tensor& tensor) const {
    return tensor.device() == device_ &&
           static_cast<std::int64_t>(tensor.nbytes()) >= smallest_ &&
           tensor.is_non_overlapping_and_dense() &&
           !resident_.contains(tensor.storage().unsafeGetStorageImpl());
  }

  void to_host(const Tensor& tensor, Entry& entry) {
    const bool pinned = stream_.has_value();
    entry.host = torch::empty_strided(
        tensor.sizes(), tensor.strides(),
        tensor.options().device(torch::kCPU).pinned_memory(pinned));
    if (!stream_) {
      entry.host.copy_(tensor);
      return;
    }
    const auto compute = current_stream();
    c10::Event computed(device_.type());
    computed.record(compute);
    computed.block(*stream_);
    {
      const c10::StreamGuard on_stream(*stream_);
      entry.host.copy_(tensor, /*non_blocking=*/true);
      tensor.record_stream(*stream_);  // its memory is not used again before
      leaving_.emplace_back(device_.type()).record(*stream_);
    }
    // Computing is faster than the way to the host: what waits for it is in memory.
    if (leaving_.size() > kAhead) {
      leaving_.front().block(compute);
      leaving_.pop_front();
    }
  }

  c10::Stream current_stream() const {
    return c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
  }

  void fetch(Entry& entry) const {
    if (entry.fetched.defined()) return;
    // Memory of the stream that computes, where what it has freed is used again.
    entry.fetched = torch::empty_strided(entry.host.sizes(), entry.host.strides(),
                                         entry.host.options().device(device_));
    c10::Event free(device_.type());
    free.record(current_stream());
    free.block(*stream_);
    const c10::StreamGuard on_stream(*stream_);
    entry.fetched.copy_(entry.host, /*non_blocking=*/true);
    entry.fetched.record_stream(*stream_);
    entry.ready.emplace(device_.type());
    entry.ready->record(*stream_);
  }

  const torch::Device device_;
  const std::int64_t smallest_;
  std::unordered_set<const c10::StorageImpl*> resident_;
  std::optional<c10::Stream> stream_;  // none of a CPU
  std::mutex mutex_;                   // guards what follows
  std::deque<c10::Event> leaving_;
  std::vector<std::weak_ptr<Entry>> order_;
  std::unordered_map<const void*, std::weak_ptr<Entry>> by_address_;
  std::atomic<std::int64_t> moved_ = 0;
};

namespace {

// LibTorch asks its engine, of which there is one, for the hooks of a thread.
thread_local Offload::Store* current = nullptr;  // NOLINT: see above

class Hooks : public torch::autograd::SavedVariableHooks {
 public:
  explicit Hooks(std::shared_ptr<Offload::Store> store) : store_(std::move(store)) {}
  void call_pack_hook(const Tensor& tensor) override {
    const torch::NoGradGuard no_grad;
    entry_ = store_->put(tensor.detach());
  }
  Tensor call_unpack_hook() override {
    const torch::NoGradGuard no_grad;
    return store_->get(*entry_);
  }

 private:
  std::shared_ptr<Offload::Store> store_;
  std::shared_ptr<Entry> entry_;
};

class HookedEngine : public torch::autograd::Engine {
 public:
  static torch::autograd::Engine& of_process() {
    static HookedEngine engine;
    return engine;
  }
  ~HookedEngine() override { stop(); }

  std::unique_ptr<torch::autograd::SavedVariableHooks>
  get_default_saved_variable_hooks() override {
    if (current == nullptr) return nullptr;
    return std::make_unique<Hooks>(current->shared_from_this());
  }
};

}  // namespace

Offload::Offload(const Options& options) : store_(std::make_shared<Store>(options)) {
  torch::autograd::set_default_engine_stub(&HookedEngine::of_process);
}

Offload::~Offload() = default;

std::int64_t Offload::moved_bytes() const noexcept {
  return store_->moved();
}

Offload::Scope::Scope(Offload* offload) : before_(current) {
  if (offload == nullptr) return;
  current = offload->store_.get();
  current->begin();
}

Offload::Scope::~Scope() {
  current = static_cast<Store*>(before_);
}

}  // namespace lockstep::train
