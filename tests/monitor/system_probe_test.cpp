#include "lockstep/monitor/system_probe.h"

#include <map>

#include "tests/hardware/fake_machine.h"

namespace lockstep {
namespace {

std::map<std::string, double> values_of(const monitor::SystemSample& sample) {
  std::map<std::string, double> values;
  for (const auto& reading : sample.readings) {
    auto name = std::string(reading.name);
    if (reading.gpu) name += "." + std::to_string(*reading.gpu);
    values[name] = reading.value;
  }
  return values;
}

TEST(SystemProbe, ReadsTheHost) {
  const test::FakeMachine machine(test::fake_gpus(0));
  ManualClock clock;
  machine.file("proc/meminfo", "MemTotal: 100 kB\nMemAvailable: 30 kB\n");
  machine.file("proc/stat", "cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 1 1 1\n");
  machine.file("proc/self/statm", "500 25 3 1 0 9 0\n");
  machine.file("proc/self/stat", "12 (a) b) S 1 1 1 0 -1 0 0 0 0 0 300 100 0 0 20\n");
  machine.file("proc/self/io", "rchar: 9\nread_bytes: 4096\nwrite_bytes: 8192\n");
  machine.file("proc/net/dev",
               "Inter-|   Receive\n face |bytes\n"
               "    lo: 99 1 0 0 0 0 0 0 99 1 0 0 0 0 0 0\n"
               "  eth0: 10 1 0 0 0 0 0 0 20 1 0 0 0 0 0 0\n"
               "  eth1:5 1 0 0 0 0 0 0 6 1 0 0 0 0 0 0\n");
  monitor::SystemProbe probe(
      {.run_directory = "/", .root = machine.root(), .clock = clock});
  auto values = values_of(probe.read());
  EXPECT_FALSE(values.contains("cpu_utilization_ratio"));  // since when?
  EXPECT_EQ(values["host_memory_used_bytes"], 70 * 1024);
  EXPECT_EQ(values["host_memory_total_bytes"], 100 * 1024);
  EXPECT_EQ(values["process_memory_bytes"],
            25.0 * static_cast<double>(::sysconf(_SC_PAGESIZE)));
  EXPECT_EQ(values["process_read_bytes"], 4096);
  EXPECT_EQ(values["process_written_bytes"], 8192);
  EXPECT_EQ(values["network_received_bytes"], 15);
  EXPECT_EQ(values["network_sent_bytes"], 26);
  EXPECT_GT(values["disk_free_bytes"], 0);

  // 400 ticks more, 100 of them idle; 2 seconds of CPU time in 4 seconds.
  const auto ticks = ::sysconf(_SC_CLK_TCK);
  machine.file("proc/stat", "cpu  200 0 300 750 150 0 0 0 0 0\n");
  machine.file("proc/self/stat", "12 (a) b) S 1 1 1 0 -1 0 0 0 0 0 " +
                                     std::to_string(300 + ticks) + " " +
                                     std::to_string(100 + ticks) + " 0 0 20\n");
  clock.advance(std::chrono::seconds(4));
  values = values_of(probe.read());
  EXPECT_EQ(values["cpu_utilization_ratio"], 0.75);
  EXPECT_EQ(values["process_cpu_cores"], 0.5);
}

TEST(SystemProbe, ReadsGpusInBaseUnits) {
  auto state = test::fake_gpus(2);
  state["gpus"][1]["utilization"] = {50, 20};
  state["gpus"][1]["throttle"] = 0x4;
  const test::FakeMachine machine(state);
  monitor::SystemProbe probe({.run_directory = "/", .root = machine.root()});
  auto values = values_of(probe.read());
  EXPECT_EQ(values["gpu_utilization_ratio.1"], 0.5);
  EXPECT_EQ(values["gpu_sm_clock_hertz.0"], 1.98e9);
  EXPECT_EQ(values["gpu_power_watts.0"], 75.5);
  EXPECT_EQ(values["gpu_throttled.0"], 0);
  EXPECT_EQ(values["gpu_throttled.1"], 1);
  EXPECT_FALSE(values.contains("gpu_nvlink_sent_bytes.0"));
}

TEST(SystemProbe, OfAnEmptyTreeLeavesOut) {
  const files::TemporaryDirectory nothing;
  monitor::SystemProbe probe(
      {.run_directory = "/no/such/place", .root = nothing.path()});
  EXPECT_TRUE(probe.read().readings.empty());
}

}  // namespace
}  // namespace lockstep
