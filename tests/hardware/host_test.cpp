// What inspect() tells beside the GPUs.
#include "lockstep/base/text.h"
#include "lockstep/hardware/machine.h"
#include "tests/support/support.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A machine made of files.
class Host : public ::testing::Test {
 protected:
  void file(const std::string& path, const std::string& content) const {
    test::write_file(root_.path() / path, content);
  }
  hardware::Machine inspect(const std::string& directory = "/") const {
    return hardware::inspect(directory, root_.path());
  }
  files::TemporaryDirectory root_;
};

TEST_F(Host, AnEmptyTreeGivesDefaultsNotAnError) {
  const auto found = inspect();
  EXPECT_THAT(found.cpu_extensions, IsEmpty());
  EXPECT_THAT(found.cpu_caches, IsEmpty());
  EXPECT_THAT(found.network, IsEmpty());
  EXPECT_THAT(found.numa_nodes, IsEmpty());
  EXPECT_EQ(found.cgroup_cores, std::nullopt);
  EXPECT_EQ(found.disk->filesystem, "");
}

TEST_F(Host, ExtensionsAreThoseThatMatter) {
  file("proc/cpuinfo",
       "processor : 0\nflags : fpu avx2 sse4_2 amx_bf16 avx512f rdtscp\ncpu MHz : "
       "2400.5\n");
  EXPECT_THAT(inspect().cpu_extensions,
              ElementsAre("sse4_2", "avx2", "avx512f", "amx_bf16"));
  EXPECT_EQ(inspect().max_cpu_mhz, 2400.5);
  file("proc/cpuinfo", "processor : 0\nFeatures : fp asimd sve bf16\n");
  EXPECT_THAT(inspect().cpu_extensions, ElementsAre("asimd", "sve", "bf16"));
  file("sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "3600000\n");
  EXPECT_EQ(inspect().max_cpu_mhz, 3600);
}

TEST_F(Host, CachesAreCountedByWhoSharesThem) {
  for (int cpu = 0; cpu < 4; ++cpu) {
    const auto cache = "sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cache/";
    file(cache + "index0/level", "1\n");
    file(cache + "index0/type", "Data\n");
    file(cache + "index0/size", "48K\n");
    file(cache + "index0/shared_cpu_list", cpu % 2 == 0 ? "0,2\n" : "1,3\n");
    file(cache + "index3/level", "3\n");
    file(cache + "index3/type", "Unified\n");
    file(cache + "index3/size", "30M\n");
    file(cache + "index3/shared_cpu_list", "0-3\n");
  }
  file("sys/devices/system/cpu/cpufreq/ignored", "");
  const auto caches = inspect().cpu_caches;
  ASSERT_EQ(caches.size(), 2U);
  EXPECT_EQ(caches[0].level, 1);
  EXPECT_EQ(caches[0].type, "data");
  EXPECT_EQ(caches[0].size_bytes, 48 << 10);
  EXPECT_EQ(caches[0].count, 2);
  EXPECT_EQ(caches[1].size_bytes, 30 << 20);
  EXPECT_EQ(caches[1].count, 1);
}

TEST_F(Host, NumaNodesHaveCpusAndMemory) {
  file("sys/devices/system/node/online", "0-1\n");
  file("sys/devices/system/node/node1/cpulist", "4-7\n");
  file("sys/devices/system/node/node1/meminfo",
       "Node 1 MemTotal:       2048 kB\nNode 1 MemFree:        1024 kB\n");
  const auto nodes = inspect().numa_nodes;
  ASSERT_EQ(nodes.size(), 2U);
  EXPECT_EQ(nodes[0].memory_total_bytes, 0);
  EXPECT_EQ(nodes[1].node, 1);
  EXPECT_EQ(nodes[1].cpus, "4-7");
  EXPECT_EQ(nodes[1].memory_total_bytes, 2 << 20);
  EXPECT_EQ(nodes[1].memory_free_bytes, 1 << 20);
}

TEST(HostLimits, OfTheCgroupAreTold) {
  const auto found =
      hardware::inspect("/", test::fixture("hardware/fixtures/cgroup_v2"));
  EXPECT_EQ(found.cgroup_cores, 3.5);
  EXPECT_EQ(found.cgroup_memory_bytes, 4LL << 30);
}

TEST_F(Host, SwapIsTold) {
  file("proc/meminfo", "MemTotal: 8 kB\nSwapTotal: 4 kB\nSwapFree: 1 kB\n");
  EXPECT_EQ(inspect().swap_total_bytes, 4096);
  EXPECT_EQ(inspect().swap_free_bytes, 1024);
}

TEST_F(Host, TheDiskIsThatOfTheLongestMountAbove) {
  const files::TemporaryDirectory place;
  const auto path = std::filesystem::canonical(place.path()).string();
  file("proc/self/mountinfo",
       "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"
       "2 1 8:17 / " +
           path +
           " rw shared:1 - xfs /dev/sdb1 rw\n"
           "3 1 8:33 / " +
           path +
           "/runs2 rw - nfs4 host:/ rw\n"
           "4 1 8:34 / " +
           path +
           "/a\\040b rw - tmpfs none rw\n"
           "torn line\n");
  file("sys/dev/block/8:17/queue/rotational", "1\n");
  const auto disk = inspect(path + "/runs/not/there/yet").disk;
  ASSERT_TRUE(disk);
  EXPECT_EQ(disk->path, path);
  EXPECT_EQ(disk->mount, path);
  EXPECT_EQ(disk->filesystem, "xfs");
  EXPECT_EQ(disk->rotational, true);
  EXPECT_TRUE(disk->writable);
  EXPECT_GT(disk->total_bytes, 0);
  EXPECT_EQ(inspect("/").disk->filesystem, "ext4");
  std::filesystem::create_directory(place.path() / "a b");
  EXPECT_EQ(inspect(path + "/a b").disk->filesystem, "tmpfs");
}

TEST_F(Host, InterfacesHaveAKindAStateAndASpeed) {
  file("sys/class/net/lo/type", "772\n");
  file("sys/class/net/lo/operstate", "unknown\n");
  file("sys/class/net/eth0/type", "1\n");
  file("sys/class/net/eth0/operstate", "up\n");
  file("sys/class/net/eth0/speed", "25000\n");
  file("sys/class/net/eth0/mtu", "9000\n");
  file("sys/class/net/eth0/device/numa_node", "1\n");
  file("sys/class/net/ib0/type", "32\n");
  file("sys/class/net/docker0/type", "1\n");
  file("sys/class/net/docker0/speed", "-1\n");
  file("sys/class/net/bonding_masters", "");
  file("sys/class/infiniband/mlx5_1/node_type", "1: CA\n");
  file("sys/class/infiniband/mlx5_0/node_type", "1: CA\n");
  EXPECT_THAT(inspect().rdma_devices, ::testing::ElementsAre("mlx5_0", "mlx5_1"));
  const auto found = inspect().network;
  ASSERT_EQ(found.size(), 4U);
  EXPECT_EQ(found[0].name, "docker0");
  EXPECT_EQ(found[0].kind, "virtual");
  EXPECT_EQ(found[0].speed_mbits, std::nullopt);
  EXPECT_EQ(found[1].kind, "ethernet");
  EXPECT_EQ(found[1].state, "up");
  EXPECT_EQ(found[1].speed_mbits, 25000);
  EXPECT_EQ(found[1].mtu, 9000);
  EXPECT_EQ(found[1].numa_node, 1);
  EXPECT_EQ(found[2].kind, "infiniband");
  EXPECT_EQ(found[3].kind, "loopback");
}

// Of a process in a chroot "/" may be a directory like any other, and /sys an empty
// one.
bool root_is_a_mount_point() {
  for (const auto& line : text::split(test::read_file("/proc/self/mountinfo"), '\n')) {
    const auto words = text::split(line, ' ');
    if (words.size() > 4 && words[4] == "/") return true;
  }
  return false;
}

TEST(HostOfThisMachine, HasADisk) {
  const auto found = hardware::inspect(".");
  ASSERT_TRUE(found.disk);
  EXPECT_GT(found.disk->total_bytes, 0);
  EXPECT_EQ(found.disk->path, std::filesystem::canonical(".").string());
  if (!root_is_a_mount_point()) {
    GTEST_SKIP() << "the file system is not known: / is no mount point here";
  }
  EXPECT_NE(found.disk->filesystem, "");
}

TEST(HostOfThisMachine, HasALoopback) {
  if (!std::filesystem::exists("/sys/class/net/lo")) {
    GTEST_SKIP() << "there is no /sys/class/net/lo here";
  }
  const auto found = hardware::inspect(".");
  const auto loopback =
      std::find_if(found.network.begin(), found.network.end(),
                   [](const auto& one) { return one.kind == "loopback"; });
  ASSERT_NE(loopback, found.network.end());
  EXPECT_THAT(loopback->addresses, ::testing::Contains("127.0.0.1"));
}

}  // namespace
}  // namespace lockstep
