#include "lockstep/hardware/cpu_topology.h"

#include <unistd.h>

#include "tests/support/support.h"

namespace lockstep {
namespace {

using hardware::Cpu;
using hardware::cpu_topology;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A machine made of files: two NUMA nodes, two cores each, two hyper-threads a core.
class CpuTopologyTree : public ::testing::Test {
 protected:
  void SetUp() override {
    write("proc/self/status", "Name:\tx\nCpus_allowed_list:\t0-7\n");
    write("sys/devices/system/cpu/online", "0-7\n");
    write("sys/devices/system/node/online", "0-1\n");
    write("sys/devices/system/node/node0/cpulist", "0-1,4-5\n");
    write("sys/devices/system/node/node1/cpulist", "2-3,6-7\n");
    for (int cpu = 0; cpu < 8; ++cpu) {
      const auto core = cpu % 4;
      const auto about =
          "sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
      write(about + "core_cpus_list",
            std::to_string(core) + "," + std::to_string(core + 4) + "\n");
      // Core ids repeat on the second socket, as they do on real machines.
      write(about + "core_id", std::to_string(core % 2) + "\n");
      write(about + "physical_package_id", std::to_string(core / 2) + "\n");
    }
    write("sys/bus/pci/devices/0000:3b:00.0/local_cpulist", "2-3,6-7\n");
  }

  void write(const std::string& path, const std::string& content) const {
    test::write_file(root_.path() / path, content);
  }

  files::TemporaryDirectory root_;
};

TEST_F(CpuTopologyTree, SaysWhatTheKernelSays) {
  const auto found = cpu_topology(root_.path());
  EXPECT_THAT(found.cpus, ElementsAre(Cpu{0, 0, 0, 0}, Cpu{1, 1, 0, 0}, Cpu{2, 2, 1, 1},
                                      Cpu{3, 3, 1, 1}, Cpu{4, 0, 0, 0}, Cpu{5, 1, 0, 0},
                                      Cpu{6, 2, 1, 1}, Cpu{7, 3, 1, 1}));
  EXPECT_EQ(found.num_cores(), 4);
  EXPECT_EQ(found.quota, std::nullopt);
}

TEST_F(CpuTopologyTree, AffinityAndOfflineCpusLimitIt) {
  write("proc/self/status", "Cpus_allowed_list:\t1,5-6\n");
  write("sys/devices/system/cpu/online", "0-5\n");
  const auto found = cpu_topology(root_.path());
  EXPECT_THAT(found.cpus, ElementsAre(Cpu{1, 1, 0, 0}, Cpu{5, 1, 0, 0}));
  EXPECT_EQ(found.num_cores(), 1);
}

TEST_F(CpuTopologyTree, DevicesHaveNearCpus) {
  EXPECT_THAT(hardware::cpus_near("0000:3b:00.0", root_.path()),
              ElementsAre(2, 3, 6, 7));
  EXPECT_THAT(hardware::cpus_near("0000:af:00.0", root_.path()), IsEmpty());
  EXPECT_THAT(hardware::cpus_near("", root_.path()), IsEmpty());
  EXPECT_THAT(hardware::cpus_near("../devices/0000:3b:00.0", root_.path()), IsEmpty());
}

TEST(CpuTopology, WithoutSysTheCoresOfCpuinfoCount) {
  const auto found = cpu_topology(test::fixture("hardware/fixtures/two_sockets"));
  EXPECT_EQ(found.cpus.size(), 128U);
  EXPECT_EQ(found.num_cores(), 64);
}

TEST(CpuTopology, AQuotaIsWholeCores) {
  EXPECT_EQ(cpu_topology(test::fixture("hardware/fixtures/cgroup_v2")).quota, 3);
}

TEST(CpuTopology, OfAnEmptyTreeIsEmpty) {
  const files::TemporaryDirectory root;
  EXPECT_THAT(cpu_topology(root.path()).cpus, IsEmpty());
}

TEST(CpuTopology, OfThisMachineAgreesWithTheScheduler) {
  const auto found = cpu_topology();
  cpu_set_t allowed;
  ASSERT_EQ(::sched_getaffinity(0, sizeof allowed, &allowed), 0);
  EXPECT_EQ(found.cpus.size(), static_cast<std::size_t>(CPU_COUNT(&allowed)));
  for (const auto& cpu : found.cpus) EXPECT_TRUE(CPU_ISSET(cpu.number, &allowed));
}

TEST(CpuList, RangesAreShort) {
  EXPECT_EQ(hardware::cpu_list_text({0, 1, 2, 8}), "0-2,8");
  EXPECT_EQ(hardware::cpu_list_text({5}), "5");
  EXPECT_EQ(hardware::cpu_list_text({}), "");
}

}  // namespace
}  // namespace lockstep
