// What a recipe may say, and how it is told what is wrong with it.
#include "lockstep/config/load.h"

#include "tests/config/recipe_file.h"

using ::testing::HasSubstr;

namespace lockstep::test {

TEST(Load, TakesValuesFromARecipe) {
  const RecipeFile recipe("optim:\n  name: sgd\n  lr: 3e-4\ntrain: {steps: 1e3}\n");
  const auto loaded = recipe.load();
  EXPECT_EQ(loaded.config.optim.name, config::Optimizer::sgd);
  EXPECT_EQ(loaded.config.optim.lr, 3e-4);
  EXPECT_EQ(loaded.config.train.steps.value(), 1000);
  EXPECT_EQ(loaded.config.model.name, "cnn") << "left out: the default";
  EXPECT_EQ(loaded.recipe, recipe.path().string());
}

TEST(Load, RemembersWhereEachValueStands) {
  const RecipeFile recipe("optim:\n  name: sgd\n  lr: 3e-4\n");
  const auto sources = recipe.load().sources;
  EXPECT_EQ(sources.at("optim.lr").origin, config::Origin::recipe);
  EXPECT_EQ(sources.at("optim.lr").where, recipe.path().string() + ":3:7");
  EXPECT_EQ(sources.at("optim.eps").origin, config::Origin::standard);
  EXPECT_EQ(sources.size(), config::keys().size()) << "every key has a source";
}

TEST(Load, AcceptsJson) {
  const RecipeFile recipe(R"({"optim": {"lr": 1e-4, "nesterov": false},
    "monitor": {"sinks": ["console"]}, "run": {"dir": "a\/b"}})",
                          "x.json");
  const auto config = recipe.load().config;
  EXPECT_EQ(config.optim.lr, 1e-4);
  EXPECT_EQ(config.monitor.sinks, std::vector{config::Sink::console});
  EXPECT_EQ(config.run.dir, "a/b");
}

TEST(Load, AcceptsJsonIndentedByTabs) {
  const RecipeFile recipe(
      "{\n\t\"optim\": {\n\t\t\"lr\": 0.1,\n\t\t\"name\": \"sgd\"\n\t}\n}\n");
  EXPECT_EQ(recipe.load().config.optim.lr, 0.1);
}

TEST(Load, SuggestsTheSectionThatWasMeant) {
  EXPECT_EQ(problem_of("optin:\n  lr: 1\n"),
            "x.yaml:1:1: unknown section 'optin'; did you mean 'optim'?");
}

TEST(Load, SuggestsTheKeyThatWasMeant) {
  EXPECT_EQ(problem_of("train:\n  step: 5\n"),
            "x.yaml:2:3: unknown key 'train.step'; did you mean 'train.steps'?");
}

TEST(Load, FindsAKeyThatStandsInAnotherSection) {
  EXPECT_EQ(problem_of("train:\n  lr: 0.1\n"),
            "x.yaml:2:3: unknown key 'train.lr'; did you mean 'optim.lr'?");
  EXPECT_EQ(problem_of("train:\n  every: 5\n"),
            "x.yaml:2:3: unknown key 'train.every'; did you mean 'ema.every', "
            "'eval.every' or "
            "'checkpoint.every'?");
  EXPECT_EQ(problem_of("lr: 0.1\n"),
            "x.yaml:1:1: unknown section 'lr'; did you mean 'optim.lr'?");
}

TEST(Load, ListsTheKeysWhenNoneIsClose) {
  EXPECT_EQ(problem_of("run:\n  zebra: 5\n"),
            "x.yaml:2:3: unknown key 'run.zebra'; 'run' has dir, name, tags, seed");
}

TEST(Load, ExplainsThatSectionsNest) {
  EXPECT_EQ(problem_of("optim.lr: 0.1\n"),
            "x.yaml:1:1: unknown section 'optim.lr'; sections nest: write 'optim:' and "
            "below it 'lr:'");
}

TEST(Load, NamesBothLinesOfADuplicate) {
  EXPECT_EQ(problem_of("optim:\n  lr: 1\n  lr: 2\n"),
            "x.yaml:3:3: 'lr' appears twice: in line 2 and in line 3; remove one");
  EXPECT_EQ(problem_of("optim:\n  lr: 1\noptim:\n  eps: 2\n"),
            "x.yaml:3:1: 'optim' appears twice: in line 1 and in line 3; remove one");
}

TEST(Load, RefusesTheWrongKindOfNode) {
  EXPECT_EQ(problem_of("optim:\n  lr: [1]\n"),
            "x.yaml:2:7: optim.lr: is a list; write a number");
  EXPECT_EQ(problem_of("optim:\n  lr: {a: 1}\n"),
            "x.yaml:2:7: optim.lr: is a map; write a number");
  EXPECT_EQ(problem_of("monitor:\n  sinks: {console: 1}\n"),
            "x.yaml:2:10: monitor.sinks: is a map; write a list like [console, jsonl]");
  EXPECT_THAT(
      problem_of("optim: 3\n"),
      HasSubstr("x.yaml:1:1: optim: is a single value; a section has keys: name"));
  EXPECT_THAT(problem_of("- optim\n"), HasSubstr("x.yaml:1:1: the recipe is a list"));
  EXPECT_THAT(problem_of("hello\n"), HasSubstr("the recipe is a single value"));
  EXPECT_EQ(problem_of("? [a]\n: 1\n"), "x.yaml:1:3: a key is a name, not a list");
}

TEST(Load, RefusesAKeyWithoutAValue) {
  EXPECT_EQ(problem_of("optim:\n  lr:\n"),
            "x.yaml:2:3: optim.lr: has no value; write a number, or leave the key out");
  EXPECT_THAT(problem_of("run:\n  name: null\n"), HasSubstr("run.name: has no value"));
  EXPECT_THAT(problem_of("run:\n  name: ~\n"), HasSubstr("run.name: has no value"));
  EXPECT_THAT(problem_of("optim:\n"), HasSubstr("x.yaml:1:1: optim: is empty"));
}

TEST(Load, ReportsAllProblemsOfAFileTogether) {
  EXPECT_EQ(problem_of("optim:\n  lr: x\n  bets1: 0.5\nrum:\n  seed: 1\n"),
            "x.yaml:2:7: optim.lr: 'x' is not a number; write one like 0.001 or 1e-3\n"
            "x.yaml:3:3: unknown key 'optim.bets1'; did you mean 'optim.beta1'?\n"
            "x.yaml:4:1: unknown section 'rum'; did you mean 'run'?");
}

TEST(Load, StopsCountingProblemsAtTen) {
  std::string recipe = "optim:\n";
  for (int i = 0; i < 13; ++i) recipe += "  zebra" + std::to_string(i) + ": 1\n";
  const auto text = problem_of(recipe);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 10);
  EXPECT_THAT(text, HasSubstr("\nand 3 more"));
}

TEST(Load, NamesOfOtherToolsAreTranslated) {
  EXPECT_EQ(problem_of("optimizer: adam\n"),
            "x.yaml:1:1: unknown section 'optimizer'; that is 'optim.name' here");
  EXPECT_EQ(problem_of("learning_rate: 0.1\n"),
            "x.yaml:1:1: unknown section 'learning_rate'; that is 'optim.lr' here");
  EXPECT_EQ(problem_of("train:\n  batch_size: 64\n"),
            "x.yaml:2:3: unknown key 'train.batch_size'; that is 'batch.global' here");
  EXPECT_EQ(problem_of("epochs: 3\n"),
            "x.yaml:1:1: unknown section 'epochs'; did you mean 'train.epochs'?");
  EXPECT_EQ(problem_of("train:\n  gradient-accumulation-steps: 4\n"),
            "x.yaml:2:3: unknown key 'train.gradient-accumulation-steps'; that is "
            "'batch.accumulation' here");
  EXPECT_THAT(
      error_text(
          Fault::config,
          [] {
            config::defaults(std::vector<config::Override>{{"learning_rate", "1"}}, {});
          }),
      HasSubstr("that is 'optim.lr' here"));
}

// Every translation leads to a knob that there is.
TEST(Load, EveryNameOfAnotherToolIsTranslated) {
  for (const auto* name :
       {"max_grad_norm", "per_device_train_batch_size", "num_train_epochs", "max_steps",
        "lr_scheduler", "mixed_precision", "num_workers", "dataset",
        "gradient_checkpointing", "world_size", "zero_optimization", "output_dir",
        "save_steps", "eval_steps"}) {
    EXPECT_THAT(problem_of(std::string(name) + ": 1\n"), HasSubstr("; that is '"))
        << name;
  }
}

TEST(Load, MissingRecipeSuggestsItsNeighbour) {
  const RecipeFile recipe("optim: {lr: 1}\n", "fashion.yaml");
  const auto wrong = recipe.path().parent_path() / "fashon.yaml";
  EXPECT_EQ(error_text(Fault::io, [&] { config::load(wrong, {}, {}); }),
            wrong.string() + ": there is no such recipe; did you mean '" +
                recipe.path().string() + "'?");
  const auto nowhere = recipe.path().parent_path() / "no" / "where.yaml";
  EXPECT_EQ(error_text(Fault::io, [&] { config::load(nowhere, {}, {}); }),
            nowhere.string() + ": there is no such recipe");
  EXPECT_THAT(error_text(Fault::config, [] { config::load("", {}, {}); }),
              testing::StartsWith("the name of the recipe is empty; name a YAML"));
}

}  // namespace lockstep::test
