#include <cstdlib>

#include "lockstep/hardware/gpu_use.h"
#include "lockstep/hardware/machine.h"
#include "tests/support/support.h"

namespace lockstep {
namespace {

// A root with a library of NVML's name and, perhaps, CUDA_VISIBLE_DEVICES.
class Nvml : public ::testing::Test {
 protected:
  hardware::Machine detect(const std::string& environment = "") {
    const auto root = directory_.path();
    std::filesystem::create_directories(root / "usr/lib");
    std::error_code exists_already;
    std::filesystem::create_symlink(FAKE_NVML, root / "usr/lib/libnvidia-ml.so.1",
                                    exists_already);
    std::string block = "HOME=/\n" + environment + "\n";
    for (auto& c : block) {
      if (c == '\n') c = '\0';
    }
    test::write_file(root / "proc/self/environ", block);
    return hardware::detect(root);
  }

  std::vector<std::string> names(const std::string& environment) {
    std::vector<std::string> result;
    for (const auto& gpu : detect(environment).gpus) result.push_back(gpu.name);
    return result;
  }

  files::TemporaryDirectory directory_;
};

TEST_F(Nvml, SaysHowBusyTheGpusAre) {
  const auto found = detect();
  const auto begin = Clock::system().now();
  const hardware::GpuUse use(directory_.path(), std::chrono::milliseconds(1));
  const std::vector<std::string> both{found.gpus[0].uuid, found.gpus[1].uuid};
  const auto seen = [&](const std::vector<std::string>& uuids) {
    return use.mean(uuids, begin, Clock::system().now());
  };
  EXPECT_TRUE(test::eventually([&] { return seen(both).has_value(); }));
  EXPECT_DOUBLE_EQ(seen({both[0]}).value(), 0.75);
  EXPECT_DOUBLE_EQ(seen(both).value(), 0.5);
  EXPECT_FALSE(seen({"GPU-nobody"}));
  EXPECT_FALSE(
      use.mean(both, begin - std::chrono::hours(2), begin - std::chrono::hours(1)));
  const hardware::GpuUse none("/nothing/is/here");
  EXPECT_FALSE(none.mean(both, begin, Clock::system().now()));
}

TEST_F(Nvml, DescribesEveryGpu) {
  const auto found = detect();
  ASSERT_EQ(found.gpus.size(), 2U);
  EXPECT_EQ(found.gpus[0].index, 0);
  EXPECT_EQ(found.gpus[0].name, "Example H200");
  EXPECT_EQ(found.gpus[0].uuid, "GPU-aaaa-1111");
  EXPECT_EQ(found.gpus[0].memory_total_bytes, 150'000'000'000);
  EXPECT_EQ(found.gpus[0].compute_major, 9);
  EXPECT_EQ(found.gpus[0].pci_id, "0000:3b:00.0");
  EXPECT_EQ(found.gpus[1].pci_id, "0000:af:00.0");
  EXPECT_EQ(found.gpus[1].compute_major, 7);
  EXPECT_EQ(found.gpus[1].index, 1);
  EXPECT_EQ(found.driver_version, "580.82.07");
  EXPECT_EQ(found.cuda_driver_version, "13.0");
  EXPECT_EQ(found.gpu_note, "");
}

TEST_F(Nvml, VisibleDevicesChooseAndReorder) {
  using ::testing::ElementsAre;
  EXPECT_THAT(names("CUDA_VISIBLE_DEVICES=1"), ElementsAre("Example V100"));
  EXPECT_THAT(names("CUDA_VISIBLE_DEVICES=1, 0"),
              ElementsAre("Example V100", "Example H200"));
  EXPECT_THAT(names("CUDA_VISIBLE_DEVICES=GPU-bbbb"), ElementsAre("Example V100"));
  EXPECT_EQ(detect("CUDA_VISIBLE_DEVICES=1").gpus[0].index, 0);
}

TEST_F(Nvml, TheListEndsAtTheFirstUnknownDevice) {
  EXPECT_THAT(names("CUDA_VISIBLE_DEVICES=0,7,1"),
              ::testing::ElementsAre("Example H200"));
}

TEST_F(Nvml, HiddenGpusAreNotedAsHidden) {
  for (const std::string value : {"", "-1", "none"}) {
    const auto found = detect("CUDA_VISIBLE_DEVICES=" + value);
    EXPECT_TRUE(found.gpus.empty()) << value;
    EXPECT_THAT(found.gpu_note, ::testing::HasSubstr("CUDA_VISIBLE_DEVICES='" + value +
                                                     "' hides all of them (2"));
    EXPECT_EQ(found.driver_version, "580.82.07");
  }
}

TEST_F(Nvml, ADriverThatDoesNotStartIsANote) {
  ASSERT_EQ(::setenv("FAKE_NVML_INIT", "9", 1), 0);
  const auto found = detect();
  ::unsetenv("FAKE_NVML_INIT");
  EXPECT_TRUE(found.gpus.empty());
  EXPECT_EQ(found.gpu_note, "NVML does not start: Driver Not Loaded");
}

TEST_F(Nvml, ALibraryWithoutTheFunctionsIsANote) {
  const auto root = directory_.path();
  std::filesystem::create_directories(root / "usr/lib");
  for (const auto* libm : {"/lib/x86_64-linux-gnu/libm.so.6", "/lib64/libm.so.6",
                           "/lib/aarch64-linux-gnu/libm.so.6"}) {
    if (!std::filesystem::exists(libm)) continue;
    std::filesystem::create_symlink(libm, root / "usr/lib/libnvidia-ml.so.1");
    break;
  }
  const auto found = hardware::detect(root);
  EXPECT_TRUE(found.gpus.empty());
  EXPECT_THAT(found.gpu_note, ::testing::HasSubstr("lacks a function"));
}

}  // namespace
}  // namespace lockstep
