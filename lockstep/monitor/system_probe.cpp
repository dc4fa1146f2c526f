#include "lockstep/monitor/system_probe.h"

#include <algorithm>
#include <utility>

#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/text.h"

namespace lockstep::monitor {
namespace {

std::string read_or_empty(const hardware::Path& path) {
  try {
    return files::read(path, 4 << 20);
  } catch (const Error&) {
    return "";
  }
}

// Returns the words of a line, several spaces taken as one.
std::vector<std::string> words_of(std::string_view line) {
  auto words = text::split(line, ' ');
  std::erase(words, "");
  return words;
}

std::optional<double> number_after(const std::string& text, std::string_view key) {
  for (const auto& line : text::split(text, '\n')) {
    if (!text::starts_with(line, key)) continue;
    const auto words = words_of(std::string_view(line).substr(key.size()));
    if (!words.empty()) return text::to_double(words.front());
  }
  return std::nullopt;
}

// Adds what is known of one GPU.
class GpuReadings {
 public:
  GpuReadings(SystemSample& sample, int gpu) : sample_(sample), gpu_(gpu) {}

  template <typename T>
  void add(std::string_view name, const std::optional<T>& value, double factor = 1) {
    if (!value) return;
    sample_.readings.push_back({name, gpu_, static_cast<double>(*value) * factor});
  }

 private:
  SystemSample& sample_;
  int gpu_;
};

bool is_throttled(const std::vector<std::string>& reasons) {
  return std::any_of(reasons.begin(), reasons.end(), [](const std::string& reason) {
    return reason != "idle" && reason != "display" && reason != "clocks_setting" &&
           reason != "sync_boost";
  });
}

void add_gpu(SystemSample& sample, int gpu, const hardware::GpuStatus& status) {
  GpuReadings readings(sample, gpu);
  readings.add("gpu_utilization_ratio", status.utilization_percent, 0.01);
  readings.add("gpu_memory_utilization_ratio", status.memory_utilization_percent, 0.01);
  readings.add("gpu_memory_used_bytes", status.memory_used_bytes);
  readings.add("gpu_memory_free_bytes", status.memory_free_bytes);
  readings.add("gpu_memory_reserved_bytes", status.memory_reserved_bytes);
  readings.add("gpu_temperature_celsius", status.temperature_celsius);
  readings.add("gpu_power_watts", status.power_watts);
  readings.add("gpu_energy_joules", status.energy_joules);
  readings.add("gpu_sm_clock_hertz", status.sm_clock_mhz, 1e6);
  readings.add("gpu_memory_clock_hertz", status.memory_clock_mhz, 1e6);
  if (status.throttle_reasons) {
    readings.add("gpu_throttled",
                 std::optional(is_throttled(*status.throttle_reasons) ? 1 : 0));
  }
  readings.add("gpu_ecc_corrected", status.ecc_corrected);
  readings.add("gpu_ecc_uncorrected", status.ecc_uncorrected);
  readings.add("gpu_pcie_replays", status.pcie_replays);
  readings.add("gpu_nvlink_sent_bytes", status.nvlink_sent_bytes);
  readings.add("gpu_nvlink_received_bytes", status.nvlink_received_bytes);
}

}  // namespace

SystemProbe::SystemProbe(const Options& options)
    : run_directory_(options.run_directory),
      root_(options.root),
      clock_(options.clock),
      meter_(options.root, options.gpus) {}

void SystemProbe::read_gpus(SystemSample& sample, hardware::Counters counters) {
  sample.gpus = meter_.read(counters);
  if (counters == hardware::Counters::all) counted_ = sample.gpus;
  for (std::size_t i = 0; i < sample.gpus.size(); ++i) {
    auto& gpu = sample.gpus[i];
    if (i < counted_.size()) {
      gpu.energy_joules = counted_[i].energy_joules;
      gpu.pcie_replays = counted_[i].pcie_replays;
    }
    add_gpu(sample, meter_.gpus()[i].index, gpu);
  }
}

SystemSample SystemProbe::read(hardware::Counters counters) {
  SystemSample sample;
  sample.time = unix_seconds(clock_.wall());
  read_gpus(sample, counters);
  read_cpu(sample);
  read_process(sample);
  read_memory(sample);
  read_disk(sample);
  read_network(sample);
  return sample;
}

// Parses "cpu  user nice system idle iowait irq softirq steal guest guest_nice"
void SystemProbe::read_cpu(SystemSample& sample) {
  const auto text = read_or_empty(root_ / "proc/stat");
  const auto words = words_of(std::string_view(text).substr(0, text.find('\n')));
  if (words.size() < 6 || words[0] != "cpu") return;
  double all = 0, idle = 0;
  for (std::size_t i = 1; i < std::min<std::size_t>(words.size(), 9); ++i) {
    const auto ticks = text::to_double(words[i]).value_or(0);
    all += ticks;
    if (i == 4 || i == 5) idle += ticks;
  }
  const auto before = std::exchange(cpu_, std::pair(all - idle, all));
  if (!before || all <= before->second) return;
  const auto busy = (all - idle - before->first) / (all - before->second);
  sample.readings.push_back(
      {"cpu_utilization_ratio", std::nullopt, std::clamp(busy, 0.0, 1.0)});
}

void SystemProbe::read_process(SystemSample& sample) {
  const auto page = static_cast<double>(::sysconf(_SC_PAGESIZE));
  const auto pages = words_of(read_or_empty(root_ / "proc/self/statm"));
  if (pages.size() > 1) {
    sample.readings.push_back({"process_memory_bytes", std::nullopt,
                               text::to_double(pages[1]).value_or(0) * page});
  }
  // The name may hold anything: behind it state is the third field, utime the 14th.
  const auto stat = read_or_empty(root_ / "proc/self/stat");
  const auto fields = words_of(stat.substr(std::min(stat.size(), stat.rfind(')') + 1)));
  if (fields.size() > 12) {
    const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
    const auto seconds = (text::to_double(fields[11]).value_or(0) +
                          text::to_double(fields[12]).value_or(0)) /
                         ticks;
    const auto now = clock_.now();
    const auto before = std::exchange(process_seconds_, std::pair(seconds, now));
    const double passed = before ? seconds_between(before->second, now) : 0;
    if (passed > 0) {
      sample.readings.push_back(
          {"process_cpu_cores", std::nullopt, (seconds - before->first) / passed});
    }
  }
  const auto io = read_or_empty(root_ / "proc/self/io");
  if (const auto bytes = number_after(io, "read_bytes:")) {
    sample.readings.push_back({"process_read_bytes", std::nullopt, *bytes});
  }
  if (const auto bytes = number_after(io, "write_bytes:")) {
    sample.readings.push_back({"process_written_bytes", std::nullopt, *bytes});
  }
}

void SystemProbe::read_memory(SystemSample& sample) const {
  const auto memory = hardware::host_memory(root_);
  if (memory.total_bytes <= 0) return;
  sample.readings.push_back({"host_memory_total_bytes", std::nullopt,
                             static_cast<double>(memory.total_bytes)});
  sample.readings.push_back(
      {"host_memory_used_bytes", std::nullopt,
       static_cast<double>(memory.total_bytes - memory.available_bytes)});
}

void SystemProbe::read_disk(SystemSample& sample) const {
  std::error_code error;
  const auto space = std::filesystem::space(run_directory_, error);
  if (error) return;
  sample.readings.push_back(
      {"disk_free_bytes", std::nullopt, static_cast<double>(space.available)});
}

// Parses "  eth0: bytes packets errs drop fifo frame compressed multicast bytes ...":
// received first, sent from the ninth number on.
void SystemProbe::read_network(SystemSample& sample) const {
  double received = 0, sent = 0;
  bool any = false;
  for (const auto& line : text::split(read_or_empty(root_ / "proc/net/dev"), '\n')) {
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;
    if (text::trim(std::string_view(line).substr(0, colon)) == "lo") continue;
    const auto numbers = words_of(std::string_view(line).substr(colon + 1));
    if (numbers.size() < 9) continue;
    received += text::to_double(numbers[0]).value_or(0);
    sent += text::to_double(numbers[8]).value_or(0);
    any = true;
  }
  if (!any) return;
  sample.readings.push_back({"network_received_bytes", std::nullopt, received});
  sample.readings.push_back({"network_sent_bytes", std::nullopt, sent});
}

}  // namespace lockstep::monitor
