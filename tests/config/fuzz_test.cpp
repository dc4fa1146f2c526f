// Damaged recipes: loading either works or throws Error with a fault that a person can
// act on. Seeded, so that a failure comes again.
#include <random>

#include "lockstep/config/print.h"
#include "tests/config/recipe_file.h"

namespace lockstep::test {
namespace {

// A pick that is the same on every platform, which <random>'s distributions are not.
std::size_t pick(std::mt19937_64& random, std::size_t below) {
  return static_cast<std::size_t>(random() % below);
}

std::string damaged(std::string text, std::mt19937_64& random) {
  static const std::vector<std::string> kPieces = {
      "\n",   "\t",  "  ",   ":",      ": ",  "- ",    "[",           "]",  "{",
      "}",    ",",   "#",    "&a",     "*a",  "!!str", "|",           ">",  "'",
      "\"",   "\\",  "%",    "---",    "~",   "?",     "\xFF",        "\r", "null",
      "auto", "1e9", "-1",   "optim:", "lr",  "@",     "`",           "<<", "1e400",
      "0x1",  "nan", "\x01", "é",      "...", "=",     "\xEF\xBB\xBF"};
  const auto times = 1 + pick(random, 4);
  for (std::size_t i = 0; i < times; ++i) {
    const auto at = pick(random, text.size() + 1);
    const auto length = pick(random, 12);
    switch (pick(random, 5)) {
      case 0:
        text.insert(at, kPieces[pick(random, kPieces.size())]);
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.replace(at, length, kPieces[pick(random, kPieces.size())]);
        break;
      case 3:
        text.insert(at, text.substr(pick(random, text.size() + 1), length * 8));
        break;
      default:
        if (at < text.size()) text[at] = static_cast<char>(random());
    }
  }
  return text;
}

// Some file systems wait for the disk when a file is overwritten, but not for a new
// one.
void write_anew(const Path& path, const std::string& text) {
  std::filesystem::remove(path);
  write_file(path, text);
}

}  // namespace

TEST(Fuzz, DamagedRecipesLoadOrAreRefused) {
  std::mt19937_64 random(20240607);
  const auto whole = read_file(source_root() / "recipes/fashion_mnist.yaml");
  const auto dense = config::to_yaml(config::defaults({}, {}), false);
  const RecipeFile recipe("");
  int loaded = 0;
  int refused = 0;
  for (int round = 0; round < 2000; ++round) {
    const auto text = damaged(round % 2 == 0 ? whole : dense, random);
    write_anew(recipe.path(), text);
    try {
      const auto result = recipe.load();
      // What was taken can be written and read again.
      write_anew(recipe.path(), config::to_yaml(result, true));
      EXPECT_EQ(config::to_yaml(recipe.load(), false), config::to_yaml(result, false));
      ++loaded;
    } catch (const Error& error) {
      EXPECT_TRUE(error.fault() == Fault::config || error.fault() == Fault::io) << text;
      EXPECT_FALSE(std::string(error.what()).empty());
      ++refused;
    }
  }
  // Both happen often, or the damage is too large or too small to say anything.
  EXPECT_GT(loaded, 200);
  EXPECT_GT(refused, 200);
}

}  // namespace lockstep::test
