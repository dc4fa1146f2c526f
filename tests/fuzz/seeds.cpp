// fuzz_seeds FOLDER: FOLDER/<target>/seed of every fuzzer.
#include "lockstep/tokenizer/chat_template.h"
#include "lockstep/tokenizer/files.h"
#include "tests/storage/support/small_checkpoint.h"
#include "tests/tokenizer/support/small.h"

namespace {

using namespace lockstep;  // NOLINT: a program of one file

void write_seed(const test::Path& folder, const std::string& target,
                const std::string& bytes) {
  std::filesystem::create_directories(folder / target);
  test::write_file(folder / target / "seed", bytes);
}

void write_checkpoint_seeds(const test::Path& folder) {
  const files::TemporaryDirectory place;
  const auto checkpoint = test::save_small(storage::FileSystem::real(), place.path(),
                                           {.step = 1, .seed = 1, .loss = 0.5});
  const auto small = test::read_file(test::fixture("storage/fixtures/small.pt"));
  const auto begin = small.find("\x80\x02");
  write_seed(folder, "safetensors", test::read_file(checkpoint / "rank_0.safetensors"));
  write_seed(folder, "manifest", test::read_file(checkpoint / "manifest.json"));
  write_seed(folder, "torch_file", small);
  write_seed(folder, "pickle", small.substr(begin, small.find("PK", begin) - begin));
}

void write_tokenizer_seeds(const test::Path& folder) {
  const auto vocabulary = test::small_tokenizer(270).vocabulary();
  write_seed(folder, "tokenizer_json", tokenizer::tokenizer_json(vocabulary));
  write_seed(folder, "vocab_and_merges",
             tokenizer::vocab_json(vocabulary) + std::string("\0", 1) +
                 tokenizer::merges_txt(vocabulary));
  write_seed(folder, "encode", test::kSmallText + "\xFF<|endoftext|>");
  write_seed(folder, "json_lines", "{\"text\": \"a\"}\n{\"text\": \"\\u00e9\"}\n");
  write_seed(folder, "chat_template", tokenizer::to_jinja("{role}: '{content}'\\n"));
  write_seed(folder, "tiktoken_file", test::all_bytes_tiktoken() + "dGg= 256\n");
}

void write_server_seeds(const test::Path& folder) {
  const std::string recipe =
      R"({"train": {"steps": 3}, "model": {"name": "mlp"}, "data": {"name": "synthetic"}})";
  write_seed(folder, "remote_recipe", recipe);
  write_seed(folder, "request_target", "/v1/jobs/job-1/metrics?from=3&to=4");
  write_seed(folder, "http_body",
             std::string(1, '\0') + "{\"recipe\": " + recipe + ", \"priority\": 3}");
  write_seed(folder, "uploads", std::string("\0\0\4abcd\0\4\2ef", 12));
  write_seed(folder, "stored_json",
             std::string("[0, 1]\0[\"job-1\"]\0[[\"data.dir\", \"x\"]]", 39));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  write_checkpoint_seeds(argv[1]);
  write_tokenizer_seeds(argv[1]);
  write_server_seeds(argv[1]);
  return 0;
}
