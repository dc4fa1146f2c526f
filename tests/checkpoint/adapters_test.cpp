// Adapters in PEFT's files, written and read by both.
#include "lockstep/checkpoint/adapters.h"

#include "lockstep/checkpoint/load.h"
#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/hf/peft.h"
#include "lockstep/models/lora.h"
#include "lockstep/models/model.h"
#include "tests/support/oracle.h"

namespace lockstep::checkpoint {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Path = std::filesystem::path;

constexpr const char* kHeads = "2";

std::shared_ptr<models::Model> adapted_gpt(const config::LoraConfig& lora) {
  torch::manual_seed(9);
  auto model = models::build({.name = "gpt", .hidden = 16, .layers = 2, .heads = 2},
                             {.input = {8}, .num_classes = 13});
  const torch::NoGradGuard no_grad;
  for (auto& parameter : model->parameters()) {
    parameter.add_(torch::randn_like(parameter), 0.1);
  }
  models::add_lora(*model, lora);
  for (const auto& item : model->named_parameters()) {
    if (models::is_lora(item.key())) item.value().normal_(0, 0.3);
  }
  return model;
}

// Writes the weights without adapters, tokens, and what the model makes of them.
void write_shown(const Path& file, models::Model& model) {
  const torch::NoGradGuard no_grad;
  const auto tokens = torch::arange(16).remainder(13).view({2, 8});
  NamedTensors tensors{{"tokens", tokens}, {"logits", model.forward(tokens)}};
  for (const auto& item : model.named_parameters()) {
    if (models::is_lora(item.key())) continue;
    tensors.emplace_back("weight." + item.key(), item.value().detach());
  }
  write_safetensors(file, tensors);
}

TEST(Adapters, PeftReadsOurs) {
  LOCKSTEP_NEEDS_ORACLE();
  const files::TemporaryDirectory folder;
  for (const char* targets : {"*.c_attn", "*.c_attn,*.mlp.c_proj"}) {
    const config::LoraConfig lora{.rank = 4, .alpha = 10, .targets = targets};
    const auto model = adapted_gpt(lora);
    write_shown(folder.path() / "shown.safetensors", *model);
    write_adapters(folder.path() / "ours", {*model, lora, "gpt2"});
    test::expect_oracle_agrees("peft_adapters.py",
                               {"read", (folder.path() / "shown.safetensors").string(),
                                kHeads, (folder.path() / "ours").string()});
  }
}

// What Python wrote, as the parameter of a module, which load_weights() fills.
struct ShownLogits : torch::nn::Module {
  ShownLogits() {
    logits = register_parameter("logits", torch::zeros({2, 8, 13}), false);
  }
  torch::Tensor logits;
};

TEST(Adapters, WeReadThoseOfPeft) {
  LOCKSTEP_NEEDS_ORACLE();
  const files::TemporaryDirectory folder;
  const config::LoraConfig lora{
      .rank = 3, .alpha = 12, .targets = "*.c_attn,*.mlp.c_proj"};
  const auto model = adapted_gpt(lora);
  write_shown(folder.path() / "shown.safetensors", *model);
  const auto theirs = folder.path() / "theirs", out = folder.path() / "out.safetensors";
  test::expect_oracle_agrees("peft_adapters.py",
                             {"write", (folder.path() / "shown.safetensors").string(),
                              kHeads, theirs.string(), out.string()});
  load_adapters(theirs, *model, lora);
  ShownLogits shown;
  load_weights(out, shown, {});
  const torch::NoGradGuard no_grad;
  const auto logits = model->forward(torch::arange(16).remainder(13).view({2, 8}));
  EXPECT_LT((logits - shown.logits).abs().max().item<double>(), 1e-4);
}

TEST(Adapters, ComeBackAsTheyWere) {
  const files::TemporaryDirectory folder;
  const config::LoraConfig lora{.rank = 4, .alpha = 10, .targets = "*.c_fc"};
  const auto model = adapted_gpt(lora);
  write_adapters(folder.path(), {*model, lora});
  const auto other = adapted_gpt(lora);
  const torch::NoGradGuard no_grad;
  for (const auto& item : other->named_parameters()) {
    if (models::is_lora(item.key())) item.value().zero_();
  }
  load_adapters(folder.path(), *other, lora);
  const auto before = model->named_parameters();
  for (const auto& item : other->named_parameters()) {
    EXPECT_TRUE(item.value().equal(before[item.key()])) << item.key();
  }
}

TEST(Adapters, ThoseThatDoNotFitAreNamed) {
  const files::TemporaryDirectory folder;
  const config::LoraConfig lora{.rank = 4, .alpha = 10, .targets = "*.c_fc"};
  const auto problem = [&](const config::LoraConfig& wanted) {
    return test::error_text(Fault::config, [&] {
      load_adapters(folder.path(), *adapted_gpt(wanted), wanted);
    });
  };
  EXPECT_THAT(problem(lora), HasSubstr("has no adapter_config.json"));
  write_adapters(folder.path(), {*adapted_gpt(lora), lora});
  auto other = lora;
  other.rank = 8;
  EXPECT_THAT(problem(other), HasSubstr("has r = 4; set lora.rank=4"));
  other = lora;
  other.alpha = 1;
  EXPECT_THAT(problem(other), HasSubstr("set lora.alpha=10"));
  other = lora;
  other.targets = "*.c_fc,*.c_attn";
  EXPECT_THAT(problem(other), HasSubstr("take its layer out of lora.targets"));
  other.targets = "h.0.mlp.c_fc";
  EXPECT_THAT(problem(other), HasSubstr("add its layer there"));
}

TEST(Adapters, KindsThatWeDoNotComputeAreRefused) {
  const auto problem = [](const std::string& json) {
    return test::error_text(Fault::config,
                            [&] { hf::adapter_from_json(json, "here"); });
  };
  EXPECT_THAT(problem("[]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(problem("{"), HasSubstr("not what PEFT writes"));
  EXPECT_THAT(problem(R"({"peft_type": "IA3"})"), HasSubstr("only \"LORA\""));
  EXPECT_THAT(problem(R"({"peft_type": "LORA", "r": 0, "lora_alpha": 1})"),
              HasSubstr("not a rank"));
  EXPECT_THAT(
      problem(R"({"peft_type": "LORA", "r": 2, "lora_alpha": 1, "use_dora": true})"),
      HasSubstr("use_dora is true"));
  const auto with = [](const std::string& members) {
    return R"({"peft_type": "LORA", "r": 2, "lora_alpha": 1, )" + members + "}";
  };
  for (const char* init : {"pissa", "pissa_niter_16", "olora", "corda", "loftq",
                           "lora_ga", "something new"}) {
    const auto name = str('"', init, '"');
    EXPECT_THAT(problem(with("\"init_lora_weights\": " + name)),
                AllOf(HasSubstr("init_lora_weights is " + name),
                      HasSubstr("merge_and_unload")));
  }
  for (const char* init : {"true", "false", "null", "\"gaussian\"", "\"eva\""}) {
    EXPECT_EQ(
        hf::adapter_from_json(with(str("\"init_lora_weights\": ", init)), "").rank, 2);
  }
  for (const char* member :
       {R"("use_rslora": true)", R"("rank_pattern": {"c_fc": 4})",
        R"("target_parameters": ["wte.weight"])", R"("use_qalora": true)",
        R"("modules_to_save": ["wte"])", R"("of_tomorrow": 1)"}) {
    EXPECT_THAT(problem(with(member)), HasSubstr("which is not supported")) << member;
  }
  EXPECT_THAT(
      problem(R"({"peft_type": "LORA", "r": 2, "lora_alpha": 1, "bias": "all"})"),
      HasSubstr("bias is"));
}

}  // namespace
}  // namespace lockstep::checkpoint
