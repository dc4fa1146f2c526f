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

void write_seeds(const test::Path& folder, const std::string& target,
                 const std::vector<std::string>& seeds) {
  for (std::size_t i = 0; i < seeds.size(); ++i) {
    std::filesystem::create_directories(folder / target);
    test::write_file(folder / target / ("seed" + std::to_string(i)), seeds[i]);
  }
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

// Bodies as clients send them; the first byte is the route.
std::vector<std::string> request_bodies(const std::string& recipe) {
  const auto to = [](int route, const std::string& body) {
    return std::string(1, static_cast<char>(route)) + body;
  };
  return {
      to(0,
         "{\"name\": \"first\", \"recipe\": " + recipe +
             ", \"priority\": 3, \"max_retries\": 2, \"time_limit_seconds\": 60, "
             "\"needs\": [\"job-1\"], \"inputs\": {\"data.dir\": \"file-0\"}, "
             "\"resources\": {\"cores\": 1, \"gpus\": 0, \"memory_fraction\": 0.5}}"),
      to(0, R"({"recipe": "train: {steps: 3}\nmodel: {name: mlp}\n"})"),
      to(1, R"({"kind": "jsonl", "bytes": 31, "name": "a", "sha256": ")" +
                std::string(64, 'a') + "\"}"),
      to(2, R"({"user": "ada", "role": "user", "expires_seconds": 60})"),
      to(3, R"({"use_multi_gpu": true, "gpu_ids": [0, 1], "distributed_training": true,
              "backend": "nccl", "batch_size_per_gpu": 8, "mixed_precision": true,
              "gradient_accumulation_steps": 1, "sync_batch_norm": true,
              "memory_fraction": 0.9, "find_unused_parameters": false,
              "timeout_minutes": 30})"),
      to(4, R"({"model_name": "gpt2", "dataset_config": {"texts": ["a b", "c"],
              "max_length": 512}, "training_config": {"epochs": 3,
              "learning_rate": 5e-5, "batch_size_per_gpu": 8, "warmup_steps": 1},
              "training_type": "auto", "world_size": 2, "user_id": 123})"),
      to(5, R"({"action": "cleanup"})"),
      to(6, "{\"recipe\": " + recipe + "}"),
      to(7, R"({"resources": {"cores": 2, "gpu_ids": [0]}})"),
      to(8, R"({"name": "ada"})"),
  };
}

void write_server_seeds(const test::Path& folder) {
  const std::string recipe =
      R"({"train": {"steps": 3}, "model": {"name": "mlp"}, "data": {"name": "synthetic"}})";
  write_seeds(folder, "remote_recipe",
              {recipe,
               "model:\n  name: cnn\ndata:\n  name: synthetic\n  shape: [1, 8, 8]\n"
               "train:\n  steps: 3\n  log_every: 1\noptim: &o\n  lr: 1e-3\n",
               "data: {dir: /etc}\n", "<<: {run: {dir: /tmp}}\n"});
  write_seeds(folder, "request_target",
              {"/v1/jobs/job-1/metrics?from=3&to=4", "/v1/%2e%2e/%252e/a;b/%00",
               "/v1/runs/job-1/checkpoints/3/rank_0.safetensors"});
  write_seeds(folder, "http_body", request_bodies(recipe));
  write_seeds(folder, "uploads",
              {std::string("\0\0\4abcd\0\4\2ef", 12), std::string("\0\0\1a", 4),
               std::string("\0\0\2ab\0\1\2bc\0\0\1x", 14)});
  write_seeds(folder, "stored_json",
              {std::string("[0, 1]\0[\"job-1\"]\0[[\"data.dir\", \"x\"]]", 36),
               std::string("[]\0[]\0[]", 8)});
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  write_checkpoint_seeds(argv[1]);
  write_tokenizer_seeds(argv[1]);
  write_server_seeds(argv[1]);
  return 0;
}
