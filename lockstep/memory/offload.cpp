#include "lockstep/memory/offload.h"

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

namespace lockstep::memory {
namespace {

using torch::Tensor;

// The number of tensors that may be on their way to the host, and that come back before
// they are needed.
constexpr std::size_t kAhead = 3;

// A cache of pinned memory. All copies out of it and into it run on one stream: a user
// of a buffer need not wait for the one before.
class Buffers {
 public:
  Tensor take(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    auto& free = free_[bytes];
    if (free.empty()) {
      return torch::empty({static_cast<std::int64_t>(bytes)},
                          torch::dtype(torch::kByte).pinned_memory(true));
    }
    auto buffer = std::move(free.back());
    free.pop_back();
    return buffer;
  }
  void give_back(Tensor buffer) {
    const std::lock_guard lock(mutex_);
    const auto bytes = buffer.nbytes();
    free_[bytes].push_back(std::move(buffer));
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::size_t, std::vector<Tensor>> free_;  // guarded by mutex_
};

// A tensor that waits for its turn.
struct SavedTensor {
  Tensor here;                     // on the device: not worth the way, or not yet gone
  Tensor host;                     // else
  Tensor buffer;                   // the bytes of `host`, if they are pinned
  Tensor fetched;                  // back on the device
  std::optional<c10::Event> left;  // of the copy to the host
  std::optional<c10::Event> arrived;  // of the copy to `fetched`
  std::size_t number = 0;
  std::uint32_t version = 0;
  std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> storage;  // it came from
};

bool same_view(const SavedTensor& entry, const Tensor& tensor) {
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

  std::shared_ptr<SavedTensor> put(const Tensor& tensor) {
    const std::lock_guard lock(mutex_);
    if (!is_worth_it(tensor)) {
      auto entry = std::make_shared<SavedTensor>();
      entry->here = tensor;
      return entry;
    }
    auto& known = by_address_[tensor.const_data_ptr()];
    if (auto entry = known.lock(); entry && same_view(*entry, tensor)) return entry;
    auto entry = new_entry();
    entry->version = static_cast<std::uint32_t>(tensor._version());
    entry->storage = tensor.storage().getWeakStorageImpl();
    to_host(tensor, entry);
    entry->number = order_.size();
    order_.push_back(entry);
    known = entry;
    moved_ += static_cast<std::int64_t>(tensor.nbytes());
    return entry;
  }

  Tensor get(SavedTensor& entry) {
    const std::lock_guard lock(mutex_);
    if (entry.here.defined()) return entry.here;
    if (!stream_) return entry.host;
    for (std::size_t back = 0; back <= kAhead && back <= entry.number; ++back) {
      if (const auto one = order_[entry.number - back].lock()) fetch(*one);
    }
    entry.arrived->block(current_stream());
    return entry.fetched;
  }

  // Begins a forward pass: earlier ones are over, or have their entries still.
  void begin() {
    const std::lock_guard lock(mutex_);
    const bool over = std::all_of(order_.begin(), order_.end(),
                                  [](const auto& one) { return one.expired(); });
    if (over) order_.clear();
    by_address_.clear();
  }

  std::int64_t moved() const noexcept { return moved_; }

 private:
  // Its buffer goes back to the store, wherever its owner is freed.
  std::shared_ptr<SavedTensor> new_entry() {
    return {new SavedTensor, [store = weak_from_this()](SavedTensor* raw) {
              const std::unique_ptr<SavedTensor> entry(raw);
              if (const auto alive = store.lock()) alive->retire(*entry);
            }};
  }

  void retire(SavedTensor& entry) {
    if (!entry.buffer.defined()) return;
    // Its memory is the next one's as soon as it is freed.
    if (entry.here.defined()) entry.left->block(current_stream());
    if (entry.arrived) entry.arrived->block(current_stream());
    buffers_.give_back(std::move(entry.buffer));
  }

  bool is_worth_it(const Tensor& tensor) const {
    return tensor.device() == device_ &&
           static_cast<std::int64_t>(tensor.nbytes()) >= smallest_ &&
           tensor.is_non_overlapping_and_dense() &&
           !resident_.contains(tensor.storage().unsafeGetStorageImpl());
  }

  void to_host(const Tensor& tensor, const std::shared_ptr<SavedTensor>& entry) {
    if (!stream_) {
      entry->host = torch::empty_like(tensor);
      entry->host.copy_(tensor);
      return;
    }
    entry->buffer = buffers_.take(tensor.nbytes());
    entry->host = entry->buffer.view(tensor.scalar_type())
                      .as_strided(tensor.sizes(), tensor.strides());
    entry->here = tensor;
    const auto compute = current_stream();
    c10::Event computed(device_.type());
    computed.record(compute);
    computed.block(*stream_);
    const c10::StreamGuard on_stream(*stream_);
    entry->host.copy_(tensor, /*non_blocking=*/true);
    entry->left.emplace(device_.type()).record(*stream_);
    leaving_.push_back(entry);
    if (leaving_.size() > kAhead) let_go(compute);
  }

  // Computing is faster than the way to the host: tensors that wait for it take memory.
  // A tensor is freed when the computation has waited for its copy, so that its memory
  // is used again at once; the allocator's own way (record_stream) asks the device,
  // which is far behind.
  void let_go(const c10::Stream& compute) {
    if (const auto entry = leaving_.front().lock()) {
      entry->left->block(compute);
      entry->here.reset();
    }
    leaving_.pop_front();
  }

  c10::Stream current_stream() const {
    return c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
  }

  void fetch(SavedTensor& entry) const {
    if (entry.here.defined() || entry.fetched.defined()) return;
    // The memory is the compute stream's, which reuses what it has freed.
    entry.fetched = torch::empty_strided(entry.host.sizes(), entry.host.strides(),
                                         entry.host.options().device(device_));
    c10::Event free(device_.type());
    free.record(current_stream());
    free.block(*stream_);
    const c10::StreamGuard on_stream(*stream_);
    entry.fetched.copy_(entry.host, /*non_blocking=*/true);
    entry.arrived.emplace(device_.type()).record(*stream_);
  }

  const torch::Device device_;
  const std::int64_t smallest_;
  std::unordered_set<const c10::StorageImpl*> resident_;
  std::optional<c10::Stream> stream_;  // none of a CPU
  Buffers buffers_;
  std::mutex mutex_;  // guards what follows
  std::deque<std::weak_ptr<SavedTensor>> leaving_;
  std::vector<std::weak_ptr<SavedTensor>> order_;
  std::unordered_map<const void*, std::weak_ptr<SavedTensor>> by_address_;
  std::atomic<std::int64_t> moved_ = 0;
};

namespace {

// LibTorch asks its only engine for the hooks of a thread.
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
  std::shared_ptr<SavedTensor> entry_;
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

}  // namespace lockstep::memory
