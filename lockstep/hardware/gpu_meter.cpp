#include "lockstep/hardware/gpu_meter.h"

#include <algorithm>

#include "lockstep/hardware/detail/nvml.h"

namespace lockstep::hardware {

struct GpuMeter::Impl {
  std::unique_ptr<detail::Nvml> nvml;
  std::vector<Gpu> gpus;
  std::vector<detail::NvmlDevice> devices;
  std::string note;
};

GpuMeter::GpuMeter(const Path& root, const std::optional<std::vector<int>>& only)
    : impl_(std::make_unique<Impl>()) {
  if (only && only->empty()) return;
  impl_->nvml = detail::Nvml::load(detail::nvidia_library(root, "libnvidia-ml.so.1"),
                                   impl_->note);
  if (!impl_->nvml) return;
  Machine machine;
  const detail::GpuSearch search{
      .nvml = *impl_->nvml, .root = root, .depth = detail::Depth::basic};
  for (auto& found : detail::usable_gpus(search, machine)) {
    const int index = found.gpu.index;
    if (only && std::find(only->begin(), only->end(), index) == only->end()) continue;
    detail::add_details(*impl_->nvml, root, found);
    impl_->gpus.push_back(std::move(found.gpu));
    impl_->devices.push_back(found.device);
  }
  impl_->note = machine.gpu_note;
}

GpuMeter::~GpuMeter() = default;

const std::vector<Gpu>& GpuMeter::gpus() const noexcept {
  return impl_->gpus;
}

const std::string& GpuMeter::note() const noexcept {
  return impl_->note;
}

std::vector<GpuStatus> GpuMeter::read(Counters counters) const {
  std::vector<GpuStatus> statuses;
  for (const auto device : impl_->devices) {
    statuses.push_back(detail::read_status(*impl_->nvml, device, counters));
  }
  return statuses;
}

}  // namespace lockstep::hardware
