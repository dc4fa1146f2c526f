// The parts of a plan agree with each other, on every machine, for every model and
// batch; and nothing better by its own numbers is passed over without a reason.
#include <cmath>

#include "lockstep/base/text.h"
#include "lockstep/planner/report.h"
#include "lockstep/planner/search.h"
#include "tests/planner/scenes.h"

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

namespace lockstep::test {
namespace {

struct Case {
  std::string model;
  std::string machine;
  Knobs knobs;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const auto& machine : planner::shipped_machines()) {
    for (const auto& model : planner::shipped_models()) {
      for (const Knobs& knobs :
           {Knobs{}, Knobs{{"batch.global", "1"}}, Knobs{{"batch.global", "8"}},
            Knobs{{"batch.global", "90"}}, Knobs{{"batch.global", "512"}},
            Knobs{{"batch.global", "4096"}},
            Knobs{{"batch.global", "256"}, {"batch.micro", "32"}},
            Knobs{{"batch.global", "64"}, {"parallel.strategy", "ddp"}},
            Knobs{{"batch.global", "64"}, {"planner.policy", "table"}},
            Knobs{{"batch.global", "64"}, {"optim.name", "sgd"}},
            Knobs{{"batch.global", "2048"}, {"data.workers", "2"}}}) {
        cases.push_back({model, machine, knobs});
      }
    }
  }
  return cases;
}

std::string name_of_case(const Case& one) {
  auto name = one.model + " on " + one.machine;
  for (const auto& [key, value] : one.knobs) name += " " + key + "=" + value;
  return name;
}

// Returns nothing if nothing fits: that is refused.
std::optional<planner::Plan> plan_of(const Case& one) {
  try {
    return shipped_plan(one.model, one.machine, one.knobs);
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::hardware) << error.what();
    return std::nullopt;
  }
}

bool is_measured(const planner::Plan& plan) {
  return plan.config.config.planner.policy == config::Policy::measured;
}

const planner::CandidateOutcome* taken(const planner::Plan& plan) {
  for (const auto& outcome : plan.candidates) {
    if (outcome.lost.empty()) return &outcome;
  }
  return nullptr;
}

std::string notes_of(const planner::Plan& plan) {
  std::string all;
  for (const auto& note : plan.notes) all += note + "\n";
  return all;
}

void expect_one_candidate(const planner::Plan& plan) {
  const auto* chosen = taken(plan);
  if (!is_measured(plan) && chosen == nullptr) return;  // a rule's own batch
  ASSERT_NE(chosen, nullptr);
  const auto& candidate = chosen->prediction.candidate;
  const auto& config = plan.config.config;
  EXPECT_EQ(candidate.ranks, config.parallel.ranks.value());
  EXPECT_EQ(candidate.micro, config.batch.micro.value());
  EXPECT_EQ(candidate.global(), config.batch.global.value());
  EXPECT_EQ(candidate.offload, config.memory.offload.value());
  EXPECT_EQ(candidate.recompute, config.memory.recompute_every.value() > 0);
  const auto& row = chosen->prediction;
  const auto& page = *plan.prediction;
  EXPECT_NEAR(row.memory.peak(), page.memory.peak(), 1) << "of one page";
  EXPECT_NEAR(row.time.step(), page.time.step(), 1e-9 * page.time.step());
  EXPECT_DOUBLE_EQ(row.limit, page.limit);
}

void expect_reasons(const planner::Plan& plan) {
  const double now = plan.prediction->samples_per_second;
  const bool fits = plan.prediction->fits();
  for (const auto& [prediction, lost] : plan.candidates) {
    const auto& c = prediction.candidate;
    SCOPED_TRACE(planner::candidate_table({{prediction, lost}}, true));
    if (lost.empty()) continue;
    if (!prediction.fits()) continue;  // needs more, or was not asked for
    if (!is_measured(plan)) continue;
    const double gain = prediction.samples_per_second / now - 1;
    const bool open = !lost.ends_with("was requested") && !lost.ends_with("is set") &&
                      !lost.starts_with("needs");
    if (!open) continue;
    EXPECT_TRUE(fits) << "one that fits is passed over for one that does not";
    if (gain > 0.001 && c.offload && !plan.prediction->candidate.offload) {
      EXPECT_EQ(lost, "offloading is used only where nothing else fits");
    } else if (gain > 0.001) {
      EXPECT_GT(planner::stage_of(c.method), 0) << "only shards may be passed over";
      EXPECT_THAT(lost, HasSubstr("% faster, but sharding"));
      EXPECT_LT(gain, 0.06);
    } else if (gain < -0.001) {
      EXPECT_THAT(lost, HasSubstr(" slower"));
    }
  }
}

void expect_words(const planner::Plan& plan) {
  const auto& config = plan.config.config;
  if (config.memory.offload.value()) {
    EXPECT_THAT(because(plan, "memory.recompute_every"), Not(HasSubstr("fit:")));
  }
  if (!plan.prediction->fits()) {
    EXPECT_THAT(notes_of(plan), HasSubstr("is predicted to need"));
    EXPECT_THAT(because(plan, "memory.recompute_every"), Not(HasSubstr("fit:")));
  }
  if (config.memory.find_micro.value() && plan.prediction->fits()) {
    const auto& prediction = *plan.prediction;
    EXPECT_THAT(plan.limit_because, HasSubstr(str(config.memory.target)));
    EXPECT_LE(prediction.memory.peak(), prediction.limit);
  }
  const auto text = planner::report(plan, planner::shipped_machine("cpu-16"), true);
  EXPECT_THAT(text, Not(HasSubstr("nan")));
  EXPECT_THAT(text, Not(HasSubstr("inf ")));
}

// Loading runs behind everything else: a device that waits for it names it, and only
// it.
void expect_one_bottleneck(const planner::Plan& plan) {
  const auto said = HasSubstr("data loading is the bottleneck: ");
  if (plan.bottleneck == "data loading") {
    EXPECT_THAT(notes_of(plan), said);
  } else {
    EXPECT_THAT(notes_of(plan), Not(said));
  }
}

void expect_gpus_in_use(const planner::Plan& plan, const hardware::Machine& machine) {
  const auto used = static_cast<std::size_t>(plan.config.config.parallel.ranks.value());
  if (machine.gpus.empty()) return;
  const auto said =
      HasSubstr(str("uses ", used, " of ", machine.gpus.size(), " GPUs: "));
  if (used >= machine.gpus.size()) {
    EXPECT_THAT(notes_of(plan), Not(HasSubstr(" GPUs: ")));
    return;
  }
  EXPECT_THAT(notes_of(plan), said);
  EXPECT_THAT(plan.hints, Not(::testing::Contains(HasSubstr("more GPUs"))));
}

void expect_scaling(const planner::Plan& plan, const hardware::Machine& machine) {
  const auto devices = machine.gpus.empty()
                           ? static_cast<std::size_t>(machine.physical_cores)
                           : machine.gpus.size();
  for (const auto& [ranks, speed_up, lacks] : plan.scaling) {
    EXPECT_LE(static_cast<std::size_t>(ranks), devices);
    // Shards leave a rank less to update than one alone has: only without them are n
    // ranks at most n times as fast.
    const bool shards = planner::stage_of(plan.prediction->candidate.method) > 0;
    if (!shards) {
      EXPECT_LE(speed_up, ranks * 1.0001);
    }
    if (machine.gpus.empty()) {
      // One rank has all cores; only the calls of operators, which one thread makes,
      // and an update in shards gain by more ranks.
      EXPECT_LE(speed_up, 1.25);
    }
    const bool own = ranks == plan.prediction->candidate.ranks;
    if (own) {
      EXPECT_EQ(lacks.empty(), plan.prediction->fits());
    }
  }
}

}  // namespace

TEST(Agreement, OfThePartsOfEveryPlan) {
  int plans = 0;
  for (const auto& one : all_cases()) {
    SCOPED_TRACE(name_of_case(one));
    const auto plan = plan_of(one);
    if (!plan) continue;
    ++plans;
    const auto machine = planner::shipped_machine(one.machine);
    expect_one_candidate(*plan);
    expect_reasons(*plan);
    expect_words(*plan);
    expect_one_bottleneck(*plan);
    expect_gpus_in_use(*plan, machine);
    expect_scaling(*plan, machine);
    if (HasFailure()) break;  // one page of a contradiction is enough
  }
  EXPECT_GT(plans, 500);
}

// What an expert would do by hand: as many GPUs as the batch allows, and no more memory
// than the cards have.
TEST(Idle, ABatchThatDoesNotDivideNamesOneThatDoes) {
  const auto plan = shipped_plan("gpt2-124m", "8xh100", {{"batch.global", "90"}});
  EXPECT_EQ(plan.config.config.parallel.ranks.value(), 6);
  ASSERT_THAT(plan.notes, Not(IsEmpty()));
  EXPECT_THAT(plan.notes[0],
              HasSubstr("uses 6 of 8 GPUs: batch.global 90 is not a multiple of 8; "
                        "batch.global=96 would use all 8: "));
}

TEST(Idle, ABatchThatIsTooSmallNamesALargerOneThatIsNot) {
  const auto plan = shipped_plan("resnet50", "dgx-b200");
  ASSERT_THAT(plan.notes, Not(IsEmpty()));
  EXPECT_THAT(plan.notes[0], HasSubstr("of 8 GPUs: with batch.global 128 each of 8 "));
  const auto at = plan.notes[0].find("; batch.global=");
  ASSERT_NE(at, std::string::npos) << plan.notes[0];
  const auto batch = std::to_string(std::stoi(plan.notes[0].substr(at + 15)));
  const auto larger = shipped_plan("resnet50", "dgx-b200", {{"batch.global", batch}});
  EXPECT_EQ(larger.config.config.parallel.ranks.value(), 8);
}

TEST(Idle, WhatWasSetIsNamed) {
  const auto note = [](const Knobs& knobs) {
    const auto plan = shipped_plan("gpt2-124m", "4xl4", knobs);
    return plan.notes.empty() ? "" : plan.notes[0];
  };
  EXPECT_EQ(note({{"parallel.ranks", "2"}}),
            "uses 2 of 4 GPUs: parallel.ranks=2 is set");
  EXPECT_EQ(note({{"parallel.strategy", "single"}}),
            "uses 1 of 4 GPUs: parallel.strategy=single is set");
  EXPECT_EQ(
      note({{"parallel.device_ids", "[1, 3]"}, {"parallel.strategy", "data_parallel"}}),
      "uses 2 of 4 GPUs: parallel.device_ids is set");
  EXPECT_EQ(note({{"parallel.device", "cpu"}}),
            "uses none of 4 GPUs: parallel.device=cpu is set");
  EXPECT_EQ(note({}), "");
  EXPECT_THAT(note({{"planner.policy", "flags"},
                    {"planner.enable_distributed", "false"},
                    {"planner.enable_data_parallel", "false"}}),
              HasSubstr("uses 1 of 4 GPUs: policy flags: 4 GPUs, but neither"));
}

// The examples that users have met: each of these trained on one GPU of many.
TEST(Idle, ModelsThatNeedShardsUseAllGpus) {
  const auto ranks = [](const std::string& model, const std::string& machine) {
    const auto plan = shipped_plan(model, machine, {{"batch.global", "512"}});
    return plan.config.config.parallel.ranks.value();
  };
  EXPECT_EQ(ranks("gpt2-1.5b", "8xa100-40"), 8);
  EXPECT_EQ(ranks("gpt2-774m", "4xl4"), 4);
  EXPECT_EQ(ranks("gpt2-774m", "4xa10g"), 4);
  EXPECT_EQ(ranks("gpt2-774m", "4xt4"), 4);
  EXPECT_EQ(ranks("gpt2-774m", "8xv100"), 8);
  EXPECT_EQ(ranks("gpt2-774m", "2xrtx4090"), 2);
}

TEST(Fits, AnotherOptimizerIsNamedWhereItDoes) {
  const auto said =
      error_text(Fault::hardware, [] { shipped_plan("gpt2-1.5b", "1xrtx3090", {}); });
  EXPECT_THAT(said, HasSubstr("nothing fits on this machine with optim.name=adamw; "));
  const auto at = said.rfind("adamw; ") + 7;
  const auto words = said.substr(at, said.find(" would: ") - at);
  Knobs knobs;
  for (const auto& word : text::split(words, ' ')) {
    knobs.push_back(config::parse_override(word));
  }
  EXPECT_NO_THROW(shipped_plan("gpt2-1.5b", "1xrtx3090", knobs)) << words;
}

// One sample leaves three of four GPUs nothing to shard for.
TEST(Fits, ALargerBatchIsNamedWhereItDoes) {
  const auto said = error_text(Fault::hardware, [] {
    shipped_plan("gpt2-1.5b", "4xa10", {{"batch.global", "1"}});
  });
  EXPECT_THAT(said, HasSubstr("nothing fits with batch.global=1; batch.global=4 would: "
                              "zero"));
  const auto plan = shipped_plan("gpt2-1.5b", "4xa10", {{"batch.global", "4"}});
  EXPECT_EQ(plan.config.config.parallel.ranks.value(), 4);
}

// 88 % of a card is no micro-batch for a search that stops at 80 %.
TEST(Fits, TheMicroBatchKeepsToTheTargetOfTheSearch) {
  const auto plan = shipped_plan("gpt2-355m", "8xa100-40", {{"batch.global", "512"}});
  EXPECT_TRUE(plan.config.config.memory.find_micro.value());
  EXPECT_EQ(plan.limit_because, "0.8 x 40.0 GiB");
  const auto named = shipped_plan("gpt2-355m", "8xa100-40",
                                  {{"batch.global", "512"}, {"batch.micro", "4"}});
  EXPECT_EQ(named.limit_because, "0.9 x 40.0 GiB");
}

TEST(Fits, WithoutASearchWhereOnlyTheLargerShareFits) {
  auto machine = planner::shipped_machine("1xrtx3090");
  const auto model = planner::shipped_model("gpt2-124m");
  const auto plan_with = [&](std::int64_t bytes) {
    machine.gpus[0].memory_total_bytes = bytes;
    machine.gpus[0].status.memory_free_bytes.reset();
    return planner::resolve(config::defaults(Knobs{{"batch.global", "8"}}, {}), machine,
                            {.model = model});
  };
  const auto large = plan_with(std::int64_t{1} << 40);
  const auto least = large.candidates.back().prediction.memory.peak();
  double smallest = least;
  for (const auto& [prediction, lost] : large.candidates) {
    smallest = std::min(smallest, prediction.memory.peak());
  }
  const auto plan = plan_with(static_cast<std::int64_t>(smallest / 0.85));
  EXPECT_FALSE(plan.config.config.memory.find_micro.value());
  EXPECT_TRUE(plan.prediction->fits());
  EXPECT_EQ(because(plan, "memory.find_micro"),
            "nothing fits memory.target 0.8; this is predicted to fit "
            "memory.fraction 0.9");
}

TEST(Scaling, RanksThatShareTwoCoresAreNoFaster) {
  auto machine = planner::shipped_machine("cpu-16");
  machine.physical_cores = machine.logical_cores = 2;
  const auto plan = planner::resolve(
      config::defaults(Knobs{{"batch.global", "64"}, {"parallel.ranks", "8"}}, {}),
      machine, {.model = planner::shipped_model("resnet50")});
  ASSERT_THAT(plan.scaling, Not(IsEmpty()));
  EXPECT_EQ(plan.scaling.back().ranks, 8);
  EXPECT_LT(plan.scaling.back().speed_up, 1);
}

TEST(Reasons, AnUpdateThatNobodyShardsSaysSo) {
  const auto why = [](const Knobs& knobs) {
    return because(shipped_plan("gpt2-124m", "4xl4", knobs), "parallel.shard_update");
  };
  EXPECT_EQ(why({{"parallel.strategy", "ddp"}}),
            "not used on GPUs: every rank updates all parameters");
  EXPECT_EQ(why({{"parallel.strategy", "zero"}}),
            "not used: parallel.strategy is zero, which shards the optimizer anyway");
  EXPECT_EQ(why({{"parallel.ranks", "1"}}), "not used: parallel.strategy is single");
}

TEST(Reasons, MultiplesAreSaidAsSuch) {
  const auto plan = shipped_plan("gpt2-1.5b", "dgx-h100", {{"batch.global", "512"}});
  const auto table = planner::candidate_table(plan.candidates, false);
  EXPECT_THAT(table, HasSubstr("7.7 x slower"));
  for (const auto& [prediction, lost] : plan.candidates) {
    const auto at = lost.find(" % slower");
    if (at != std::string::npos) {
      EXPECT_LT(std::stod(lost.substr(0, at)), 100) << lost;
    }
  }
}

}  // namespace lockstep::test
