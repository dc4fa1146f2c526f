// Every recipe that we ship is valid.
#include "tests/config/recipe_file.h"

namespace lockstep::test {

TEST(Recipes, AllLoad) {
  const auto folder = source_root() / "recipes";
  const auto names = names_in(folder);
  EXPECT_THAT(names, ::testing::IsSupersetOf(
                         {"fashion_mnist.yaml", "fashion_mnist_quick.yaml"}));
  for (const auto& name : names) {
    const auto error = error_of([&] { config::load(folder / name, {}, {}); });
    EXPECT_FALSE(error) << error->what();
  }
}

TEST(Recipes, TheQuickOneIsQuick) {
  const auto recipe = source_root() / "recipes/fashion_mnist_quick.yaml";
  const auto config = config::load(recipe, {}, {}).config;
  const auto samples = config.train.steps.value() * config.batch.global.value();
  EXPECT_LE(samples, 2048) << "at most one pass over its samples";
}

}  // namespace lockstep::test
