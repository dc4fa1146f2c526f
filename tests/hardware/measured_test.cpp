// What was measured: its file, where it is kept, and what it says of slow and broken
// parts.
#include "lockstep/base/files.h"
#include "lockstep/hardware/json.h"
#include "lockstep/hardware/measured_store.h"
#include "tests/support/support.h"

namespace lockstep {
namespace {

using hardware::Measured;
using hardware::MeasuredGpu;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

hardware::Machine machine_of_four() {
  hardware::Machine machine;
  machine.cpu_model = "A CPU";
  machine.physical_cores = 8;
  machine.logical_cores = 16;
  for (int i = 0; i < 4; ++i) {
    machine.gpus.push_back(
        {.index = i, .name = i == 3 ? "Other" : "Equal", .uuid = str("GPU-", i)});
  }
  return machine;
}

Measured measured_of_four() {
  Measured measured{.date = "2026-11-15",
                    .host_copy = 1e10,
                    .cpu_flops = 2.5e11,
                    .gpus = {},
                    .pairs = {{.first = 0, .second = 1, .copy = 5e10, .problem = ""}},
                    .collectives = {{"shm", 2, 1 << 20, 1.5e-4}}};
  for (int i = 0; i < 4; ++i) {
    measured.gpus.push_back({.index = i,
                             .uuid = str("GPU-", i),
                             .copy = 1e12,
                             .from_host = 5e10,
                             .to_host = 5e10,
                             .bf16_flops = 6e14,
                             .fp32_flops = std::nullopt});
  }
  return measured;
}

TEST(Measured, ReadsBackToTheSameAloneAndInAMachine) {
  const auto text = to_json(measured_of_four());
  EXPECT_EQ(to_json(hardware::measured_from_json(text, "x")), text);
  auto machine = machine_of_four();
  machine.measured = measured_of_four();
  const auto whole = to_json(machine);
  const auto back = hardware::from_json(whole, "x");
  EXPECT_EQ(to_json(back), whole);
  EXPECT_EQ(back.measured.value().gpus.at(2).bf16_flops, 6e14);
  EXPECT_FALSE(back.measured.value().gpus.at(2).fp32_flops);
}

TEST(Measured, IsKeptForEachMachine) {
  const files::TemporaryDirectory state;
  auto machine = machine_of_four();
  EXPECT_EQ(hardware::load_measured(machine, state.path()), "");
  EXPECT_FALSE(machine.measured);
  const auto path =
      hardware::store_measured(machine, state.path() / "new", measured_of_four());
  EXPECT_EQ(path, state.path() / "new/machines" / hardware::machine_key(machine) /
                      "measured.json");
  EXPECT_EQ(hardware::load_measured(machine, state.path() / "new"), "");
  EXPECT_EQ(machine.measured.value().host_copy, 1e10);
  auto other = machine_of_four();
  other.gpus[1].uuid = "GPU-9";
  EXPECT_EQ(hardware::load_measured(other, state.path() / "new"), "");
  EXPECT_FALSE(other.measured);
}

// CUDA_VISIBLE_DEVICES=1,0: a broken pair must not be forgotten, and has new numbers.
TEST(Measured, OfMoreGpusCountsForThoseThatAreVisible) {
  const files::TemporaryDirectory state;
  auto measured = measured_of_four();
  measured.pairs = {{.first = 0, .second = 1, .copy = {}, .problem = "it hangs"},
                    {.first = 2, .second = 3, .copy = 1e9, .problem = ""}};
  hardware::store_measured(machine_of_four(), state.path(), measured);
  auto machine = machine_of_four();
  machine.gpus = {machine.gpus[1], machine.gpus[0]};
  machine.gpus[0].index = 0;
  machine.gpus[1].index = 1;
  EXPECT_EQ(hardware::load_measured(machine, state.path()), "");
  ASSERT_TRUE(machine.measured);
  ASSERT_EQ(machine.measured->pairs.size(), 1U);
  EXPECT_EQ(machine.measured->pairs[0].first, 1);
  EXPECT_EQ(machine.measured->pairs[0].second, 0);
  EXPECT_EQ(machine.measured->pairs[0].problem, "it hangs");
  ASSERT_EQ(machine.measured->gpus.size(), 2U);
  EXPECT_EQ(machine.measured->gpus[0].uuid, "GPU-0");
  EXPECT_EQ(machine.measured->gpus[0].index, 1);
}

TEST(Measured, TheKeyIsThatOfCpuCoresAndGpus) {
  const auto key = hardware::machine_key(machine_of_four());
  EXPECT_EQ(key.size(), 16U);
  auto same = machine_of_four();
  same.hostname = "renamed";
  same.memory_total_bytes = 5;
  same.driver_version = "999";
  EXPECT_EQ(hardware::machine_key(same), key);
  for (const auto& change : std::initializer_list<void (*)(hardware::Machine&)>{
           [](auto& m) { m.cpu_model = "Another"; },
           [](auto& m) { m.physical_cores = 4; }, [](auto& m) { m.logical_cores = 8; },
           [](auto& m) { m.gpus[1].uuid = "GPU-9"; },
           [](auto& m) { m.gpus[1].name = "Renamed"; },
           [](auto& m) { std::swap(m.gpus[0], m.gpus[1]); }}) {
    auto changed = machine_of_four();
    change(changed);
    EXPECT_NE(hardware::machine_key(changed), key);
  }
}

TEST(Measured, AFileThatCanNotBeUsedIsOneSentence) {
  const files::TemporaryDirectory state;
  auto machine = machine_of_four();
  const auto path = hardware::store_measured(machine, state.path(), {});
  for (const auto* bad : {"{", "[]", R"({"format": 99})", R"({"gpus": 3})",
                          R"({"host_copy": "fast"})", R"({"surprise": 1})"}) {
    test::write_file(path, bad);
    const auto problem = hardware::load_measured(machine, state.path());
    EXPECT_THAT(problem, HasSubstr(path.string())) << bad;
    EXPECT_THAT(problem, HasSubstr("`lockstep hardware bench` measures again")) << bad;
    EXPECT_EQ(problem.find('\n'), std::string::npos);
    EXPECT_FALSE(machine.measured) << bad;
  }
}

TEST(Measured, AStateDirectoryThatCanNotBeMadeIsNamed) {
  const files::TemporaryDirectory place;
  test::write_file(place.path() / "file", "");
  EXPECT_THAT(test::error_text(Fault::io,
                               [&] {
                                 hardware::store_measured(machine_of_four(),
                                                          place.path() / "file", {});
                               }),
              HasSubstr((place.path() / "file/machines").string()));
}

TEST(Measured, NamesAGpuThatIsSlowerThanItsEquals) {
  auto measured = measured_of_four();
  EXPECT_THAT(hardware::slow_ones(machine_of_four(), measured), IsEmpty());
  measured.gpus[1].bf16_flops = 4.5e14;
  measured.gpus[2].to_host = 4.6e10;     // within a tenth
  measured.gpus[3].copy = 1e9;           // it has no equal
  measured.gpus[0].copy = std::nullopt;  // not measured is not slow
  EXPECT_THAT(hardware::slow_ones(machine_of_four(), measured),
              ElementsAre("GPU 1 is slow: multiplying in bf16 is 25 % below the median "
                          "of its equals (Equal)"));
}

TEST(Measured, OfTwoGpusTheSlowOneIsNamed) {
  auto machine = machine_of_four();
  machine.gpus.resize(2);
  auto measured = measured_of_four();
  measured.gpus.resize(2);
  measured.gpus[0].copy = 0.85e12;
  EXPECT_THAT(
      hardware::slow_ones(machine, measured),
      ElementsAre(HasSubstr("GPU 0 is slow: copying within its memory is 15 %")));
}

TEST(Measured, PairsAreComparedWithThoseOfTheSameLink) {
  auto machine = machine_of_four();
  machine.gpu_pairs = {{.first = 0, .second = 1, .nvlinks = 4},
                       {.first = 1, .second = 2, .nvlinks = 4},
                       {.first = 0, .second = 2, .nvlinks = 0, .path = "system"}};
  auto measured = measured_of_four();
  measured.pairs = {{.first = 0, .second = 1, .copy = 1e11, .problem = ""},
                    {.first = 1, .second = 2, .copy = 7e10, .problem = ""},
                    {.first = 0, .second = 2, .copy = 1e10, .problem = ""}};
  EXPECT_THAT(hardware::slow_ones(machine, measured),
              ElementsAre("GPU 1 to GPU 2 is slow: copying is 30 % below the median of "
                          "its equals (Equal over 4 NVLinks)"));
}

TEST(Measured, BrokenPairsComeWithTheVariableThatAvoidsThem) {
  auto measured = measured_of_four();
  EXPECT_THAT(hardware::broken_pairs(measured), IsEmpty());
  measured.pairs[0].problem = "no answer within 60 s";
  EXPECT_THAT(hardware::broken_pairs(measured),
              ElementsAre(HasSubstr("GPU 0 and GPU 1: no answer within 60 s; set "
                                    "NCCL_P2P_DISABLE=1")));
}

TEST(GpuCheck, ReadsBackAndSaysWhatFailed) {
  const hardware::GpuCheck check{
      .index = 2, .steps = {{"a", "", 0.5}, {"b", "3 are wrong", 0}, {"c", "late", 1}}};
  EXPECT_FALSE(check.passed());
  EXPECT_EQ(check.problem(), "b: 3 are wrong; c: late");
  const auto text = to_json(check);
  EXPECT_EQ(to_json(hardware::gpu_check_from_json(text, "x")), text);
  EXPECT_TRUE((hardware::GpuCheck{.index = 0, .steps = {{"a", "", 1}}}.passed()));
}

}  // namespace
}  // namespace lockstep
