// A model that is built without memory and filled later has the values of one that is
// built as usual.
#include "lockstep/models/deferred_init.h"

#include "lockstep/memory/memory_meter.h"
#include "lockstep/models/lora.h"
#include "lockstep/models/model.h"
#include "tests/support/support.h"

namespace lockstep::models {
namespace {

using test::error_text;
using ::testing::HasSubstr;

void seed() {
  auto generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(42);
}

std::shared_ptr<Model> build_by_name(const std::string& name) {
  if (name == "gpt") {
    config::ModelConfig config{.name = name};
    config.layers = 3;
    config.heads = 2;
    config.hidden = 32;
    return build(config, {{16}, 61});
  }
  return build({.name = name}, {{3, 32, 32}, 10});
}

// What `take` was given, by the tensors of the module.
using Values = std::vector<std::pair<torch::Tensor, torch::Tensor>>;

Values replayed(DeferredInit& init) {
  Values values;
  init.replay([&](const torch::Tensor& tensor, const torch::Tensor& value) {
    values.emplace_back(tensor, value.clone());
  });
  return values;
}

torch::Tensor find(const Values& values, const torch::Tensor& tensor) {
  for (const auto& [own, value] : values) {
    if (own.is_same(tensor)) return value;
  }
  return {};
}

class DeferredInitTest : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, DeferredInitTest,
                         ::testing::Values("mlp", "cnn", "resnet18", "gpt"));

TEST_P(DeferredInitTest, HasTheValuesOfAModelThatIsBuiltAsUsual) {
  const auto make = [&] {
    auto model = build_by_name(GetParam());
    if (std::string(GetParam()) == "gpt") add_lora(*model, {.rank = 2});
    return model;
  };
  seed();
  const auto whole = make();
  const auto next = torch::rand({1}).item<float>();
  seed();
  DeferredInit init;
  const auto hollow = init.build(make);
  const auto values = replayed(init);
  EXPECT_EQ(torch::rand({1}).item<float>(), next) << "as many numbers were drawn";
  const auto compare = [&](const auto& expected, const auto& tensors) {
    ASSERT_EQ(expected.size(), tensors.size());
    for (const auto& item : tensors) {
      const auto value = find(values, item.value());
      ASSERT_TRUE(value.defined()) << item.key();
      EXPECT_TRUE(torch::equal(value, expected[item.key()])) << item.key();
    }
  };
  compare(whole->named_parameters(), hollow->named_parameters());
  compare(whole->named_buffers(), hollow->named_buffers());
}

TEST(DeferredInit, TakesTheMemoryOfATensorAtATime) {
  for (const auto* name : {"resnet18", "gpt"}) {
    const auto plain = build_by_name(name);
    std::int64_t all = 0, largest = 0;
    for (const auto& parameter : plain->parameters()) {
      const auto bytes = static_cast<std::int64_t>(parameter.nbytes());
      all += bytes;
      largest = std::max(largest, bytes);
    }
    const memory::MemoryMeter meter(torch::kCPU);
    DeferredInit init;
    const auto hollow = init.build([&] { return build_by_name(name); });
    EXPECT_EQ(meter.peak_bytes(), 0);
    init.replay([](const torch::Tensor&, const torch::Tensor&) {});
    EXPECT_LE(meter.peak_bytes(), 2 * largest + (64 << 10));
    EXPECT_GT(meter.peak_bytes(), 0);
    EXPECT_GT(all, 2 * largest + (64 << 10)) << "the model is too small to tell";
  }
}

TEST(DeferredInit, NamesAnOperatorThatNeedsValues) {
  struct Net : torch::nn::Module {
    Net() { register_parameter("scaled", torch::randn({3, 4}) * 0.1); }
  };
  DeferredInit init;
  EXPECT_THAT(error_text(Fault::config,
                         [&] { init.build([] { return std::make_shared<Net>(); }); }),
              HasSubstr("aten::mul needs the values"));
}

TEST(DeferredInit, TensorsThatShareMemoryAndThatNobodySetsAreHandedOver) {
  struct Net : torch::nn::Module {
    Net() {
      const auto both = torch::empty({2, 3});
      torch::nn::init::normal_(both);
      first = register_buffer("first", both.select(0, 0));
      second = register_buffer("second", both.select(0, 1));
      unset = register_parameter("unset", torch::empty({5}));
      none = register_parameter("none", torch::zeros({0, 2}));
    }
    torch::Tensor first, second, unset, none;
  };
  seed();
  const Net whole;
  seed();
  DeferredInit init;
  const auto net = init.build([] { return std::make_shared<Net>(); });
  const auto values = replayed(init);
  EXPECT_TRUE(torch::equal(find(values, net->first), whole.first));
  EXPECT_TRUE(torch::equal(find(values, net->second), whole.second));
  EXPECT_EQ(find(values, net->unset).numel(), 5);
  EXPECT_EQ(find(values, net->none).sizes(), whole.none.sizes());
}

// The float copies of 16-bit parameters are filled after the parameters.
TEST(DeferredInit, GivesTheSameValuesOnceMore) {
  struct Net : torch::nn::Module {
    explicit Net(const torch::Tensor& values) { register_buffer("given", values); }
    torch::nn::Linear drawn = register_module("drawn", torch::nn::Linear(4, 3));
    torch::Tensor filled = register_parameter("filled", torch::ones({2, 2}));
  };
  const auto given = torch::arange(6);
  DeferredInit init;
  const auto net = init.build([&] { return std::make_shared<Net>(given); });
  seed();
  const auto first = replayed(init);
  seed();
  const auto second = replayed(init);
  ASSERT_EQ(first.size(), 4U);
  ASSERT_EQ(second.size(), first.size());
  for (const auto& [tensor, value] : first) {
    EXPECT_TRUE(torch::equal(find(second, tensor), value)) << value;
  }
}

}  // namespace
}  // namespace lockstep::models
