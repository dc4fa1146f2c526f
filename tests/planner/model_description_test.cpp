// Descriptions of models: those that ship, and files of anybody's.
#include "lockstep/run/model_description.h"

#include <random>

#include "tests/planner/scenes.h"

using ::testing::HasSubstr;

namespace lockstep::test {
namespace {

std::string refused(const std::string& text) {
  return error_text(Fault::config, [&] { run::model_from_json(text, "x.json"); });
}

}  // namespace

TEST(ModelDescription, Gpt2HasTheKnownNumbersOfParameters) {
  const auto count = [](const std::string& name) {
    return planner::shipped_model(name).num_parameters();
  };
  EXPECT_EQ(count("gpt2-124m"), 124'439'808);
  EXPECT_EQ(count("gpt2-355m"), 354'823'168);
  EXPECT_EQ(count("gpt2-774m"), 774'030'080);
  EXPECT_EQ(count("gpt2-1.5b"), 1'557'611'200);
}

TEST(ModelDescription, ResNet50HasTheKnownParametersAndOperations) {
  const auto model = planner::shipped_model("resnet50");
  EXPECT_EQ(model.num_parameters(), 25'557'032);
  EXPECT_NEAR(model.forward_flops(), 2 * 4.09e9, 0.01 * 2 * 4.09e9)
      << "4.09 G products and sums, as is told of it everywhere";
}

TEST(ModelDescription, Gpt2ComputesTwoOperationsForEachWeightOfAProductAndToken) {
  const auto model = planner::shipped_model("gpt2-124m");
  constexpr double kTokens = 1024;
  // All weights but the positions; biases and norms are not products.
  const double weights = 124'439'808 - 1024 * 768 - 12 * 13 * 768 - 2 * 768;
  const double attention = 12 * 2 * kTokens * kTokens * 768;  // half of the scores
  EXPECT_DOUBLE_EQ(model.forward_flops(), 2 * weights * kTokens + attention);
}

TEST(ModelDescription, ReadsBackWhatItWrites) {
  for (const auto& name : planner::shipped_models()) {
    const auto text = run::to_json(planner::shipped_model(name));
    EXPECT_EQ(run::to_json(run::model_from_json(text, name)), text) << name;
  }
}

TEST(ModelDescription, HalfTheSequenceIsLessThanHalfTheAttention) {
  const auto whole = planner::shipped_model("gpt2-1.5b");
  const auto half = whole.with_half_sequence();
  EXPECT_EQ(half.sequence, 512);
  EXPECT_EQ(half.num_parameters(), whole.num_parameters());
  EXPECT_LT(half.forward_flops(), whole.forward_flops() / 2);
  EXPECT_GT(half.forward_flops(), whole.forward_flops() / 4);
}

TEST(ModelDescription, SaysWhatIsWrongAndWhere) {
  EXPECT_THAT(refused("{"), HasSubstr("x.json is not JSON"));
  EXPECT_THAT(refused("[]"), HasSubstr("x.json: [] is not an object"));
  EXPECT_THAT(refused(R"({"name": "a"})"), HasSubstr("units: there is none"));
  EXPECT_THAT(refused(R"({"unit": []})"), HasSubstr("did you mean 'units'?"));
  EXPECT_THAT(refused(R"({"units": [{"kept": 3}]})"),
              HasSubstr("x.json: units[0].kept: 3 is not an object"));
  EXPECT_THAT(
      refused(R"({"units": [{"num_parameters": -1}]})"),
      HasSubstr("units[0].num_parameters: -1 is not a number that makes sense"));
  EXPECT_THAT(refused(R"({"units": [{"num_parameters": 1.5}]})"), HasSubstr("1.5"));
  EXPECT_THAT(refused(R"({"units": [{"forward_flops": 1e300}]})"), HasSubstr("1e+300"));
  EXPECT_THAT(refused(R"({"format": 2, "units": []})"), HasSubstr("newer than 1"));
  EXPECT_THAT(
      refused(R"({"units": [{"count": 100000, "num_parameters": 1000000000000000}]})"),
      HasSubstr("make no sense"));
  // 2^16 x 2^48 is 0 in 64 bits.
  for (const auto* field : {"num_parameters", "buffer_bytes", "operators"}) {
    EXPECT_THAT(refused(str(R"({"units": [{"count": 65536, ")", field,
                            R"(": 281474976710656}]})")),
                HasSubstr("x.json: units: 1.84467e+19 "))
        << field;
  }
}

TEST(ModelDescription, NoDamageOfAFileEndsTheProgram) {
  const auto whole = run::to_json(planner::shipped_model("gpt2-124m"));
  std::mt19937 random(8);
  int read = 0;
  for (int i = 0; i < 2000; ++i) {
    auto text = whole.substr(0, i % 3 == 0 ? random() % whole.size() : whole.size());
    for (int k = 0; k < 1 + i % 2 && !text.empty(); ++k) {
      const auto any = static_cast<char>(random() % 256);
      text[random() % text.size()] = i % 3 == 1 ? '7' : any;
    }
    try {
      run::model_from_json(text, "x.json");
      ++read;
    } catch (const Error& error) {
      EXPECT_EQ(error.fault(), Fault::config);
    }
  }
  EXPECT_GT(read, 0) << "some damage only changes a name";
}

TEST(ModelDescription, AnUnknownNameIsRefusedWithThoseThereAre) {
  EXPECT_THAT(error_text(Fault::config, [] { planner::shipped_model("gpt2-125m"); }),
              HasSubstr("did you mean 'gpt2-124m'?"));
  EXPECT_THAT(error_text(Fault::config, [] { planner::shipped_machine("4xl5"); }),
              HasSubstr("did you mean '4xl4'?"));
}

TEST(ShippedMachines, AllCanBePlannedFor) {
  for (const auto& name : planner::shipped_machines()) {
    const auto plan = shipped_plan("gpt2-124m", name, {{"batch.global", "64"}});
    EXPECT_TRUE(plan.prediction) << name;
    EXPECT_GT(plan.prediction->samples_per_second, 0) << name;
  }
}

}  // namespace lockstep::test
