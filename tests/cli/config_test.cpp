// `lockstep config show` of one knob, and names that other tools have.
#include "tests/cli/rig.h"

using ::testing::HasSubstr;
using ::testing::Not;

namespace lockstep::test {

TEST(ConfigCommand, ExplainsOneKnob) {
  const auto outcome = lockstep_in_process({"config", "show", "optim.lr"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("optim.lr = 0.001\n  Learning rate, before the "
                                     "schedule.\n"));
  EXPECT_THAT(outcome.out, HasSubstr("set by   default\n"));
  EXPECT_THAT(outcome.out, HasSubstr("range    above 0\n"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("optim.name")));
}

TEST(ConfigCommand, ExplainsAKnobOfARecipeAndASection) {
  const Rig rig;
  const auto set =
      rig.run({"config", "show", "recipe.yaml", "optim.lr", "optim.lr=0.5"});
  EXPECT_THAT(set.out, HasSubstr("optim.lr = 0.5\n"));
  EXPECT_THAT(set.out, HasSubstr("set by   override optim.lr=0.5\n"));
  EXPECT_THAT(rig.run({"config", "show", "recipe.yaml", "train.steps"}).out,
              HasSubstr("train.steps = 3\n"));
  const auto section = rig.run({"config", "show", "optim"});
  EXPECT_THAT(section.out, HasSubstr("optim.name = adamw\n"));
  EXPECT_THAT(section.out, HasSubstr("optim.lr = "));
}

TEST(ConfigCommand, SuggestsWhatWasMeant) {
  const auto wrong = lockstep_in_process({"config", "show", "optim.lrr"});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.err, HasSubstr("did you mean 'optim.lr'?"));
  EXPECT_THAT(lockstep_in_process({"config", "show", "learning_rate"}).err,
              HasSubstr("that is 'optim.lr' here"));
}

TEST(ConfigCommand, ARecipeThatShipsIsFoundByItsName) {
  const Rig rig;
  write_file(rig.path("recipes/resnet18_cifar10.yaml"), "train: {steps: 3}\n");
  const auto output = rig.run({"config", "check", "resnet18"});
  EXPECT_NE(output.end.exit_status, 0);
  EXPECT_THAT(output.err, HasSubstr("did you mean 'recipes/resnet18_cifar10.yaml'?"));
}

}  // namespace lockstep::test
