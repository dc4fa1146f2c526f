// On a real GPU: field by field what NVIDIA's own tool says.
#include "lockstep/base/text.h"
#include "lockstep/hardware/machine.h"
#include "tests/support/support.h"

namespace lockstep {
namespace {

std::vector<std::string> ask_nvidia_smi(const std::string& uuid,
                                        const std::string& fields) {
  const auto output = test::run({"nvidia-smi", "--id=" + uuid, "--query-gpu=" + fields,
                                 "--format=csv,noheader,nounits"});
  EXPECT_TRUE(output.end.ok()) << output.err;
  std::vector<std::string> values;
  for (const auto& value : text::split(text::trim(output.out), ',')) {
    values.emplace_back(text::trim(value));
  }
  return values;
}

// "N/A" and "[N/A]" are nothing.
template <typename T>
void expect_same(const std::string& theirs, const std::optional<T>& ours, double slack,
                 const char* field) {
  const auto number = text::to_double(theirs);
  ASSERT_EQ(number.has_value(), ours.has_value()) << field << ": " << theirs;
  if (!number) return;
  EXPECT_NEAR(static_cast<double>(*ours), *number, slack) << field;
}

void expect_agreement(const hardware::Gpu& gpu) {
  const auto they = ask_nvidia_smi(
      gpu.uuid,
      "index,name,pci.bus_id,compute_cap,memory.total,memory.reserved,memory.used,"
      "enforced.power.limit,power.draw.instant,clocks.max.sm,clocks.max.mem,"
      "pcie.link.gen.gpumax,pcie.link.width.max,temperature.gpu,ecc.mode.current,"
      "ecc.errors.uncorrected.volatile.total,persistence_mode");
  ASSERT_EQ(they.size(), 17U);
  constexpr double kMib = 1 << 20;
  const auto mib = [](const std::optional<std::int64_t>& bytes) {
    return bytes ? std::optional(static_cast<double>(*bytes) / kMib) : std::nullopt;
  };
  EXPECT_EQ(they[0], std::to_string(gpu.nvml_index));
  EXPECT_EQ(they[1], gpu.name);
  EXPECT_THAT(text::lower(they[2]), ::testing::EndsWith(gpu.pci_id));
  EXPECT_EQ(they[3], str(gpu.compute_major, ".", gpu.compute_minor));
  expect_same(they[4], mib(gpu.memory_total_bytes), 1, "memory.total");
  expect_same(they[5], mib(gpu.status.memory_reserved_bytes), 1, "memory.reserved");
  expect_same(they[6], mib(gpu.status.memory_used_bytes), 1024,
              "used: others run, too");
  expect_same(they[7], gpu.power_limit_watts, 0.01, "power.limit");
  EXPECT_EQ(text::to_double(they[8]).has_value(), gpu.status.power_watts.has_value());
  expect_same(they[9], gpu.max_sm_clock_mhz, 0, "clocks.max.sm");
  expect_same(they[10], gpu.max_memory_clock_mhz, 0, "clocks.max.mem");
  expect_same(they[11], gpu.max_pcie_generation, 1, "the slot may be older");
  expect_same(they[12], gpu.max_pcie_width, 0, "pcie.link.width.max");
  expect_same(they[13], gpu.status.temperature_celsius, 5, "a moment later");
  EXPECT_EQ(they[14] == "Enabled", gpu.ecc_enabled.value_or(false));
  expect_same(they[15], gpu.status.ecc_uncorrected, 0, "ecc.uncorrected");
  EXPECT_EQ(they[16] == "Enabled", gpu.persistence.value_or(false));
}

TEST(NvidiaSmi, SaysTheSameOfEveryGpu) {
  const auto machine = hardware::inspect(".");
  if (machine.gpus.empty()) GTEST_SKIP() << "no GPU: " << machine.gpu_note;
  for (const auto& gpu : machine.gpus) {
    SCOPED_TRACE(gpu.uuid);
    if (gpu.mig_parent.empty()) expect_agreement(gpu);
    EXPECT_GT(gpu.multiprocessors.value_or(0), 0);  // libcuda was asked
    EXPECT_GT(gpu.l2_bytes.value_or(0), 0);
  }
}

}  // namespace
}  // namespace lockstep
