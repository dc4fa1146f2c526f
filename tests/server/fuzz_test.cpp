// The fuzz targets of tests/fuzz on inputs that are nearly right.
#include <random>

#include "tests/server/support/fuzz_targets.h"
#include "tests/service/rig.h"
#include "tests/support/damage.h"

namespace lockstep {
namespace {

const std::vector<std::string> kPieces{"{",         "}",       "[",
                                       "]",         ":",       ",",
                                       "\"",        "null",    "1e999",
                                       "-1",        "data",    "dir",
                                       "recipe",    "\\u0000", "..",
                                       "%2e",       "%00",     "/",
                                       "&a",        "*a",      "<<",
                                       "!!",        "\n  ",    "inputs",
                                       "file-0123", "texts",   std::string(1, '\0'),
                                       "\xff"};

template <typename Target>
int taken_of(const std::string& seed, int times, const Target& target) {
  std::mt19937_64 random(3);
  int taken = target(seed) ? 1 : 0;
  for (int i = 0; i < times; ++i) {
    taken += target(test::damaged(seed, kPieces, random)) ? 1 : 0;
  }
  return taken;
}

TEST(ServerFuzz, RecipesOfClients) {
  EXPECT_GT(taken_of(test::short_recipe(3), 2000, fuzz::remote_recipe), 1);
}

TEST(ServerFuzz, TargetsOfRequests) {
  EXPECT_GT(taken_of("/v1/jobs/job-1/metrics?from=3&to=4", 5000, fuzz::request_target),
            1);
}

TEST(ServerFuzz, PartsOfFiles) {
  EXPECT_GT(taken_of(std::string("\0\0\4abcd\0\4\2ef", 12), 100, fuzz::uploads), 1);
}

TEST(ServerFuzz, JsonOfTheDatabase) {
  const std::string columns("[0, 1]\0[\"job-1\"]\0[[\"data.dir\", \"x\"]]", 36);
  EXPECT_GT(taken_of(columns, 300, fuzz::stored_json), 1);
  // Found by libFuzzer: no int holds them.
  for (const std::string numbers : {"[5.5e31]", "[1e300, 0]", "[9999999999]"}) {
    EXPECT_FALSE(fuzz::stored_json(numbers + std::string("\0[]\0[]", 6))) << numbers;
  }
}

TEST(ServerFuzz, BodiesOfRequests) {
  const std::string job = "{\"recipe\": " + test::short_recipe(3) +
                          ", \"resources\": {\"cores\": 1}, \"priority\": 3}";
  taken_of(std::string(1, '\0') + job, 300, fuzz::http_body);
  taken_of("\1{\"kind\": \"txt\", \"bytes\": 3, \"sha256\": \"" + std::string(64, 'a') +
               "\", \"name\": \"x\"}",
           300, fuzz::http_body);
  taken_of("\3{\"batch_size_per_gpu\": 3, \"gpu_ids\": [0, 1]}", 300, fuzz::http_body);
  taken_of("\4{\"model_name\":\"gpt2\",\"dataset_config\":{\"texts\":[\"a\"]}}", 300,
           fuzz::http_body);
}

}  // namespace
}  // namespace lockstep
