// The planner on machines that nobody has to own.
#include <nlohmann/json.hpp>

#include "lockstep/config/print.h"
#include "lockstep/planner/plan.h"
#include "tests/support/support.h"

using ::testing::HasSubstr;

namespace lockstep::test {
namespace {

using Wanted = std::vector<config::Override>;

hardware::Machine cpu_machine(int physical, int logical) {
  hardware::Machine machine;
  machine.physical_cores = physical;
  machine.logical_cores = logical;
  machine.gpu_note = "libnvidia-ml.so.1 is not there";
  return machine;
}

hardware::Machine gpu_machine(const std::string& name, int major, int minor) {
  auto machine = cpu_machine(8, 16);
  machine.gpu_note = "";
  machine.gpus.resize(1);
  machine.gpus[0].name = name;
  machine.gpus[0].compute_major = major;
  machine.gpus[0].compute_minor = minor;
  return machine;
}

const hardware::Machine kTwoCores = cpu_machine(2, 2);
const hardware::Machine kH100 = gpu_machine("NVIDIA H100", 9, 0);
const hardware::Machine kV100 = gpu_machine("Tesla V100", 7, 0);

planner::Plan plan_for(const Wanted& wanted, const hardware::Machine& machine) {
  return planner::resolve(config::defaults(wanted, {}), machine);
}

std::string refusal(const Wanted& wanted, const hardware::Machine& machine,
                    Fault fault = Fault::config) {
  return error_text(fault, [&] { plan_for(wanted, machine); });
}

std::string reason(const planner::Plan& plan, const std::string& key) {
  for (const auto& choice : plan.choices) {
    if (choice.key == key) return choice.because;
  }
  return "not chosen";
}

}  // namespace

TEST(Planner, NamesAKnobThatWasSetAndIsNotUsed) {
  const auto plan = plan_for({{"parallel.zero_stage", "2"}}, kTwoCores);
  EXPECT_THAT(plan.notes,
              ::testing::ElementsAre(
                  "parallel.zero_stage=2 is not used: it needs parallel.strategy=zero, "
                  "and parallel.strategy is single"));
  EXPECT_THAT(plan_for({}, kTwoCores).notes, ::testing::IsEmpty());
}

TEST(Planner, LeavesNoKnobAuto) {
  for (const auto& machine : {kTwoCores, kH100, kV100, cpu_machine(64, 128)}) {
    for (const Wanted& wanted :
         {Wanted{}, Wanted{{"train.steps", "5"}}, Wanted{{"batch.micro", "32"}}}) {
      const auto plan = plan_for(wanted, machine);
      EXPECT_THAT(config::auto_keys(plan.config), ::testing::IsEmpty());
      EXPECT_NO_THROW(config::validate(plan.config));
    }
  }
}

TEST(Planner, ItsConfigLoadsBackAndNeedsNoSecondPlan) {
  const auto plan = plan_for({{"train.steps", "5"}}, kTwoCores);
  const files::TemporaryDirectory directory;
  const auto path = directory.path() / "config.yaml";
  write_file(path, config::to_yaml(plan.config, true));
  const auto again = planner::resolve(config::load(path, {}, {}), kTwoCores);
  planner::refuse_auto(again);
  EXPECT_THAT(again.choices, ::testing::IsEmpty());
  EXPECT_EQ(config::to_yaml(again.config, false), config::to_yaml(plan.config, false));
}

TEST(Planner, TwoCoresWithoutAGpu) {
  const auto plan = plan_for({}, kTwoCores);
  const auto& config = plan.config.config;
  EXPECT_EQ(config.parallel.device, config::Device::cpu);
  EXPECT_EQ(config.parallel.ranks.value(), 1);
  EXPECT_EQ(config.parallel.strategy, config::Strategy::single);
  EXPECT_EQ(config.parallel.threads.value(), 2);
  EXPECT_EQ(config.comm.backend, config::CommBackend::shm_or_gloo);
  EXPECT_EQ(config.precision.mode, config::Precision::fp32);
  EXPECT_EQ(config.data.workers.value(), 1);
  EXPECT_EQ(config.data.prefetch.value(), 4);
  EXPECT_EQ(reason(plan, "parallel.device"), "no GPU: libnvidia-ml.so.1 is not there");
  EXPECT_EQ(plan.config.sources.at("parallel.device").origin, config::Origin::planner);
  EXPECT_EQ(plan.config.sources.at("parallel.device").where,
            reason(plan, "parallel.device"));
}

TEST(Planner, ManyCoresAndOneCore) {
  const auto many = plan_for({}, cpu_machine(64, 128)).config.config;
  EXPECT_EQ(many.parallel.threads.value(), 64);
  EXPECT_EQ(many.data.workers.value(), 3);
  const auto one = plan_for({}, cpu_machine(0, 0)).config.config;
  EXPECT_EQ(one.parallel.threads.value(), 1) << "whatever a broken /proc says";
  EXPECT_EQ(one.data.workers.value(), 1);
}

TEST(Planner, OnlyAGpuFetchesFromPinnedMemory) {
  EXPECT_FALSE(plan_for({}, kTwoCores).config.config.data.pin_memory.value());
  EXPECT_TRUE(plan_for({}, kH100).config.config.data.pin_memory.value());
  EXPECT_FALSE(plan_for({{"data.pin_memory", "false"}}, kH100)
                   .config.config.data.pin_memory.value());
  EXPECT_THAT(refusal({{"data.pin_memory", "true"}}, kTwoCores, Fault::config),
              HasSubstr("parallel.device is cpu"));
}

TEST(Planner, OmpNumThreadsLimitsTheThreads) {
  auto machine = cpu_machine(64, 128);
  machine.omp_num_threads = 1;
  const auto plan = plan_for({}, machine);
  EXPECT_EQ(plan.config.config.parallel.threads.value(), 1);
  EXPECT_EQ(reason(plan, "parallel.threads"), "OMP_NUM_THREADS is 1");
  const auto asked = plan_for({{"parallel.threads", "3"}}, machine).config.config;
  EXPECT_EQ(asked.parallel.threads.value(), 3) << "a knob wins";
  machine.omp_num_threads = 100'000;
  EXPECT_EQ(plan_for({}, machine).config.config.parallel.threads.value(), 64);
}

TEST(Planner, ANewGpuComputesInBf16) {
  const auto plan = plan_for({}, kH100);
  EXPECT_EQ(plan.config.config.parallel.device, config::Device::cuda);
  EXPECT_EQ(plan.config.config.precision.mode, config::Precision::bf16);
  EXPECT_EQ(reason(plan, "precision.mode"),
            "compute 9.0 >= 8.0 has fast bf16; fp32 weights");
}

TEST(Planner, AGpuWithoutBf16ComputesInFp16) {
  const auto plan = plan_for({}, kV100);
  EXPECT_EQ(plan.config.config.precision.mode, config::Precision::fp16);
  EXPECT_EQ(reason(plan, "precision.mode"),
            "compute 7.0 has fast fp16 and no bf16; loss scaling, fp32 weights");
  for (const auto* mode : {"bf16", "tf32", "bf16_params"}) {
    EXPECT_EQ(refusal({{"precision.mode", mode}}, kV100, Fault::hardware),
              std::string("override 'precision.mode=") + mode +
                  "': precision.mode: " + mode +
                  " needs a GPU of compute 8.0, the Tesla V100 has 7.0; set "
                  "precision.mode=fp16 or fp32");
  }
}

TEST(Planner, AnOldGpuComputesInFp32) {
  auto machine = kV100;
  machine.gpus[0].compute_major = 6;
  const auto plan = plan_for({}, machine);
  EXPECT_EQ(plan.config.config.precision.mode, config::Precision::fp32);
  EXPECT_EQ(reason(plan, "precision.mode"),
            "compute 6.0 < 7.0 has neither fast fp16 nor bf16");
}

TEST(Planner, ACpuComputesInWhatItIsAskedFor) {
  for (const auto* mode : {"bf16", "fp16", "bf16_params", "fp16_params", "fp64"}) {
    const auto plan = plan_for({{"precision.mode", mode}}, kTwoCores);
    EXPECT_EQ(name_of(plan.config.config.precision.mode), mode);
  }
}

TEST(Planner, KeepsWhatWasAskedFor) {
  const auto plan = plan_for({{"parallel.device", "cpu"},
                              {"precision.mode", "bf16"},
                              {"parallel.threads", "1"},
                              {"data.workers", "7"}},
                             kH100);
  const auto& config = plan.config.config;
  EXPECT_EQ(config.parallel.device, config::Device::cpu);
  EXPECT_EQ(config.precision.mode, config::Precision::bf16);
  EXPECT_EQ(config.parallel.threads.value(), 1);
  EXPECT_EQ(config.data.workers.value(), 7);
  EXPECT_EQ(reason(plan, "data.workers"), "not chosen");
  EXPECT_EQ(plan.config.sources.at("data.workers").origin, config::Origin::override_);
}

TEST(Planner, RefusesAGpuThatIsNotThere) {
  EXPECT_EQ(refusal({{"parallel.device", "cuda"}}, kTwoCores, Fault::hardware),
            "override 'parallel.device=cuda': parallel.device: requested cuda, found "
            "no GPU: libnvidia-ml.so.1 is not there; set parallel.device=cpu or "
            "auto");
}

TEST(Planner, RefusesTf32OnTheCpu) {
  EXPECT_THAT(refusal({{"precision.mode", "tf32"}}, kTwoCores),
              HasSubstr("tf32 is a format of GPUs, and parallel.device is cpu"));
  EXPECT_EQ(plan_for({{"precision.mode", "tf32"}}, kH100).config.config.precision.mode,
            config::Precision::tf32);
}

TEST(Planner, GivesEveryGpuARank) {
  auto machine = kH100;
  machine.gpus.resize(4, machine.gpus[0]);
  const auto plan = plan_for({}, machine);
  EXPECT_EQ(plan.config.config.parallel.ranks.value(), 4);
  EXPECT_EQ(plan.config.config.comm.backend, config::CommBackend::nccl_or_gloo);
  EXPECT_EQ(plan.config.config.parallel.strategy, config::Strategy::ddp);
  EXPECT_EQ(reason(plan, "parallel.ranks"), "one for each of 4 GPUs");
  EXPECT_THAT(refusal({{"parallel.ranks", "5"}}, machine, Fault::hardware),
              HasSubstr("5 > 4"));
}

TEST(Planner, DataParallelHasARankForEachDeviceItNames) {
  auto machine = kH100;
  machine.gpus.resize(4, machine.gpus[0]);
  const auto ranks_of = [&](const char* ids) {
    const auto plan =
        plan_for({{"parallel.strategy", "data_parallel"}, {"parallel.device_ids", ids}},
                 machine);
    EXPECT_EQ(plan.config.config.comm.backend, config::CommBackend::local);
    return plan.config.config.parallel.ranks.value();
  };
  EXPECT_EQ(ranks_of("[]"), 4);
  EXPECT_EQ(ranks_of("[3, 1]"), 2);
  EXPECT_EQ(ranks_of("[0, 0, 0, 0, 0, 0, 0, 0]"), 8);
  EXPECT_THAT(
      refusal({{"parallel.strategy", "data_parallel"}, {"parallel.device_ids", "[4]"}},
              machine, Fault::hardware),
      HasSubstr("requested GPU 4, found 4 GPUs (numbered from 0)"));
}

TEST(Planner, BucketsHaveTwoNamesForOneSize) {
  const auto sizes = [](const Wanted& wanted) {
    const auto parallel = plan_for(wanted, kTwoCores).config.config.parallel;
    return std::pair(parallel.bucket_bytes.value(), parallel.bucket_cap_mb.value());
  };
  EXPECT_EQ(sizes({}), std::pair(std::int64_t{25 << 20}, 25.0));
  EXPECT_EQ(sizes({{"parallel.bucket_cap_mb", "0.5"}}),
            std::pair(std::int64_t{1 << 19}, 0.5));
  EXPECT_EQ(sizes({{"parallel.bucket_bytes", "33333333"}}),
            std::pair(std::int64_t{33333333}, 33333333.0 / (1 << 20)));
}

TEST(Planner, TheUpdateIsShardedWhereRanksShareMemory) {
  const auto chosen = [](const Wanted& wanted) {
    return plan_for(wanted, kTwoCores).config.config.parallel.shard_update;
  };
  EXPECT_EQ(chosen({}), config::ShardUpdate::shm);
  EXPECT_EQ(chosen({{"parallel.gradient_as_bucket_view", "off"}}),
            config::ShardUpdate::off);
  EXPECT_EQ(chosen({{"parallel.shard_update", "on"}}), config::ShardUpdate::on);
}

TEST(Planner, RanksShareTheCores) {
  auto machine = kTwoCores;
  machine.physical_cores = machine.logical_cores = 8;
  const auto plan = plan_for({{"parallel.ranks", "4"}}, machine);
  EXPECT_EQ(plan.config.config.parallel.threads.value(), 2);
  EXPECT_EQ(plan.config.config.parallel.strategy, config::Strategy::ddp);
}

TEST(Planner, AFailedSetUpStopsOnlyWhatWasAskedForByName) {
  using config::OnSetupFailure;
  const auto choice = [](const Wanted& wanted) {
    return plan_for(wanted, kTwoCores).config.config.parallel.on_setup_failure;
  };
  EXPECT_EQ(choice({}), OnSetupFailure::single);
  EXPECT_EQ(choice({{"parallel.ranks", "2"}}), OnSetupFailure::stop);
  EXPECT_EQ(choice({{"parallel.strategy", "ddp"}}), OnSetupFailure::stop);
}

namespace {

struct BatchCase {
  Wanted wanted;
  std::int64_t global, per_rank, accumulation, micro;
};

}  // namespace

TEST(Planner, CompletesEveryFormOfABatch) {
  const std::vector<BatchCase> cases = {
      {{}, 128, 128, 1, 128},
      {{{"batch.global", "64"}}, 64, 64, 1, 64},
      {{{"batch.per_rank", "32"}}, 32, 32, 1, 32},
      {{{"batch.per_rank", "32"}, {"batch.accumulation", "4"}}, 32, 32, 4, 8},
      {{{"batch.micro", "8"}, {"batch.accumulation", "4"}}, 32, 32, 4, 8},
      {{{"batch.micro", "32"}}, 128, 128, 4, 32},
      {{{"batch.accumulation", "2"}}, 128, 128, 2, 64},
      {{{"batch.global", "96"}, {"batch.micro", "32"}}, 96, 96, 3, 32},
  };
  for (const auto& expected : cases) {
    const auto plan = plan_for(expected.wanted, kTwoCores);
    const auto& batch = plan.config.config.batch;
    SCOPED_TRACE(planner::to_json(plan));
    EXPECT_EQ(batch.global.value(), expected.global);
    EXPECT_EQ(batch.per_rank.value(), expected.per_rank);
    EXPECT_EQ(batch.accumulation.value(), expected.accumulation);
    EXPECT_EQ(batch.micro.value(), expected.micro);
    EXPECT_GE(batch.eval.value(), expected.micro);
  }
}

TEST(Planner, RefusesABatchThatDoesNotDivide) {
  EXPECT_THAT(refusal({{"batch.global", "128"}, {"batch.micro", "100"}}, kTwoCores),
              HasSubstr("batch.global: 128 is not a multiple of batch.micro=100: 128 = "
                        "1 * 100 + 28; choose 200"));
  EXPECT_THAT(
      refusal({{"batch.global", "100"}, {"batch.accumulation", "3"}}, kTwoCores),
      HasSubstr("batch.global: 100 is not a multiple of batch.accumulation=3"));
  EXPECT_THAT(refusal({{"batch.global", "64"}, {"batch.per_rank", "32"}}, kTwoCores),
              HasSubstr("batch.per_rank * parallel.ranks = 32 * 1 = 32"));
}

TEST(Planner, EitherStepsOrEpochsDecide) {
  const auto neither = plan_for({}, kTwoCores).config.config.train;
  EXPECT_EQ(neither.epochs.value(), 1);
  EXPECT_EQ(neither.steps.value(), 0);
  const auto steps = plan_for({{"train.steps", "30"}}, kTwoCores).config.config.train;
  EXPECT_EQ(steps.epochs.value(), 0);
  EXPECT_EQ(steps.steps.value(), 30);
  const auto epochs = plan_for({{"train.epochs", "5"}}, kTwoCores).config.config.train;
  EXPECT_EQ(epochs.epochs.value(), 5);
  EXPECT_EQ(epochs.steps.value(), 0);
}

TEST(Planner, EvaluatesAfterEachEpoch) {
  EXPECT_EQ(plan_for({}, kTwoCores).config.config.eval.every.value(),
            config::kEachEpoch);
  const auto never = plan_for({{"eval.every", "0"}}, kTwoCores);
  EXPECT_EQ(never.config.config.eval.every.value(), 0);
}

TEST(Planner, EveryReasonIsOneShortSentence) {
  for (const auto& choice : plan_for({}, kH100).choices) {
    EXPECT_FALSE(choice.because.empty()) << choice.key;
    EXPECT_LT(choice.because.size(), 80u) << choice.because;
    EXPECT_EQ(choice.because.find('\n'), std::string::npos);
  }
}

TEST(Planner, NoAutoListsWhatIsLeftAndWhatItWouldBe) {
  const auto wanted = config::defaults({}, {});
  const auto plan = planner::resolve(wanted, kTwoCores);
  const auto text = error_text(Fault::config, [&] { planner::refuse_auto(plan); });
  EXPECT_THAT(text, HasSubstr("--no-auto: knobs left auto: " +
                              std::to_string(config::auto_keys(wanted).size())));
  for (const auto& key : config::auto_keys(wanted)) {
    EXPECT_THAT(text,
                HasSubstr("\n  " + key + "=" + config::get(plan.config, key) + " "));
  }
}

TEST(Planner, JsonHasTheChoicesAndTheirReasons) {
  const auto plan = plan_for({}, kTwoCores);
  const auto json = nlohmann::json::parse(planner::to_json(plan));
  EXPECT_EQ(json["version"], 1);
  ASSERT_EQ(json["choices"].size(), plan.choices.size());
  EXPECT_EQ(json["choices"][0]["key"], "parallel.device");
  EXPECT_EQ(json["choices"][0]["value"], "cpu");
  EXPECT_THAT(json["choices"][0]["because"].get<std::string>(), HasSubstr("no GPU"));
}

TEST(Planner, FindsTheMicroBatchByTryingWhereMemoryHasALimit) {
  EXPECT_TRUE(plan_for({}, kH100).config.config.memory.find_micro.value());
  EXPECT_FALSE(plan_for({}, kTwoCores).config.config.memory.find_micro.value());
  const Wanted limited{{"memory.host_limit", "1GiB"}};
  EXPECT_TRUE(plan_for(limited, kTwoCores).config.config.memory.find_micro.value());
  for (const Wanted& named :
       {Wanted{{"batch.micro", "32"}}, Wanted{{"batch.accumulation", "2"}}}) {
    const auto plan = plan_for(named, kH100);
    EXPECT_FALSE(plan.config.config.memory.find_micro.value());
    EXPECT_THAT(reason(plan, "memory.find_micro"), HasSubstr("is set"));
  }
  EXPECT_THAT(refusal({{"memory.find_micro", "true"}}, kTwoCores),
              HasSubstr("memory.host_limit"));
  const Wanted synced{{"memory.find_micro", "true"},
                      {"parallel.sync_batch_norm", "true"}};
  EXPECT_THAT(refusal(synced, kH100), HasSubstr("sync_batch_norm"));
}

TEST(Planner, OffloadNeedsADeviceToOffloadFrom) {
  EXPECT_THAT(refusal({{"memory.offload", "true"}}, kTwoCores),
              HasSubstr("parallel.device is cpu"));
  EXPECT_TRUE(plan_for({{"memory.offload", "true"}}, kH100)
                  .config.config.memory.offload.value());
}

TEST(Planner, GraphsAreForGpus) {
  const auto graph = [](const Wanted& wanted, const auto& machine) {
    return plan_for(wanted, machine).config.config.train.graph;
  };
  EXPECT_EQ(graph({}, kTwoCores), config::Graph::off);
  EXPECT_EQ(graph({}, kH100), config::Graph::if_possible);
  EXPECT_EQ(graph({{"train.graph", "on"}}, kH100), config::Graph::on);
  EXPECT_THAT(refusal({{"train.graph", "on"}}, kTwoCores),
              HasSubstr("train.graph: on, but parallel.device is cpu"));
}

}  // namespace lockstep::test
