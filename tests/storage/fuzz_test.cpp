// Damaged input of every reader: it works or is refused with Fault::io. Seeded, so that
// a failure comes again; tests/fuzz does the same without end.
#include <random>

#include "tests/storage/support/fuzz_targets.h"
#include "tests/storage/support/small_checkpoint.h"
#include "tests/support/damage.h"

namespace lockstep::test {
namespace {

const std::vector<std::string> kPieces = {"{",
                                          "}",
                                          "[",
                                          "]",
                                          ",",
                                          ":",
                                          "\"",
                                          "0",
                                          "-1",
                                          "1e9",
                                          "18446744073709551615",
                                          "null",
                                          "\"a\"",
                                          std::string("\0", 1),
                                          "\xFF\xFF\xFF\xFF",
                                          "F64",
                                          "shape",
                                          "(",
                                          "q",
                                          "R",
                                          "b",
                                          "\x87"};

// How many of `rounds` damaged ones were taken for good.
int taken(const std::string& seed, int rounds, bool (*target)(std::string_view)) {
  std::mt19937_64 random(20261115);
  int good = 0;
  for (int round = 0; round < rounds; ++round) {
    good += target(damaged(seed, kPieces, random)) ? 1 : 0;
  }
  EXPECT_TRUE(target(seed));  // undamaged
  EXPECT_LT(good, rounds);
  return good;
}

TEST(StorageFuzz, DamagedSafetensorsHeadersAreRefused) {
  std::vector<storage::SafetensorsEntry> entries = {
      {"b", "F32", {2, 3}}, {"a", "I64", {2}}, {"c", "U8", {0}}};
  std::sort(entries.begin(), entries.end(), storage::comes_before);
  storage::place(entries);
  taken(storage::header_text(entries) + std::string(40, 'x'), 5000, fuzz::safetensors);
}

TEST(StorageFuzz, DamagedManifestsAreRefused) {
  const MemoryDirectory folder;
  const auto place = save_small(storage::FileSystem::real(), folder.path(),
                                {.step = 1, .seed = 1, .loss = 0.5});
  taken(read_file(place / "manifest.json"), 3000, fuzz::manifest);
}

TEST(StorageFuzz, DamagedTorchFilesAreRefused) {
  taken(read_file(fixture("storage/fixtures/small.pt")), 3000, fuzz::torch_file);
}

TEST(StorageFuzz, DamagedPicklesAreRefused) {
  const auto file = read_file(fixture("storage/fixtures/small.pt"));
  const auto begin = file.find("\x80\x02");
  taken(file.substr(begin, file.find("PK", begin) - begin), 5000, fuzz::pickle);
}

}  // namespace
}  // namespace lockstep::test
