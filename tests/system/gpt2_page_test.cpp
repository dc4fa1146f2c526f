// The commands of docs/gpt2.md, as they stand there, with few steps and a short text.
#include <random>

#include <nlohmann/json.hpp>

#include "tests/support/oracle.h"
#include "tests/system/command.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// Sentences that are alike enough for a tokenizer to find words in them.
std::string sentences(int count, unsigned seed) {
  std::minstd_rand random(seed);
  const auto one_of = [&](std::initializer_list<const char*> words) {
    return std::string(words.begin()[random() % words.size()]);
  };
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += one_of({"And the king", "Then a servant", "The people", "An old man"});
    text += one_of({" went up to", " came out of", " spoke of", " remembered"});
    text += one_of({" the city", " the mountain", " his house", " the sea"});
    text += one_of({" and said unto them,", " in the morning.", " with great joy.\n"});
    text += std::to_string(random() % 100) + "\n";
  }
  return text;
}

class Gpt2Page : public ::testing::Test {
 protected:
  Gpt2Page() {
    const auto& path = folder_.path();
    for (const char* part : {"recipes", "scripts"}) {
      std::filesystem::create_symlink(test::source_root() / part, path / part);
    }
    std::filesystem::create_directories(path / "data" / "kjv");
    std::filesystem::create_directories(path / "examples");
    test::write_file(path / "data" / "kjv" / "train.txt", sentences(3000, 1));
    test::write_file(path / "data" / "kjv" / "val.txt", sentences(300, 2));
    std::string lines;
    for (int i = 0; i < 40; ++i) {
      lines += "{\"prompt\": \"Who built the ark?\", \"completion\": \" Noah.\"}\n";
    }
    test::write_file(path / "examples" / "train.jsonl", lines);
  }

  process::Output run(const std::string& command) {
    const auto bin = test::binary("lockstep").parent_path().string();
    return process::run(
        {.arguments = {"bash", "-c",
                       "set -o pipefail; PATH=" + bin + ":$PATH; " + command},
         .environment = {{"XDG_DATA_HOME", folder_.path().string()},
                         {"LOCKSTEP_TRAIN_STEPS", "3"},
                         {"LOCKSTEP_SCHEDULE_WARMUP_STEPS", "1"},
                         {"LOCKSTEP_BATCH_GLOBAL", "4"}},
         .directory = folder_.path()},
        std::chrono::minutes(2));
  }

  files::TemporaryDirectory folder_;
};

TEST_F(Gpt2Page, ItsCommandsWork) {
  std::istringstream lines(test::read_file(test::source_root() / "docs" / "gpt2.md"));
  std::string line;
  int count = 0;
  while (std::getline(lines, line)) {
    if (!line.starts_with("    $ ")) continue;
    const auto command = line.substr(6);
    const auto output = run(command);
    ASSERT_TRUE(output.end.ok()) << command << "\n" << output.out << output.err;
    ++count;
    if (command.find("generate") == std::string::npos) continue;
    const auto prompt = command.substr(command.find('\'') + 1);
    EXPECT_THAT(output.out, StartsWith(prompt.substr(0, prompt.find('\'')))) << command;
  }
  EXPECT_GE(count, 14);
  // The export is what the run itself computes.
  const std::string rest = " --prompt 'Who built' --max-tokens 12 --temperature 0";
  EXPECT_EQ(run("lockstep generate my-model" + rest).out,
            run("lockstep generate runs/lora" + rest).out);
}

// Greedy tokens of both; texts that end early would have fewer.
TEST_F(Gpt2Page, TransformersContinuesAnExportAsWeDo) {
  LOCKSTEP_NEEDS_ORACLE();
  const auto ok = [&](const std::string& command) {
    const auto output = run(command);
    EXPECT_TRUE(output.end.ok()) << command << "\n" << output.err;
    return output.out;
  };
  ok("lockstep tokenizer train data/kjv/train.txt --vocab-size 400 -o words");
  ok("LOCKSTEP_TRAIN_STEPS=40 lockstep train recipes/tiny_gpt.yaml --run-dir runs/a "
     "data.tokenizer=words model.hidden=48 model.layers=2 model.heads=3 "
     "model.pad_vocabulary=64 model.context=200 schedule.warmup_steps=5");
  ok("lockstep checkpoint export runs/a --format hf --to exported");
  const std::string prompt = "And the king";
  const auto line =
      nlohmann::json::parse(ok("lockstep generate runs/a --prompt '" + prompt +
                               "' --max-tokens 64 --temperature 0 --json"));
  EXPECT_EQ(line.at("tokens"), 64) << line;
  test::expect_oracle_agrees("hf_generate.py",
                             {(folder_.path() / "exported").string(), prompt, "64",
                              line.at("text").get<std::string>()});
}

TEST_F(Gpt2Page, WhatIsWrongIsOneClearLine) {
  ASSERT_TRUE(
      run("lockstep tokenizer train data/kjv/train.txt --vocab-size 300 -o words")
          .end.ok());
  const auto problem = [&](const std::string& command) {
    const auto output = run(command);
    EXPECT_EQ(output.end.shell_status(), 2) << command << "\n" << output.err;
    return output.err;
  };
  EXPECT_THAT(problem("lockstep generate nothing"), HasSubstr("nothing"));
  EXPECT_THAT(problem("lockstep generate words"), HasSubstr("words"));
  EXPECT_THAT(problem("lockstep generate --temperature hot"),
              HasSubstr("there is no run"));
  EXPECT_THAT(problem("lockstep train recipes/tiny_gpt.yaml data.tokenizer="),
              HasSubstr("lockstep tokenizer train"));
  ASSERT_TRUE(run("lockstep train recipes/tiny_gpt.yaml --run-dir runs/a "
                  "data.tokenizer=words model.hidden=32 model.layers=1 model.heads=2")
                  .end.ok());
  ASSERT_TRUE(
      run("lockstep tokenizer train data/kjv/train.txt --vocab-size 320 -o other")
          .end.ok());
  EXPECT_THAT(problem("lockstep generate runs/a --tokenizer other"),
              HasSubstr("has 320 tokens, the model was trained with 300"));
  EXPECT_THAT(problem("lockstep generate runs/a --stop ''"), HasSubstr("--stop"));
  EXPECT_THAT(problem("lockstep generate runs/a --device tpu"), HasSubstr("tpu"));
  EXPECT_THAT(problem("lockstep generate runs/a -n 99999999999"), HasSubstr("at most"));
  // A message that may not be ends no conversation.
  const auto talk =
      run("printf 'a <|endoftext|>\\nHello\\n' | "
          "lockstep chat runs/a --max-tokens 3 --temperature 0");
  EXPECT_TRUE(talk.end.ok()) << talk.err;
  EXPECT_THAT(talk.err, HasSubstr("<|endoftext|>"));
  EXPECT_THAT(problem("lockstep models make gpt3"), HasSubstr("cannot be made"));
}

}  // namespace
}  // namespace lockstep
