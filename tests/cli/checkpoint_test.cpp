// `lockstep checkpoint`: every action over small checkpoints.
#include <nlohmann/json.hpp>
#include <sys/resource.h>
#include <sys/stat.h>

#include "lockstep/run/run_directory.h"
#include "lockstep/storage/safetensors.h"
#include "tests/cli/rig.h"
#include "tests/storage/support/small_checkpoint.h"
#include "tests/support/oracle.h"

namespace lockstep {
namespace {

using nlohmann::json;
using test::lockstep_in_process;
using test::small_tensors;
using ::testing::AllOf;
using ::testing::HasSubstr;

class CheckpointCommand : public ::testing::Test {
 protected:
  using Path = std::filesystem::path;

  CheckpointCommand() {
    run::RunDirectory::create(parent_.path(), {.name = "run",
                                               .record = run::record_of_this_process(),
                                               .config_yaml = "",
                                               .plan_json = "{}"});
  }

  Path save(const test::SmallSave& save) {
    return test::save_small(storage::FileSystem::real(), checkpoints(), save);
  }

  // `lockstep checkpoint WORDS... --dir (the runs)`
  test::Outcome run(std::vector<std::string> words) {
    words.insert(words.begin(), "checkpoint");
    words.insert(words.end(), {"--dir", parent_.path().string()});
    return lockstep_in_process(words);
  }

  Path checkpoints() const { return parent_.path() / "run/checkpoints"; }
  Path path(const std::string& name) const { return parent_.path() / name; }

  test::MemoryDirectory parent_;
};

void flip_byte(const std::filesystem::path& path, std::size_t at) {
  auto content = test::read_file(path);
  content[at] ^= 1;
  test::write_file(path, content);
}

TEST_F(CheckpointCommand, ListsByRunByDirectoryAndAlone) {
  save({.step = 10, .seed = 1, .loss = 0.25});
  save({.step = 20, .seed = 2, .loss = 0.5});
  const auto by_run = run({"list", "run"});
  EXPECT_EQ(by_run.status, 0) << by_run.err;
  EXPECT_THAT(by_run.out, HasSubstr("2026-11-15 03:22:41"));
  EXPECT_THAT(by_run.out, HasSubstr("loss 0.25  not verified  best"));
  EXPECT_THAT(by_run.out, HasSubstr("loss 0.5   not verified  last"));
  EXPECT_EQ(run({"list"}).out, by_run.out);  // the newest run
  EXPECT_EQ(run({"list", checkpoints().string()}).out, by_run.out);
  EXPECT_EQ(run({"list", (parent_.path() / "run").string()}).out, by_run.out);
  const auto alone = run({"list", (checkpoints() / "step_20").string(), "--json"});
  const auto report = json::parse(alone.out);
  ASSERT_EQ(report["checkpoints"].size(), 1u);
  EXPECT_EQ(report["checkpoints"][0]["step"], 20);
  EXPECT_EQ(report["checkpoints"][0]["good"], nullptr);
}

TEST_F(CheckpointCommand, ListSaysGoodOfWhatWasReadAndHasNotChanged) {
  save({.step = 10, .seed = 1});
  const auto newest = save({.step = 20, .seed = 2});
  test::wait_for_the_clock_of_files();
  EXPECT_EQ(run({"verify", "run", "--step", "20"}).status, 0);
  const auto states = [&] {
    std::vector<std::string> list;
    const auto report = json::parse(run({"list", "--json"}).out);
    for (const auto& one : report["checkpoints"]) {
      list.push_back(one["state"]);
    }
    return list;
  };
  EXPECT_THAT(states(), ::testing::ElementsAre("not verified", "good"));
  EXPECT_THAT(run({"list"}).out, HasSubstr("good          last"));
  test::damage(newest / "rank_0.safetensors");
  EXPECT_THAT(states(), ::testing::ElementsAre("not verified", "not verified"));
  std::filesystem::resize_file(newest / "rank_0.safetensors", 3);
  EXPECT_THAT(states(), ::testing::ElementsAre("not verified", "damaged"));
}

TEST_F(CheckpointCommand, AStepThatWasCopiedIsAsBadAsAResumeFindsIt) {
  std::filesystem::copy(save({.step = 10}), checkpoints() / "step_30");
  const auto outcome = run({"verify"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.out, HasSubstr("step_30: it holds step 10; was it copied?"));
}

TEST_F(CheckpointCommand, PruneNamesWhatItCouldNotReadAndLeavesIt) {
  for (std::int64_t step : {10, 20, 30}) save({.step = step, .seed = 1});
  std::filesystem::remove(checkpoints() / "step_10/manifest.json");
  std::filesystem::create_symlink("/proc/self/mem",
                                  checkpoints() / "step_10/manifest.json");
  const auto outcome = run({"prune", "run", "--keep-last", "1", "--json"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(test::names_in(checkpoints()),
              ::testing::ElementsAre("last", "step_10", "step_30"));
  EXPECT_THAT(
      outcome.err,
      HasSubstr("could not be read; kept, and not counted by any --keep option: "));
  EXPECT_THAT(outcome.err, HasSubstr("Input/output error"));
  const auto report = json::parse(outcome.out);
  ASSERT_EQ(report["unreadable"].size(), 1u);
  EXPECT_THAT(report["unreadable"][0]["path"].get<std::string>(),
              ::testing::EndsWith("step_10"));
}

TEST_F(CheckpointCommand, PruneKeepsTheLastOneWhoseBytesAreGood) {
  for (std::int64_t step : {10, 20, 30}) save({.step = step, .seed = 1});
  test::damage(checkpoints() / "step_30/rank_1.safetensors");
  const auto outcome = run({"prune", "run", "--keep-last", "1"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(test::names_in(checkpoints()), ::testing::ElementsAre("last", "step_20"));
  EXPECT_THAT(outcome.err, HasSubstr("not counted by any --keep option: "));
  EXPECT_THAT(outcome.err, HasSubstr("step_30/rank_1.safetensors"));
}

TEST_F(CheckpointCommand, ExportTakesTheNewestOneWhoseBytesAreGood) {
  save({.step = 10, .seed = 1});
  test::damage(save({.step = 20, .seed = 2}) / "rank_1.safetensors");
  const auto file = path("model.safetensors").string();
  const auto outcome = run({"export", "run", "--to", file});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("skipped "));
  EXPECT_THAT(outcome.err, HasSubstr("step_20/rank_1.safetensors"));
  const auto alone = path("alone.safetensors").string();
  ASSERT_EQ(run({"export", "run", "--step", "10", "--to", alone}).status, 0);
  EXPECT_TRUE(test::read_file(file) == test::read_file(alone));
}

// Every command that writes where it is told to.
TEST_F(CheckpointCommand, OutputsDoNotTakeThePlaceOfDevicesAndPipes) {
  save({.step = 10});
  const auto weights = path("w.safetensors").string(), fifo = path("fifo").string();
  ASSERT_EQ(run({"export", "run", "--to", weights}).status, 0);
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const auto full = test::full_device(path("")).string();
  for (const auto& words : {std::vector<std::string>{"export", "run", "--to"},
                            {"export", "run", "--format", "pt", "--to"},
                            {"import", weights, "--to"}}) {
    for (const auto& target : {full, fifo, path("").string()}) {
      auto command = words;
      command.push_back(target);
      const auto outcome = run(command);
      EXPECT_EQ(outcome.status, 3) << target << outcome.err;
      EXPECT_EQ(outcome.out, "");
      EXPECT_THAT(outcome.err, HasSubstr("cannot write '" + target + "': "));
    }
  }
  EXPECT_TRUE(std::filesystem::is_character_file(full));
  EXPECT_TRUE(std::filesystem::is_fifo(fifo));
}

TEST_F(CheckpointCommand, WhatIsNotThereIsSaid) {
  EXPECT_THAT(run({"list"}).err, HasSubstr("no checkpoints in"));
  EXPECT_THAT(run({"inspect"}).err, HasSubstr("there is no valid checkpoint in"));
  save({.step = 10});
  EXPECT_THAT(run({"inspect", "rum"}).err, HasSubstr("did you mean 'run'?"));
  EXPECT_THAT(run({"inspect", "run", "--step", "11"}).err, HasSubstr("it has 10"));
  EXPECT_THAT(run({"inspect", "run", "--step", "best"}).err, HasSubstr("no metric"));
  EXPECT_THAT(run({"inspect", parent_.path().string()}).err,
              HasSubstr("neither a run"));
  EXPECT_THAT(run({"inspect", "run", "more"}).err, HasSubstr("one too many"));
  EXPECT_THAT(run({"diff", "run"}).err, HasSubstr("name two places"));
  EXPECT_THAT(run({"export", "run"}).err, HasSubstr("--to model.safetensors"));
  EXPECT_THAT(run({"import", "--to", "x"}).err, HasSubstr("name a file"));
  EXPECT_THAT(run({"prune", "run"}).err, HasSubstr("say what to keep"));
}

TEST_F(CheckpointCommand, InspectShowsTensorsAndState) {
  save({.step = 10, .seed = 1, .loss = 0.25});
  const auto outcome = run({"inspect", "run", "--step", "best"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("loss 0.25 (lower is better)"));
  EXPECT_THAT(outcome.out, HasSubstr("rank_0 [0:7], rank_1 [7:15]"));
  EXPECT_THAT(outcome.out, HasSubstr("(order [0, 2, 3, 1])"));
  EXPECT_THAT(outcome.out, HasSubstr("\"epoch\": 3"));
  const auto report = json::parse(run({"inspect", "run", "--json"}).out);
  EXPECT_EQ(report["tensors"].size(), small_tensors(1).size());
  EXPECT_EQ(report["state"]["scale"], 0.1);
  EXPECT_EQ(report["config"], "optim: {lr: 0.1}\n");
}

TEST_F(CheckpointCommand, VerifyReadsEveryByteAndNamesWhatIsDamaged) {
  save({.step = 10, .seed = 1});
  save({.step = 20, .seed = 2});
  EXPECT_EQ(run({"verify"}).status, 0);
  const auto file = checkpoints() / "step_20/rank_1.safetensors";
  flip_byte(file, std::filesystem::file_size(file) - 1);
  EXPECT_EQ(run({"list"}).status, 0);  // at a glance it looks good
  const auto outcome = run({"verify"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.out, HasSubstr("good  "));
  EXPECT_THAT(outcome.out, HasSubstr(file.string()));
  EXPECT_THAT(outcome.out, HasSubstr("rng.rank_0"));
  EXPECT_EQ(run({"verify", "--step", "10"}).status, 0);
  const auto report = json::parse(run({"verify", "--json"}).out);
  EXPECT_EQ(report["checkpoints"][0]["good"], true);
  EXPECT_EQ(report["checkpoints"][1]["good"], false);
}

TEST_F(CheckpointCommand, ADamagedManifestIsSkippedAndSaid) {
  save({.step = 10, .seed = 1});
  save({.step = 20, .seed = 2});
  flip_byte(checkpoints() / "step_20/manifest.json", 100);
  const auto outcome = run({"inspect", "--json"});
  EXPECT_EQ(json::parse(outcome.out)["step"], 10);
  EXPECT_THAT(outcome.err, HasSubstr("skipped"));
  EXPECT_THAT(outcome.err, HasSubstr("step_20/manifest.json"));
}

TEST_F(CheckpointCommand, DiffSaysWhichTensorsDifferAndByHowMuch) {
  const auto a = save({.step = 10, .seed = 1, .ranks = 1}).string();
  const auto same = save({.step = 20, .seed = 1, .ranks = 3}).string();
  const auto other = save({.step = 30, .seed = 3, .ranks = 2}).string();
  const auto equal = run({"diff", a, same});
  EXPECT_EQ(equal.status, 0) << equal.err;
  EXPECT_THAT(equal.out, HasSubstr("0 tensors differ, 5 were compared"));
  const auto outcome = run({"diff", a, other, "--json"});
  EXPECT_EQ(outcome.status, 8);
  const auto report = json::parse(outcome.out);
  EXPECT_EQ(report["same"], false);
  ASSERT_EQ(report["tensors"].size(), 4u);  // all but the empty one
  EXPECT_EQ(report["tensors"][0]["name"], "model.conv.weight");
  EXPECT_EQ(report["tensors"][0]["elements"], 24);
  EXPECT_EQ(report["tensors"][0]["absolute"], 2.0);
  EXPECT_DOUBLE_EQ(report["tensors"][0]["relative"], 2.0 / 24.0);
  EXPECT_THAT(run({"diff", a, other}).out,
              HasSubstr("model.conv.weight  F32           24"));
}

TEST_F(CheckpointCommand, ExportIsOneFileOfTheModelInRowMajorOrder) {
  save({.step = 10, .seed = 1, .ranks = 3});
  const auto file = path("model.safetensors");
  const auto outcome = run({"export", "run", "--to", file.string()});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const auto header = storage::read_safetensors_header(file);
  ASSERT_EQ(header.entries.size(), 3u);
  ASSERT_NE(header.find("conv.weight"), nullptr);
  EXPECT_EQ(header.find("conv.weight")->shape, (storage::Shape{2, 3, 2, 2}));
  const auto bytes = test::read_file(file);
  const auto* weight = header.find("fc.weight");
  EXPECT_EQ(bytes.substr(static_cast<std::size_t>(header.data_begin + weight->begin),
                         static_cast<std::size_t>(weight->end - weight->begin)),
            small_tensors(1)[1].bytes);
  EXPECT_THAT(run({"export", "run", "--to", file.string(), "--ema"}).err,
              HasSubstr("no averaged weights"));
}

TEST_F(CheckpointCommand, ExportTakesTheAverageWhereThereIsOne) {
  auto& files = storage::FileSystem::real();
  const auto partial = storage::begin_save(files, checkpoints(), 5);
  const storage::RankFile file("rank_0.safetensors",
                               {{"ema.w", "F32", {2}, {}, 0, 2},
                                {"model.mean", "F32", {2}, {}, 0, 2},
                                {"model.w", "F32", {2}, {}, 0, 2}});
  const auto written = test::write_image(files, partial, file, test::numbers(6, 1));
  storage::publish(files, checkpoints(), {{.step = 5}, {written}});
  const auto out = path("x.safetensors");
  EXPECT_EQ(run({"export", "run", "--to", out.string(), "--ema"}).status, 0);
  const auto bytes = test::read_file(out);
  EXPECT_EQ(bytes.substr(bytes.size() - 16),
            test::numbers(2, 3) + test::numbers(2, 1));  // mean, then w's average
}

TEST_F(CheckpointCommand, ExportAndDiffNeedMuchLessMemoryThanTheModel) {
  constexpr std::int64_t kBytes = 96 << 20;
  auto& files = storage::FileSystem::real();
  const auto partial = storage::begin_save(files, checkpoints(), 5);
  {
    const storage::RankFile file("rank_0.safetensors",
                                 {{"model.w", "U8", {kBytes}, {}, 0, kBytes}});
    const auto written =
        test::write_image(files, partial, file, std::string(kBytes, 'x'));
    storage::publish(files, checkpoints(), {{.step = 5}, {written}});
  }
  const auto memory_kb = [] {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
  };
  const auto child = test::in_child([&] {
    const auto before = memory_kb();
    const auto out = path("model.safetensors").string();
    const auto place = (checkpoints() / "step_5").string();
    if (run({"export", "run", "--to", out}).status != 0) return 1;
    if (run({"diff", place, place}).status != 0) return 2;
    return memory_kb() - before < 48 << 10 ? 0 : 3;  // half of the model
  });
  EXPECT_EQ(child, 0);
}

TEST_F(CheckpointCommand, ExportForHuggingFaceHasAConfig) {
  save({.step = 10, .seed = 1});
  const auto folder = path("exported");
  const auto outcome =
      run({"export", "run", "--format", "hf", "--to", folder.string()});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const auto config = json::parse(test::read_file(folder / "config.json"));
  EXPECT_THAT(outcome.err, HasSubstr("transformers has no counterpart of model.name="
                                     "cnn and cannot load this directory"));
  EXPECT_EQ(config["name"], "cnn");
  EXPECT_EQ(config["model_type"], "lockstep");
  EXPECT_THAT(test::names_in(folder),
              ::testing::ElementsAre("config.json", "model.safetensors"));
  EXPECT_THAT(run({"export", "run", "--format", "hf", "--to", folder.string()}).err,
              HasSubstr("exists"));
}

TEST_F(CheckpointCommand, PythonReadsTheExportToTheBit) {
  LOCKSTEP_NEEDS_ORACLE();
  save({.step = 10, .seed = 1, .ranks = 3});
  const auto file = path("model.safetensors");
  ASSERT_EQ(run({"export", "run", "--to", file.string()}).status, 0);
  test::expect_oracle_agrees("checkpoint_export.py", {file.string()});
  const auto pt = path("model.pt");
  ASSERT_EQ(run({"export", "run", "--format", "pt", "--to", pt.string()}).status, 0);
  test::expect_oracle_agrees("checkpoint_export.py", {pt.string()});
}

TEST_F(CheckpointCommand, AnExportedPtFileIsImportedToTheBit) {
  save({.step = 10, .seed = 1, .ranks = 2});
  const auto pt = path("model.pt").string();
  const auto direct = path("direct.safetensors"), round = path("round.safetensors");
  ASSERT_EQ(run({"export", "run", "--format", "pt", "--to", pt}).status, 0);
  ASSERT_EQ(run({"export", "run", "--to", direct.string()}).status, 0);
  const auto imported = run({"import", pt, "--to", round.string()});
  ASSERT_EQ(imported.status, 0) << imported.err;
  EXPECT_TRUE(test::read_file(direct) == test::read_file(round));
}

TEST_F(CheckpointCommand, ImportMakesSafetensorsOfAStateDictAndOfAnotherFile) {
  const auto pt = test::fixture("storage/fixtures/small.pt").string();
  const auto first = path("first.safetensors").string();
  const auto outcome = run({"import", pt, "--to", first});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("2 tensors, 40 B"));
  const auto header = storage::read_safetensors_header(first);
  EXPECT_EQ(header.find("a.weight")->shape, (storage::Shape{3, 2}));
  const auto bytes = test::read_file(first);
  const float transposed[] = {0, 3, 1, 4, 2, 5};
  EXPECT_EQ(bytes.substr(bytes.size() - 24),
            std::string(reinterpret_cast<const char*>(transposed), sizeof transposed));
  const auto second = path("second.safetensors").string();
  EXPECT_EQ(run({"import", first, "--to", second}).status, 0);
  EXPECT_EQ(test::read_file(second), bytes);
  EXPECT_THAT(run({"import", first, "--to", second, "--strip", "a."}).err,
              HasSubstr("'b' does not begin with it"));
}

TEST_F(CheckpointCommand, WhatToWriteIsCheckedFirst) {
  const auto checkpoint = save({.step = 10}).string();
  for (const std::string action : {"export", "import"}) {
    const auto empty = run({action, checkpoint, "--to", ""});
    EXPECT_EQ(empty.status, 2);
    EXPECT_THAT(empty.err, HasSubstr("checkpoint " + action + ": say what to write"));
    const auto file = path("nodir/x").string();
    const auto nowhere = run({action, checkpoint, "--to", file});
    EXPECT_EQ(nowhere.status, 3);
    EXPECT_THAT(nowhere.err,
                HasSubstr("'" + path("nodir").string() +
                          "' is not a directory; create it first (mkdir -p)"));
  }
}

TEST_F(CheckpointCommand, WhereAllAreDamagedEachIsNamedWithItsReason) {
  test::damage(save({.step = 10}) / "rank_0.safetensors");
  std::filesystem::remove(save({.step = 20}) / "manifest.json");
  const auto outcome = run({"export", "run", "--to", path("x").string()});
  EXPECT_EQ(outcome.status, 3);
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr("checkpoint: none of the 2 in '"),
                    HasSubstr("\n  step_20: "), HasSubstr("it has no manifest.json"),
                    HasSubstr("\n  step_10: "), HasSubstr("are not what was written"),
                    HasSubstr("\nput back a copy of one, ")));
  EXPECT_FALSE(std::filesystem::exists(path("x")));
}

TEST_F(CheckpointCommand, ImportRefusesWhatIsNeither) {
  const auto target = path("x.safetensors").string();
  test::write_file(path("text"), "no tensors here, whatever the name says");
  EXPECT_THAT(run({"import", path("text").string(), "--to", target}).err,
              HasSubstr("not a complete safetensors file"));
  test::write_file(path("old.pt"), "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j");
  EXPECT_THAT(run({"import", path("old.pt").string(), "--to", target}).err,
              HasSubstr("torch.save() it again"));
  EXPECT_THAT(run({"import", path("none").string(), "--to", target}).err,
              HasSubstr("No such file"));
  EXPECT_FALSE(std::filesystem::exists(target));
}

TEST_F(CheckpointCommand, PruneKeepsWhatItIsToldAndShowsItFirst) {
  for (std::int64_t step : {10, 20, 30, 40}) {
    save({.step = step, .seed = 1, .loss = static_cast<double>(step)});
  }
  const auto dry =
      run({"prune", "run", "--keep-last", "1", "--keep-best", "1", "--dry-run"});
  EXPECT_THAT(dry.out, HasSubstr("would remove"));
  EXPECT_THAT(dry.out, HasSubstr("2 kept, 2 would go"));
  EXPECT_EQ(storage::list_steps(checkpoints()).size(), 4u);
  const auto report = json::parse(
      run({"prune", "run", "--keep-last", "1", "--keep-best", "1", "--json"}).out);
  EXPECT_EQ(report["removed"].size(), 2u);
  EXPECT_THAT(test::names_in(checkpoints()),
              ::testing::ElementsAre("best", "last", "step_10", "step_40"));
  EXPECT_EQ(run({"prune", "run", "--keep-every", "40"}).status, 0);
  EXPECT_THAT(test::names_in(checkpoints()),
              ::testing::ElementsAre("best", "last", "step_40"));
}

}  // namespace
}  // namespace lockstep
