#include "lockstep/jobs/over.h"

#include <algorithm>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/config/print.h"
#include "lockstep/storage/catalog.h"

namespace lockstep::jobs {
namespace {

namespace fs = std::filesystem;

// Returns true for knobs that say when a run ends. Only the worker, which has the data,
// knows whether new values make it longer.
bool ends_a_run(const std::string& key) {
  const bool speed =
      key == "data.workers" || key == "data.prefetch" || key == "data.pin_memory";
  return (text::starts_with(key, "data.") && !speed) ||
         text::starts_with(key, "early_stop.") || key == "train.steps" ||
         key == "train.epochs" || key == "train.limit_train_batches" ||
         key == "train.fast_dev_run" || key == "train.overfit_batches" ||
         key == "batch.global";
}

bool asks_for_the_same(const run::RunDirectory& run, const config::Loaded& now) {
  try {
    const auto before = config::load(run.config(), {}, {});
    const auto keys = config::keys();
    return std::none_of(keys.begin(), keys.end(), [&](const std::string& key) {
      return ends_a_run(key) && config::get(before, key) != config::get(now, key);
    });
  } catch (const Error&) {
    return false;  // of another version: the worker will see
  }
}

// Returns the run of that name, if there is one that is done.
std::optional<run::RunDirectory> done_run(const config::RunConfig& run) {
  if (run.name.empty()) return std::nullopt;
  try {
    auto directory = run::RunDirectory::open(fs::path(run.dir) / run.name);
    if (directory.read_record().state != run::RunStatus::done) return std::nullopt;
    return directory;
  } catch (const Error&) {
    return std::nullopt;  // none, or one whose user will see the error
  }
}

// Returns whether `resume` is where the run would resume from anyway: itself.
bool names_the_end_of(const run::RunDirectory& run, const std::string& resume) {
  std::error_code ignored;
  const auto place = fs::weakly_canonical(resume, ignored);
  const auto is = [&](const fs::path& own) {
    return place == fs::weakly_canonical(own, ignored);
  };
  const auto steps = storage::list_steps(run.checkpoints());
  return is(run.path()) || is(run.checkpoints()) ||
         (!steps.empty() && is(steps.back().path));
}

// Returns whether the run was started with the same checkpoint.resume.
bool began_with(const run::RunDirectory& run, const std::string& resume) {
  try {
    return config::load(run.config(), {}, {}).config.checkpoint.resume == resume;
  } catch (const Error&) {
    return false;  // of another version
  }
}

// A run that is over is repeated or extended; a user who wants something else would be
// surprised by what the worker does, or by the contents of the directory afterwards.
void refuse_what_is_over(const run::RunDirectory& run, std::int64_t steps,
                         const std::string& resume) {
  if (resume == "auto") return;
  if (resume == "never") {
    throw Error(Fault::config, "train: the run in '", run.path().string(),
                "' finished at step ", steps,
                " and does not start over (checkpoint.resume=never); name another "
                "--run-dir, or remove it");
  }
  if (names_the_end_of(run, resume) || began_with(run, resume)) return;
  throw Error(Fault::config, "checkpoint.resume: the run in '", run.path().string(),
              "' finished at step ", steps,
              " and resumes from its own last checkpoint only; to resume from '",
              resume, "', name it with another --run-dir");
}

}  // namespace

std::optional<OverRun> find_over(const config::Loaded& wanted) {
  const auto& config = wanted.config;
  const auto run = done_run(config.run);
  if (!run) return std::nullopt;
  const auto done = run::last_done(run->events());
  if (!done || !done->over) return std::nullopt;
  refuse_what_is_over(*run, done->steps, config.checkpoint.resume);
  const auto& steps = config.train.steps;
  const bool asks_for_less =
      !steps.is_auto() && steps.value() <= done->steps && done->reason == "done";
  if (asks_for_less || asks_for_the_same(*run, wanted)) return OverRun{*run, *done};
  if (!storage::list_steps(run->checkpoints()).empty()) return std::nullopt;
  throw Error(
      Fault::config, "train: the run in '", run->path().string(), "' finished at step ",
      done->steps,
      " and has no checkpoint to resume from (checkpoint.save_last=false); name "
      "another --run-dir to start over");
}

}  // namespace lockstep::jobs
