// fuzz_seeds FOLDER: FOLDER/<target>/seed of every fuzzer.
#include "tests/storage/support/small_checkpoint.h"

int main(int argc, char** argv) {
  using namespace lockstep;  // NOLINT: a program of one file
  if (argc != 2) return 2;
  const test::Path folder = argv[1];
  for (const auto* target : {"safetensors", "manifest", "pickle", "torch_file"}) {
    std::filesystem::create_directories(folder / target);
  }
  const files::TemporaryDirectory place;
  const auto checkpoint = test::save_small(storage::FileSystem::real(), place.path(),
                                           {.step = 1, .seed = 1, .loss = 0.5});
  const auto small = test::read_file(test::fixture("storage/fixtures/small.pt"));
  const auto begin = small.find("\x80\x02");
  test::write_file(folder / "safetensors/seed",
                   test::read_file(checkpoint / "rank_0.safetensors"));
  test::write_file(folder / "manifest/seed",
                   test::read_file(checkpoint / "manifest.json"));
  test::write_file(folder / "torch_file/seed", small);
  test::write_file(folder / "pickle/seed",
                   small.substr(begin, small.find("PK", begin) - begin));
  return 0;
}
