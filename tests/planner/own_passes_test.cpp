// Models that compute their gradients themselves: what a plan says of them, what they
// take, and what their runs teach.
#include "lockstep/planner/history.h"
#include "tests/planner/scenes.h"

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

namespace lockstep::test {
namespace {

constexpr std::int64_t kOfSample = 400 << 20;

run::ModelDescription with_own_passes(const std::string& obstacle = "") {
  auto model = planner::shipped_model("gpt2-124m");
  model.own_passes = {.exist = true,
                      .obstacle = obstacle,
                      .kept = {{2 * kOfSample, 100}, {kOfSample, 50}}};
  return model;
}

planner::Plan plan_with(const Knobs& knobs, const run::ModelDescription& model,
                        const std::string& machine = "1xh200") {
  return planner::resolve(config::defaults(knobs, {}),
                          planner::shipped_machine(machine), {.model = model});
}

Knobs half_knobs(Knobs more = {}) {
  Knobs knobs{{"precision.mode", "bf16_params"}, {"batch.micro", "8"}};
  knobs.insert(knobs.end(), more.begin(), more.end());
  return knobs;
}

}  // namespace

TEST(OwnPassesPlan, SaysThatTheyAreTakenAndCountsWhatTheyKeep) {
  const auto plan = plan_with(half_knobs(), with_own_passes());
  EXPECT_THAT(plan.notes, Contains("model.own_backward: the gpt2-124m's hand-written "
                                   "passes are used, with fused kernels"));
  EXPECT_DOUBLE_EQ(plan.prediction->memory.activations, 8.0 * kOfSample + 50);
  const auto plain =
      plan_with(half_knobs({{"model.name", "gpt"}, {"model.own_backward", "false"}}),
                with_own_passes());
  EXPECT_NE(plain.prediction->memory.activations, 8.0 * kOfSample + 50);
  EXPECT_THAT(plain.notes, Not(Contains(HasSubstr("own_backward")))) << "as was asked";
  const auto half = plan.hints;
  EXPECT_THAT(half, Contains(HasSubstr("half the sequence")));
}

TEST(OwnPassesPlan, SaysWhyTheyAreNotTaken) {
  const auto note_of = [](const planner::Plan& plan) {
    for (const auto& note : plan.notes) {
      if (note.find("own_backward") != std::string::npos) return note;
    }
    return std::string();
  };
  EXPECT_EQ(note_of(plan_with({}, with_own_passes())),
            "model.own_backward: autograd is used, not the gpt2-124m's hand-written "
            "passes, which are faster: they need precision.mode=bf16_params, not bf16");
  EXPECT_THAT(note_of(plan_with(half_knobs(), with_own_passes("no kernels"))),
              HasSubstr("which are faster: no kernels"));
  EXPECT_THAT(note_of(plan_with(half_knobs({{"memory.recompute_every", "1"}}),
                                with_own_passes())),
              HasSubstr("memory.recompute_every is not 0"));
  EXPECT_THAT(note_of(plan_with(half_knobs({{"parallel.strategy", "zero"},
                                            {"parallel.zero_stage", "3"}}),
                                with_own_passes(), "8xh100")),
              HasSubstr("parallel.zero_stage is 3"));
  EXPECT_THAT(note_of(plan_with(half_knobs({{"lora.rank", "4"}}), with_own_passes())),
              HasSubstr("lora.rank"));
  EXPECT_EQ(note_of(plan_with(half_knobs(), planner::shipped_model("gpt2-124m"))), "")
      << "a model that has none";
  EXPECT_EQ(note_of(plan_with({}, with_own_passes(), "cpu-16")), "")
      << "they need a GPU";
}

// Another time and another memory: neither may teach the other's predictions.
TEST(OwnPassesPlan, RunsTeachUnderANameOfTheirOwn) {
  const auto machine = planner::shipped_machine("1xh200");
  const auto name_with = [&](const Knobs& knobs, const char* obstacle = "") {
    return planner::learnt_as(with_own_passes(obstacle),
                              config::defaults(knobs, {}).config, machine);
  };
  EXPECT_EQ(name_with(half_knobs()), "gpt2-124m, own passes");
  EXPECT_EQ(name_with(half_knobs(), "no kernels"), "gpt2-124m");
  EXPECT_EQ(name_with({}), "gpt2-124m") << "the planner chooses bf16";
  EXPECT_EQ(name_with({{"precision.mode", "bf16"}}), "gpt2-124m");
  EXPECT_EQ(name_with(half_knobs({{"model.own_backward", "false"}})), "gpt2-124m");
  EXPECT_EQ(name_with({{"parallel.device", "cpu"}, {"model.own_backward", "true"}}),
            "gpt2-124m, own passes");
  // Before and after a plan, with which the run is found again.
  const auto plan = plan_with(half_knobs(), with_own_passes());
  EXPECT_EQ(planner::learnt_as(with_own_passes(), plan.config.config, machine),
            "gpt2-124m, own passes");
}

TEST(OwnPassesPlan, ADescriptionKeepsThem) {
  const auto text = run::to_json(with_own_passes("why not"));
  const auto read = run::model_from_json(text, "x.json");
  EXPECT_TRUE(read.own_passes.exist);
  EXPECT_EQ(read.own_passes.obstacle, "why not");
  EXPECT_EQ(read.own_passes.kept.half.per_sample_bytes, kOfSample);
  EXPECT_EQ(read.with_half_sequence().own_passes.kept.half.per_sample_bytes,
            kOfSample / 2);
}

}  // namespace lockstep::test
