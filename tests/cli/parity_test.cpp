// `lockstep parity` without ranks: what it takes, what it plans, what it makes of
// traces.
#include "lockstep/cli/detail/parity.h"

#include <cmath>
#include <limits>

#include <nlohmann/json.hpp>

#include "lockstep/config/load.h"
#include "lockstep/hardware/machine.h"
#include "tests/cli/rig.h"

namespace lockstep::cli {
namespace {

using test::lockstep_in_process;
using test::Rig;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Tensors by name; a trace has vectors only where it is made by hand.
using Tensors = std::map<std::string, std::vector<double>>;

std::string safetensors_of(const Tensors& tensors) {
  nlohmann::json header;
  std::string data;
  for (const auto& [name, values] : tensors) {
    const auto begin = data.size();
    data.append(reinterpret_cast<const char*>(values.data()), values.size() * 8);
    header[name] = {{"dtype", "F64"},
                    {"shape", {values.size()}},
                    {"data_offsets", {begin, data.size()}}};
  }
  const auto text = header.dump();
  std::string bytes(8, '\0');
  for (std::size_t i = 0; i < 8; ++i)
    bytes[i] = static_cast<char>(text.size() >> 8 * i);
  return bytes + text + data;
}

// One step of a model with two parameters.
Tensors step_of(double nudge = 0) {
  return {{"loss", {2.5}},
          {"lr", {1e-3}},
          {"gradient/a", {1.0, -4.0 + nudge, 0.0}},
          {"gradient/b", {1e-3}},
          {"parameter/a", {0.5, 0.25, 0.0}},
          {"parameter/b", {3.0}}};
}

class Traces : public ::testing::Test {
 protected:
  // A trace of one step; `hashes` are those after it, one for each rank.
  ParityRun run(const std::string& name, const Tensors& step,
                const std::vector<std::string>& hashes = {"aa"}) const {
    const auto place = folder_.path() / name;
    test::write_file(
        place / run::step_file(0),
        safetensors_of({{"parameter/a", {0.5, 0.25, 0}}, {"parameter/b", {3}}}));
    test::write_file(place / run::step_file(1), safetensors_of(step));
    for (std::size_t rank = 0; rank < hashes.size(); ++rank) {
      test::write_file(place / run::hash_file(static_cast<int>(rank)),
                       str("{\"step\":0,\"hash\":\"00\"}\n{\"step\":1,\"hash\":\"",
                           hashes[rank], "\"}\n"));
    }
    return {.name = name,
            .ranks = static_cast<int>(hashes.size()),
            .trace = place,
            .result = {}};
  }

  Comparison against_itself(const Tensors& other) const {
    return compare(run("1 rank", step_of()), run("2 ranks", other, {"aa", "aa"}), 1);
  }

  files::TemporaryDirectory folder_;
};

TEST_F(Traces, ThatAreTheSamePass) {
  const auto comparison = against_itself(step_of());
  EXPECT_TRUE(comparison.passes());
  EXPECT_EQ(comparison.worst().largest(), 0);
  const auto text = parity_text({comparison}, false);
  EXPECT_THAT(text, HasSubstr("All 2 ranks hold the same bits after every step."));
  EXPECT_THAT(text, HasSubstr("PASS: 2 ranks compute what 1 rank does"));
  EXPECT_THAT(text, HasSubstr("Why 1e-8"));
}

TEST_F(Traces, RoundingPassesAndAMistakeDoesNot) {
  EXPECT_TRUE(against_itself(step_of(1e-12)).passes());
  const auto comparison = against_itself(step_of(4e-3));
  EXPECT_FALSE(comparison.passes());
  const auto& gradient = comparison.worst().gradient;
  EXPECT_NEAR(gradient.absolute, 4e-3, 1e-12);
  EXPECT_NEAR(gradient.relative, 1e-3, 1e-12);  // of the largest element, 4
  EXPECT_THAT(
      parity_text({comparison}, false),
      HasSubstr("FAIL: 2 ranks do not compute what 1 rank does: the gradient of "
                "a at step 1 differs by 1.0e-03, allowed is 1e-08"));
}

TEST_F(Traces, ALossThatDiffersFails) {
  auto step = step_of();
  step["loss"] = {2.5001};
  EXPECT_THAT(parity_text({against_itself(step)}, false),
              HasSubstr("the loss at step 1 differs by 4.0e-05"));
}

TEST_F(Traces, AParameterThatDiffersFails) {
  auto step = step_of();
  step["parameter/b"] = {3.003};
  EXPECT_THAT(parity_text({against_itself(step)}, false),
              HasSubstr("the parameter b at step 1 differs by 1.0e-03"));
}

// A gradient that is nothing but rounding has no size of its own to be held against.
TEST_F(Traces, NoiseFarBelowTheLargestGradientIsNoMistake) {
  auto one = step_of();
  auto other = step_of();
  one["gradient/b"] = {3e-18};
  other["gradient/b"] = {-5e-18};
  EXPECT_TRUE(
      compare(run("1 rank", one), run("2 ranks", other, {"aa", "aa"}), 1).passes());
}

TEST_F(Traces, WhatIsNotANumberFailsEvenOnBothSides) {
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    auto step = step_of();
    step["gradient/a"][1] = bad;
    EXPECT_FALSE(against_itself(step).passes());
    const auto both =
        compare(run("1 rank", step), run("2 ranks", step, {"aa", "aa"}), 1);
    EXPECT_FALSE(both.passes());
    EXPECT_THAT(parity_text({both}, false), HasSubstr("the gradient of a at step 1"));
    EXPECT_EQ(nlohmann::json::parse(parity_json({both}, {}))["verdict"], "fail");
    step = step_of();
    step["loss"] = {bad};
    EXPECT_FALSE(against_itself(step).passes());
  }
}

TEST_F(Traces, AMissingTensorOrAnotherShapeFails) {
  auto step = step_of();
  step.erase("gradient/b");
  EXPECT_THAT(parity_text({against_itself(step)}, false),
              HasSubstr("b (only in one of them)"));
  step = step_of();
  step["gradient/c"] = {0};
  EXPECT_FALSE(against_itself(step).passes());
  step = step_of();
  step["gradient/a"].pop_back();
  EXPECT_THAT(parity_text({against_itself(step)}, false),
              HasSubstr("of another shape"));
}

TEST_F(Traces, RanksThatDoNotAgreeFailThoughRankZeroIsRight) {
  const auto comparison = compare(run("1 rank", step_of()),
                                  run("3 ranks", step_of(), {"aa", "aa", "ab"}), 1);
  EXPECT_EQ(comparison.worst().largest(), 0);
  EXPECT_FALSE(comparison.passes());
  const auto text = parity_text({comparison}, false);
  EXPECT_THAT(text, HasSubstr("after step 1 rank 2 has other parameters than rank 0"));
  EXPECT_THAT(text, Not(HasSubstr("hold the same bits")));
}

TEST_F(Traces, ThoseThatAreNotWholeAreRefusedByName) {
  const auto reference = run("1 rank", step_of());
  const auto other = run("2 ranks", step_of(), {"aa", "aa"});
  const auto file = other.trace / run::step_file(1);
  const auto whole = test::read_file(file);
  const auto refused = [&] {
    return test::error_text(Fault::io, [&] { compare(reference, other, 1); });
  };
  for (const auto& bytes : {std::string(), std::string("short"), whole.substr(0, 40),
                            whole.substr(0, whole.size() - 1), std::string(16, '\xff'),
                            std::string("\4\0\0\0\0\0\0\0[[[[", 12),
                            std::string("\2\0\0\0\0\0\0\0[]", 10)}) {
    test::write_file(file, bytes);
    if (bytes.ends_with("[]")) continue;  // an empty list of tensors: a difference
    EXPECT_THAT(refused(),
                HasSubstr("step_000001.safetensors is not a complete trace"));
  }
  std::filesystem::remove(file);
  EXPECT_THAT(refused(), HasSubstr("step_000001.safetensors"));
}

TEST_F(Traces, ALineOfHashesThatIsMissingOrTornIsRefused) {
  const auto reference = run("1 rank", step_of());
  const auto other = run("2 ranks", step_of(), {"aa", "aa"});
  for (const std::string text :
       {"", "{\"step\":0,\"hash\":\"00\"}\n", "{\"step\":0,\"hash\":\"00\"}\n{\"st"}) {
    test::write_file(other.trace / run::hash_file(1), text);
    EXPECT_THAT(test::error_text(Fault::io, [&] { compare(reference, other, 1); }),
                HasSubstr("hashes_rank_1.jsonl"));
  }
}

// Offsets that lead out of the file, or shapes that overflow, read nothing.
TEST_F(Traces, AHostileHeaderReadsNothing) {
  for (const std::string entry :
       {R"({"dtype":"F64","shape":[2],"data_offsets":[0,16]})",
        R"({"dtype":"F64","shape":[1],"data_offsets":[8,0]})",
        R"({"dtype":"F64","shape":[4611686018427387904,8],"data_offsets":[0,8]})",
        R"({"dtype":"F64","shape":[-1],"data_offsets":[0,8]})",
        R"({"dtype":"F64","shape":["x"],"data_offsets":[0,8]})",
        R"({"dtype":"F64","shape":[1]})", R"("x")"}) {
    const auto text = R"({"loss":)" + entry + "}";
    std::string bytes(8, '\0');
    bytes[0] = static_cast<char>(text.size());
    const auto path = folder_.path() / "hostile";
    test::write_file(path, bytes + text + "12345678");
    EXPECT_THAT(test::error_text(Fault::io, [&] { TensorFile::read(path); }),
                HasSubstr("is not a complete trace"))
        << entry;
  }
}

TEST_F(Traces, AreOneObjectAsJson) {
  ParityRequest request;
  request.injection = run::Injection{1, 1.001, ""};
  const auto json =
      nlohmann::json::parse(parity_json({against_itself(step_of(4e-3))}, request));
  EXPECT_EQ(json["verdict"], "fail");
  EXPECT_EQ(json["allowed"], 1e-8);
  EXPECT_EQ(json["inject"], "rank=1,scale=1.001");
  const auto& comparison = json["comparisons"][0];
  EXPECT_EQ(comparison["name"], "2 ranks");
  EXPECT_EQ(comparison["steps"][1]["gradient"]["where"], "a");
  EXPECT_EQ(comparison["steps"][1]["loss"]["value"], 2.5);
}

TEST(Injection, IsReadInAnyOrderAndWrittenBack) {
  const auto one = run::parse_injection("scale=0.5,parameter=conv1.weight,rank=2");
  EXPECT_EQ(one.rank, 2);
  EXPECT_EQ(one.scale, 0.5);
  EXPECT_EQ(to_text(one), "rank=2,scale=0.5,parameter=conv1.weight");
}

TEST(Injection, ThatMeansNothingIsRefused) {
  for (const std::string text :
       {"", "rank=1", "scale=2", "rank=1,scale=1", "rank=-1,scale=2", "rank=x,scale=2",
        "rank=1,scale=nan", "rank=1,scale=inf", "rank=1,scale=2,rank=2",
        "rank=1,scale=", "rank=1,scale=2,parameter=", "1,1.001", "rank=1,scale=2,"}) {
    EXPECT_THAT(test::error_text(Fault::config, [&] { run::parse_injection(text); }),
                HasSubstr("write rank=1,scale=1.001"))
        << text;
  }
}

hardware::Machine machine() {
  hardware::Machine machine;
  machine.physical_cores = machine.logical_cores = 8;
  return machine;
}

ParityPlan plan_of(const std::vector<int>& ranks,
                   const std::vector<config::Override>& knobs) {
  ParityRequest request;
  request.ranks = ranks;
  return parity_plan(request, config::defaults(knobs, {}), machine());
}

TEST(ParityPlan, MakesTheSizesTheSameWhereTheyCouldDiffer) {
  const auto plan = plan_of({1, 2, 3}, {});
  ASSERT_EQ(plan.sizes.size(), 3U);
  for (const auto& size : plan.sizes) {
    const auto& config = size.config.config;
    EXPECT_EQ(config.batch.global.value(), 132);    // 128 has no third
    EXPECT_EQ(config.parallel.threads.value(), 2);  // 8 cores / 3 ranks
    EXPECT_EQ(config.precision.mode, config::Precision::fp64);
    EXPECT_EQ(config.train.steps.value(), 5);
    EXPECT_EQ(config.run.name, str("ranks_", config.parallel.ranks.value()));
  }
}

TEST(ParityPlan, SaysWhereItDepartsFromTheRecipe) {
  const Rig rig;
  test::write_file(rig.path("recipe.yaml"),
                   "model: {dropout: 0.5}\nbatch: {per_rank: 10, micro: 5}\n"
                   "train: {epochs: 3}\nschedule: {warmup_steps: 90}\n");
  ParityRequest request;
  request.ranks = {2, 3};
  const auto plan =
      parity_plan(request, config::load(rig.path("recipe.yaml"), {}, {}), machine());
  std::map<std::string, std::string> made;
  for (const auto& one : plan.settings) made[one.key] = one.value + " " + one.because;
  EXPECT_THAT(made["model.dropout"], HasSubstr("0 not 0.5: PyTorch draws"));
  EXPECT_THAT(made["schedule.warmup_steps"], HasSubstr("5 not 90"));
  EXPECT_THAT(made["train.epochs"], HasSubstr("auto not 3"));
  for (const auto& size : plan.sizes) {
    EXPECT_EQ(size.config.config.batch.global.value(), 24);  // 2 * 10, and a sixth
    EXPECT_EQ(size.config.config.model.dropout, 0);
  }
}

TEST(ParityPlan, RefusesTypedKnobsThatWouldMakeSizesDiffer) {
  for (const config::Override& knob : {config::Override{"model.dropout", "0.1"},
                                       {"precision.mode", "fp32"},
                                       {"parallel.ranks", "2"},
                                       {"train.log_every", "2"},
                                       {"train.steps", "9"}}) {
    EXPECT_THAT(test::error_text(Fault::config,
                                 [&] {
                                   plan_of({1, 2}, {knob});
                                 }),
                ::testing::AllOf(HasSubstr("parity: " + knob.key), HasSubstr("leave")))
        << knob.key;
  }
}

TEST(ParityPlan, NamesTheSizeThatThePlannerRefuses) {
  EXPECT_THAT(
      test::error_text(Fault::config,
                       [] {
                         plan_of({1, 2, 3}, {{"batch.global", "64"}});
                       }),
      ::testing::AllOf(HasSubstr("parity: no run with 3 ranks: "), HasSubstr("64")));
  auto with_gpu = machine();
  with_gpu.gpus.resize(1);
  with_gpu.gpus[0].compute_major = 9;
  ParityRequest request;
  request.ranks = {1, 2};
  EXPECT_THAT(test::error_text(
                  Fault::hardware,
                  [&] { parity_plan(request, config::defaults({}, {}), with_gpu); }),
              ::testing::AllOf(HasSubstr("parity: no run with 2 ranks: "),
                               HasSubstr("2 > 1"), HasSubstr("parallel.device=cpu")));
}

TEST(Parity, AWrongRequestIsRefusedBeforeAnythingIsMade) {
  const Rig rig;
  for (const auto& [words, why] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{}, "RECIPE is missing"},
           {{"recipe.yaml", "--ranks", "1"}, "nothing to compare 1 with"},
           {{"recipe.yaml", "--ranks", "1,x"}, "'x' of '1,x'"},
           {{"recipe.yaml", "--ranks", "1,"}, "'' of '1,'"},
           {{"recipe.yaml", "--ranks", "0,1"}, "'0' of '0,1'"},
           {{"recipe.yaml", "--ranks", "2,1,2"}, "twice"},
           {{"recipe.yaml", "--steps", "0"}, "--steps"},
           {{"recipe.yaml", "--against", "jax"}, "is not one of pytorch"},
           {{"recipe.yaml", "--python", "python3"}, "--against pytorch"},
           {{"recipe.yaml", "--inject", "rank=1"}, "names no scale"},
           {{"recipe.yaml", "--inject", "rank=2,scale=2"}, "no rank 2 among 2"}}) {
    auto command = words;
    command.insert(command.begin(), "parity");
    auto process = rig.command(command);
    process.environment.emplace_back("TMPDIR", rig.path("temporary").string());
    const auto output = process::run(process, test::kPatience);
    EXPECT_EQ(output.end.exit_status, 2) << output.err;
    EXPECT_THAT(output.err, HasSubstr(why));
    EXPECT_THAT(output.out, IsEmpty());
    EXPECT_FALSE(std::filesystem::exists(rig.path("temporary")));
  }
}

TEST(Parity, APythonThatIsNotThereOrHasNoPytorchIsNamed) {
  const Rig rig;
  test::write_file(rig.path("python"),
                   "#!/bin/sh\necho \"No module named 'torch'\" >&2\nexit 1\n");
  std::filesystem::permissions(rig.path("python"), std::filesystem::perms(0755));
  for (const std::string python : {"./python", "/no/such/python"}) {
    const auto output =
        rig.run({"parity", "recipe.yaml", "--against", "pytorch", "--python", python});
    EXPECT_EQ(output.end.exit_status, 3) << output.err;
    EXPECT_THAT(output.err, HasSubstr("the Python '" + python + "'"));
    EXPECT_THAT(output.err, HasSubstr("--python PATH or in PYTHON_EXEC"));
    const auto why = python == "./python" ? "No module named" : "does not start";
    EXPECT_THAT(output.err, HasSubstr(why));
  }
  auto command = rig.command({"parity", "recipe.yaml", "--against", "pytorch"});
  command.environment.emplace_back("PYTHON_EXEC", rig.path("python").string());
  EXPECT_THAT(process::run(command, test::kPatience).err,
              HasSubstr(rig.path("python").string()));
}

TEST(Parity, AModelWithoutATwinInPytorchIsRefused) {
  config::Config config;
  config.model.name = "resnet50";
  EXPECT_THAT(test::error_text(Fault::config,
                               [&] { require_pytorch("/no/such/python", config); }),
              HasSubstr("no PyTorch version of model.name=resnet50"));
}

TEST(Parity, AKnobThatPytorchsSideDoesNotComputeIsRefusedByName) {
  config::Config config;
  config.model.name = "mlp";
  config.data.balanced_loss = true;
  EXPECT_THAT(test::error_text(Fault::config,
                               [&] { require_pytorch("/no/such/python", config); }),
              HasSubstr("data.balanced_loss is not computed there"));
}

// The run is named, its logs are kept, and the status is the run's own.
TEST(Parity, ARunThatFailsIsNoVerdict) {
  const Rig rig("echo the reason; exit 2\n");
  auto command = rig.command({"parity", "recipe.yaml"});
  command.environment.emplace_back("TMPDIR", rig.path("temporary").string());
  const auto output = process::run(command, test::kPatience);
  EXPECT_NE(output.end.exit_status, 0);
  EXPECT_NE(output.end.exit_status, kExitDiffers);
  EXPECT_THAT(output.err, HasSubstr("parity: 1 rank: "));
  EXPECT_THAT(output.err, ContainsRegex("its logs are in .*/ranks_1/logs"));
  EXPECT_THAT(output.out, IsEmpty());
  const auto kept = test::names_in(rig.path("temporary"));
  ASSERT_EQ(kept.size(), 1U);
  EXPECT_THAT(
      test::read_file(rig.path("temporary") / kept[0] / "ranks_1/logs/rank_0.log"),
      HasSubstr("the reason"));
}

TEST(Parity, KeepTakesNoDirectoryThatExists) {
  const Rig rig;
  const auto output = rig.run({"parity", "recipe.yaml", "--keep", "bin"});
  EXPECT_EQ(output.end.exit_status, 2);
  EXPECT_THAT(output.err, HasSubstr("bin exists already; name a new directory"));
}

}  // namespace
}  // namespace lockstep::cli
