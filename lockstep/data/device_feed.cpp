#include "lockstep/data/device_feed.h"

#include <algorithm>
#include <array>
#include <optional>

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace lockstep::data {
namespace {

// There are three slots: the one in use, the one that is fetched, and one whose last
// reader may still run.
constexpr std::size_t kSlots = 3;

// Returns a copy of `tensor` in `memory`, which grows if need be and else is reused.
torch::Tensor copy_into(torch::Tensor& memory, const torch::Tensor& tensor,
                        const torch::Device& device) {
  if (!memory.defined() || memory.numel() < tensor.numel()) {
    memory = torch::empty({tensor.numel()}, tensor.options().device(device));
  }
  // The view counts elements: samples of a batch may be longer than those of another.
  auto view = memory.narrow(0, 0, tensor.numel()).view(tensor.sizes());
  view.copy_(tensor, /*non_blocking=*/true);
  return view;
}

}  // namespace

// The GPU's side. LibTorch's own streams and events, by the device's type: a build
// without CUDA compiles it, too.
class DeviceFeed::Copies {
 public:
  Copies(const torch::Device& device, std::optional<std::vector<std::string>> wanted)
      : device_(device),
        wanted_(std::move(wanted)),
        guard_(device.type()),
        stream_(guard_.getStreamFromGlobalPool(device)) {}

  ~Copies() {
    try {
      stream_.synchronize();
      // The memory goes back to the allocator: no kernel may read it any more.
      guard_.getStream(device_).synchronize();
    } catch (...) {  // NOLINT: the device is lost; whoever uses it next says so
    }
  }
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;

  const Batch* next(Loader& loader) {
    const auto compute = guard_.getStream(device_);
    // All work on the batch before has been started.
    if (used_) used_->read.record(compute);
    if (!fetched_ && !over_) fetch(loader);
    if (!fetched_) return nullptr;
    used_ = fetched_;
    fetched_ = nullptr;
    used_->written.block(compute);
    // Never wait for the batch after: this one is here.
    if (!over_ && loader.is_ready()) fetch(loader);
    return &used_->batch;
  }

  const Batch* upcoming() const { return fetched_ != nullptr ? host_ : nullptr; }

 private:
  struct DeviceBatch {
    explicit DeviceBatch(c10::DeviceType type) : read(type), written(type) {}
    Batch batch;
    torch::Tensor inputs, targets;
    std::vector<torch::Tensor> fields;
    c10::Event read, written;
  };

  // Starts to copy the loader's next batch.
  void fetch(Loader& loader) {
    // The loader gives the memory of its batch away when it is asked for the next.
    if (last_ != nullptr) last_->written.synchronize();
    const auto* batch = loader.next();
    over_ = batch == nullptr;
    host_ = batch;
    if (over_) return;
    auto& slot = *slots_[turn_++ % kSlots];
    const c10::StreamGuard on_stream(stream_);
    slot.read.block(stream_);
    copy(*batch, slot);
    slot.written.record(stream_);
    fetched_ = last_ = &slot;
  }

  void copy(const Batch& batch, DeviceBatch& slot) const {
    slot.fields.resize(batch.fields.size());
    slot.batch = batch;
    slot.batch.inputs = copy_wanted("input", slot.inputs, batch.inputs);
    slot.batch.targets = copy_wanted("target", slot.targets, batch.targets);
    slot.batch.fields.clear();
    for (std::size_t i = 0; i < slot.fields.size(); ++i) {
      const auto& [name, tensor] = batch.fields[i];
      if (!is_wanted(name)) continue;
      slot.batch.fields.push_back({name, copy_into(slot.fields[i], tensor, device_)});
    }
  }

  torch::Tensor copy_wanted(const std::string& name, torch::Tensor& memory,
                            const torch::Tensor& tensor) const {
    return is_wanted(name) ? copy_into(memory, tensor, device_) : torch::Tensor();
  }

  bool is_wanted(const std::string& name) const {
    return !wanted_ ||
           std::find(wanted_->begin(), wanted_->end(), name) != wanted_->end();
  }

  torch::Device device_;
  const std::optional<std::vector<std::string>> wanted_;
  c10::impl::VirtualGuardImpl guard_;
  c10::Stream stream_;
  std::array<std::unique_ptr<DeviceBatch>, kSlots> slots_ = {
      std::make_unique<DeviceBatch>(device_.type()),
      std::make_unique<DeviceBatch>(device_.type()),
      std::make_unique<DeviceBatch>(device_.type())};
  std::size_t turn_ = 0;
  DeviceBatch* used_ = nullptr;     // by the caller
  DeviceBatch* fetched_ = nullptr;  // waits for the caller
  DeviceBatch* last_ = nullptr;     // that was copied to
  const Batch* host_ = nullptr;     // the loader's batch that it was copied from
  bool over_ = false;               // the loader has no more
};

DeviceFeed::DeviceFeed(Loader& loader, const torch::Device& device,
                       std::optional<std::vector<std::string>> wanted)
    : loader_(loader),
      copies_(device.is_cpu() ? nullptr
                              : std::make_unique<Copies>(device, std::move(wanted))) {}

DeviceFeed::~DeviceFeed() = default;

const Batch* DeviceFeed::upcoming() const {
  return copies_ ? copies_->upcoming() : loader_.peek();
}

const Batch* DeviceFeed::next() {
  return copies_ ? copies_->next(loader_) : loader_.next();
}

}  // namespace lockstep::data
