#include "lockstep/cli/command.h"
#include "lockstep/config/load.h"
#include "tests/support/support.h"

namespace lockstep {
namespace {

using cli::Arguments;
using cli::Command;
using ::testing::HasSubstr;

Command sample_command() {
  return {
      .name = "sample",
      .summary = "A sample.",
      .usage = "lockstep sample FILE [MODE]",
      .operands = {{.name = "FILE"},
                   {.name = "MODE", .required = false, .choices = {"fast", "slow"}}},
      .options = {{.name = "--count", .shorthand = "-c", .value = "N"},
                  {.name = "--json"},
                  {.name = "--color", .value = "WHEN", .choices = {"never", "always"}},
                  {.name = "--from",
                   .value = "auto|PATH",
                   .choices = {"auto"},
                   .free_text = true}},
      .takes_overrides = true,
      .run = {}};
}

Arguments parse_sample(const std::vector<std::string>& words) {
  return cli::parse(sample_command(), words);
}

std::string refusal(const std::vector<std::string>& words) {
  return test::error_text(Fault::config, [&] { parse_sample(words); });
}

TEST(Arguments, OptionsMayStandAnywhereAndInBothForms) {
  const auto arguments =
      parse_sample({"--json", "a.yaml", "--count", "3", "--color=never", "fast"});
  EXPECT_TRUE(arguments.has("--json"));
  EXPECT_EQ(arguments.value("--count"), "3");
  EXPECT_EQ(arguments.value("--color"), "never");
  EXPECT_EQ(arguments.operand("FILE"), "a.yaml");
  EXPECT_EQ(arguments.operand("MODE"), "fast");
  EXPECT_FALSE(arguments.has("--from"));
  EXPECT_EQ(arguments.value("--from"), std::nullopt);
}

TEST(Arguments, TheShorthandIsTheSameOptionAndTheLastOneWins) {
  EXPECT_EQ(parse_sample({"x", "--count", "1", "-c", "2"}).value("--count"), "2");
}

TEST(Arguments, AllValuesOfAnOptionCanBeAskedFor) {
  const auto arguments = parse_sample({"x", "--count", "1", "-c", "2"});
  EXPECT_THAT(arguments.values("--count"), ::testing::ElementsAre("1", "2"));
  EXPECT_THAT(arguments.values("--from"), ::testing::IsEmpty());
}

TEST(Arguments, KnobsAreToldFromPaths) {
  const auto arguments =
      parse_sample({"./a=b.yaml", "optim.lr=3e-4", "run.name=a=b", "train.steps="});
  EXPECT_EQ(arguments.operand("FILE"), "./a=b.yaml");
  const auto knobs = arguments.overrides();
  ASSERT_EQ(knobs.size(), 3U);
  EXPECT_EQ(knobs[0].key, "optim.lr");
  EXPECT_EQ(knobs[0].value, "3e-4");
  EXPECT_EQ(knobs[1].value, "a=b");
  EXPECT_EQ(knobs[2].value, "");
}

TEST(Arguments, EverythingAfterTwoDashesIsAWord) {
  EXPECT_EQ(parse_sample({"--", "--json"}).operand("FILE"), "--json");
  EXPECT_EQ(parse_sample({"-"}).operand("FILE"), "-");
}

TEST(Arguments, UnderscoresAreDashes) {
  const Command command{.name = "sample",
                        .summary = "",
                        .usage = "",
                        .options = {{.name = "--run-dir", .value = "DIR"}},
                        .run = {}};
  EXPECT_EQ(cli::parse(command, {"--run_dir", "a_b"}).value("--run-dir"), "a_b");
  EXPECT_EQ(cli::parse(command, {"--run_dir=a_b"}).value("--run-dir"), "a_b");
}

TEST(Arguments, AProgramBeginsAtTheFirstWordThatIsNoOption) {
  const Command command{.name = "sample",
                        .summary = "",
                        .usage = "lockstep sample PROGRAM",
                        .operands = {{.name = "PROGRAM"}},
                        .options = {{.name = "--count", .value = "N"},
                                    {.name = "--fast"},
                                    {.name = "--old", .refusal = "is gone; use --new"}},
                        .takes_program = true,
                        .run = {}};
  using ::testing::ElementsAre;
  const auto arguments =
      cli::parse(command, {"--count", "3", "--fast", "ls", "--count", "4", "--"});
  EXPECT_EQ(arguments.value("--count"), "3");
  EXPECT_THAT(arguments.program(), ElementsAre("ls", "--count", "4", "--"));
  EXPECT_THAT(cli::parse(command, {"--count=1", "--", "-x"}).program(),
              ElementsAre("-x"));
  EXPECT_EQ(cli::own_words(command, {"--count", "--", "a"}), 2U);
  EXPECT_THAT(test::error_text(Fault::config, [&] { cli::parse(command, {"--fast"}); }),
              HasSubstr("PROGRAM is missing"));
  EXPECT_EQ(test::error_text(Fault::config,
                             [&] {
                               cli::parse(command, {"--old", "x", "ls"});
                             }),
            "--old is gone; use --new");
}

TEST(Arguments, AnUnknownOptionGetsASuggestion) {
  EXPECT_EQ(refusal({"x", "--cuont", "3"}),
            "unknown option '--cuont' of `lockstep sample`; did you mean '--count'?");
  EXPECT_THAT(refusal({"x", "--zzzzzzzz"}), HasSubstr("see `lockstep sample --help`"));
  EXPECT_THAT(refusal({"x", "-x"}), HasSubstr("unknown option '-x'"));
}

TEST(Arguments, AKnobWithDashesIsExplained) {
  EXPECT_THAT(refusal({"x", "--optim.lr=1"}),
              HasSubstr("a knob is set without the dashes: optim.lr=VALUE"));
}

TEST(Arguments, ValuesAreCheckedAgainstTheChoices) {
  EXPECT_EQ(refusal({"x", "--color", "nevr"}),
            "--color: 'nevr' is not one of never, always; did you mean 'never'?");
  EXPECT_THAT(refusal({"x", "quick"}),
              HasSubstr("MODE: 'quick' is not one of fast, slow"));
  EXPECT_EQ(parse_sample({"x", "--from", "some/where"}).value("--from"), "some/where");
}

TEST(Arguments, MissingAndSurplusWordsAreRefused) {
  EXPECT_EQ(refusal({}), "FILE is missing: lockstep sample FILE [MODE]");
  EXPECT_THAT(refusal({"x", "fast", "y"}), HasSubstr("unexpected 'y'"));
  EXPECT_EQ(refusal({"x", "--count"}), "--count needs a value: --count N");
  EXPECT_THAT(refusal({"x", "--json=1"}), HasSubstr("--json takes no value"));
}

TEST(Arguments, NumbersAreWholeAndLargeEnough) {
  EXPECT_EQ(parse_sample({"x", "-c", "4"}).number("--count", 1), 4);
  EXPECT_EQ(parse_sample({"x"}).number("--count", 1), std::nullopt);
  for (const auto* value : {"0", "-1", "x", "1.5", ""}) {
    EXPECT_THAT(
        test::error_text(Fault::config,
                         [&] {
                           parse_sample({"x", "-c", value}).number("--count", 1);
                         }),
        HasSubstr("is not a whole number of at least 1"))
        << value;
  }
}

}  // namespace
}  // namespace lockstep
