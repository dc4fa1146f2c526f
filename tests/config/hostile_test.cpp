// Files that are no recipes: each is refused with one clear message, quickly.
#include <filesystem>

#include <sys/stat.h>

#include "tests/config/recipe_file.h"

using ::testing::HasSubstr;
using ::testing::StartsWith;

namespace lockstep::test {
namespace {

std::string repeated(const std::string& part, std::size_t times) {
  std::string text;
  text.reserve(part.size() * times);
  for (std::size_t i = 0; i < times; ++i) text += part;
  return text;
}

}  // namespace

TEST(Hostile, EmptyRecipe) {
  for (const auto* content : {"", "\n\n", "# only a comment\n", "---\n", "~\n"}) {
    EXPECT_THAT(problem_of(content),
                StartsWith("x.yaml:1:1: the recipe is empty; write"));
  }
}

TEST(Hostile, Directory) {
  const files::TemporaryDirectory directory;
  EXPECT_THAT(error_text(Fault::io, [&] { config::load(directory.path(), {}, {}); }),
              HasSubstr("it is a directory"));
}

TEST(Hostile, PipeThatNobodyWrites) {
  const files::TemporaryDirectory directory;
  const auto pipe = directory.path() / "pipe.yaml";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_TRUE(error_of([&] { config::load(pipe, {}, {}); })) << "and no waiting for it";
}

TEST(Hostile, EndlessDevice) {
  EXPECT_THAT(error_text(Fault::io, [] { config::load("/dev/zero", {}, {}); }),
              HasSubstr("the limit"));
}

TEST(Hostile, HundredMegabytes) {
  const RecipeFile recipe("");
  std::filesystem::resize_file(recipe.path(), 100'000'000);  // sparse: costs no disk
  EXPECT_THAT(recipe.problem(Fault::io),
              HasSubstr("it has 95.4 MiB, the limit for such a "
                        "file is 1.0 MiB"));
}

TEST(Hostile, NotUtf8) {
  EXPECT_EQ(problem_of("run:\n  name: caf\xE9\n"),
            "x.yaml:2:12: not UTF-8 at byte 17; save the file as UTF-8 text");
  const std::string utf16("\xFF\xFEr\0u\0n\0", 8);
  EXPECT_THAT(problem_of(utf16), HasSubstr("x.yaml:1:1: not UTF-8"));
}

TEST(Hostile, ControlCharacters) {
  EXPECT_EQ(problem_of(std::string("optim:\n  lr: \0\n", 15)),
            "x.yaml:2:7: control character 0; this is not a text file");
  EXPECT_THAT(problem_of("optim:\n  lr: \x1B[31m\n"),
              HasSubstr("control character 27"));
}

TEST(Hostile, Bombs) {
  const auto text = problem_of(
      "a: &a [x, x, x]\nb: &b [*a, *a, *a]\nc: &c [*b, *b, *b]\nd: [*c, *c, *c]\n");
  EXPECT_EQ(
      text,
      "x.yaml:1:4: anchors and aliases (& and *) are not used in recipes; write the "
      "value out, or quote it");
  EXPECT_THAT(problem_of("optim: {lr: *nowhere}\n"), HasSubstr("anchors and aliases"));
  EXPECT_THAT(problem_of("optim: &o {lr: 1}\ntrain: {<<: *o}\n"),
              HasSubstr("anchors and aliases"));
}

TEST(Hostile, DeepNesting) {
  for (const auto* opening : {"[", "{", "[{", "{a: ", "- ", "? ", ": "}) {
    EXPECT_THAT(problem_of(repeated(opening, 100000)),
                HasSubstr("nested deeper than 16 levels"))
        << opening;
  }
  std::string blocks;
  for (std::size_t i = 0; i < 1000; ++i) blocks += std::string(i, ' ') + "a:\n";
  EXPECT_THAT(problem_of(blocks),
              HasSubstr("x.yaml:17:17: nested deeper than 16 levels"));
}

TEST(Hostile, TooManyValues) {
  EXPECT_THAT(problem_of("monitor: {sinks: [" + repeated("a,", 20000) + "]}"),
              HasSubstr("more than 10000 values"));
}

TEST(Hostile, SeveralDocuments) {
  EXPECT_EQ(problem_of("optim: {lr: 1}\n---\noptim: {lr: 2}\n"),
            "x.yaml:2:1: something else starts here; a recipe is one document");
}

TEST(Hostile, Tags) {
  EXPECT_THAT(problem_of("optim: !!python/object {lr: 1}\n"),
              HasSubstr("x.yaml:1:8: tags are not used in recipes"));
}

TEST(Hostile, TabsAsIndentation) {
  EXPECT_EQ(problem_of("optim:\n\tlr: 0.1\n"),
            "x.yaml:2:1: indented by a tab; YAML wants spaces");
}

TEST(Hostile, BrokenYaml) {
  EXPECT_EQ(problem_of("optim: {lr: 1\n"),
            "x.yaml:2:1: not YAML: end of map flow not found");
  EXPECT_EQ(problem_of("optim:\n  lr: 1\n   name: sgd\n"),
            "x.yaml:3:8: not YAML: illegal map value");
}

TEST(Hostile, OpenQuotes) {
  for (const auto* content :
       {"optim:\n  lr: \"1\n", "optim:\n  lr: '1\n", "optim:\n  lr: \"1\\\"\n"}) {
    EXPECT_EQ(problem_of(content), "x.yaml:2:7: this quote is not closed");
  }
  EXPECT_EQ(
      RecipeFile("run: {dir: \"a\\\"b\", name: 'it''s'}\n").load().config.run.name,
      "it's");
}

TEST(Hostile, WindowsLineEndsAndByteOrderMarkAreFine) {
  const RecipeFile recipe("\xEF\xBB\xBFoptim:\r\n  lr: 0.25\r\n  eps: 0.5\r\n");
  const auto loaded = recipe.load();
  EXPECT_EQ(loaded.config.optim.lr, 0.25);
  EXPECT_THAT(loaded.sources.at("optim.eps").where, HasSubstr(":3:8"));
}

}  // namespace lockstep::test
