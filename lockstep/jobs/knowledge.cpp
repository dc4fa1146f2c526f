#include "lockstep/jobs/knowledge.h"

#include <algorithm>
#include <cerrno>
#include <future>

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/process.h"
#include "lockstep/base/text.h"
#include "lockstep/config/print.h"
#include "lockstep/hardware/measured_store.h"
#include "lockstep/jobs/host_load.h"
#include "lockstep/jobs/state_directory.h"
#include "lockstep/jobs/worker.h"
#include "lockstep/planner/history.h"
#include "lockstep/planner/trials.h"
#include "lockstep/run/run_directory.h"

namespace lockstep::jobs {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kLargestFile = 64 << 20;
constexpr std::chrono::seconds kPatienceWithTheWorker{60};
constexpr std::chrono::seconds kSilence{3};

// A worker that was killed, by the kernel for instance, or by us because it took too
// long: it is not the recipe that was refused.
struct WorkerDied : Error {
  using Error::Error;
};

// A description depends on these knobs and on nothing else.
std::string knobs_of_model(const config::Loaded& wanted) {
  std::string text;
  for (const auto& key : config::keys()) {
    const bool counts =
        text::starts_with(key, "model.") || text::starts_with(key, "data.") ||
        text::starts_with(key, "augment.") || text::starts_with(key, "task.") ||
        text::starts_with(key, "lora.");
    const bool speed = key == "data.workers" || key == "data.prefetch" ||
                       key == "data.pin_memory" || key == "model.weights";
    if (counts && !speed) text += str(key, "=", config::get(wanted, key), "\n");
  }
  // The same words mean another folder in another place, and its files may change.
  std::error_code ignored;
  const auto folder = fs::absolute(wanted.config.data.dir, ignored);
  const auto time = fs::last_write_time(folder, ignored).time_since_epoch().count();
  return text + str(folder.string(), "|", time);
}

// A rebuilt worker may describe a model otherwise.
std::string stamp_of(const fs::path& worker) {
  std::error_code ignored;
  const auto library = worker.parent_path() / "liblockstep_worker.so";
  const auto time = fs::last_write_time(library, ignored).time_since_epoch().count();
  return str(worker.string(), "|", fs::file_size(library, ignored), "|", time);
}

fs::path cache_file(const config::Loaded& wanted, const fs::path& worker,
                    const Caller& caller) {
  const auto state = state_directory(caller);
  if (state.empty()) return {};
  const auto hash = hash_of(knobs_of_model(wanted), hash_of(stamp_of(worker)));
  return state / "models" / fmt::format("{:016x}.json", hash);
}

void keep(const fs::path& file, const std::string& text) {
  if (file.empty()) return;
  try {
    fs::create_directories(file.parent_path());
    files::write_atomically(file, text);
  } catch (const std::exception&) {
    // It is asked for again the next time.
  }
}

// Returns why the worker failed, without its name.
std::string complaint(const std::string& text) {
  constexpr std::string_view kPrefix = "lockstep_worker: error: ";
  const auto lines = text::split(text::trim(text), '\n');
  if (lines.empty()) return "";
  const auto& last = lines.back();
  return text::starts_with(last, kPrefix) ? last.substr(kPrefix.size()) : last;
}

// A file that is nowhere but in this process, and named to its children: one that is
// killed meanwhile leaves nothing behind.
class UnnamedFile {
 public:
  explicit UnnamedFile(const std::string& text)
      : file_(::memfd_create("config.yaml", MFD_CLOEXEC)) {
    if (!file_) files::fail("make", "an unnamed file", errno);
    files::write_all(file_.get(), text, "an unnamed file");
  }
  std::string path() const { return str("/proc/", ::getpid(), "/fd/", file_.get()); }

 private:
  files::Descriptor file_;
};

// Says so if it takes long.
process::Output run_worker(const process::ProcessOptions& command,
                           const config::MonitorConfig& monitor, const Caller& caller) {
  auto output = std::async(std::launch::async, [&] {
    return process::run(command, kPatienceWithTheWorker);
  });
  const bool late = output.wait_for(kSilence) == std::future_status::timeout;
  if (late && monitor.verbosity != config::Verbosity::quiet) {
    caller.say(
        str("measuring the model's memory and compute (lockstep_worker --describe, at "
            "most ",
            kPatienceWithTheWorker.count(), " s) ..."));
  }
  return output.get();
}

std::string ask(const fs::path& worker, const config::Loaded& wanted,
                const Caller& caller) {
  const UnnamedFile recipe(config::to_yaml(wanted, false));
  process::ProcessOptions command;
  command.arguments = {worker.string(), "--describe", recipe.path()};
  command.environment = {{"CUDA_VISIBLE_DEVICES", ""}, {"OMP_NUM_THREADS", "1"}};
  const auto& clock = Clock::system();
  const auto begin = clock.now();
  const auto output = run_worker(command, wanted.config.monitor, caller);
  if (output.end.ok()) return output.out;
  const auto why = complaint(output.err);
  const auto text = str("lockstep_worker --describe ended with ",
                        process::describe(output.end), why.empty() ? "" : ": ", why);
  if (output.end.signal == 0) throw Error(Fault::io, text);
  const bool too_long = clock.now() - begin >= kPatienceWithTheWorker;
  throw WorkerDied(
      Fault::hardware, text, "; ",
      too_long ? str("it took longer than ", kPatienceWithTheWorker.count(), " s")
               : "the kernel's OOM killer may have ended it (see dmesg)",
      ", try a smaller model or `plan --describe FILE`");
}

run::ModelDescription describe_model(const config::Loaded& wanted,
                                     const Caller& caller) {
  const auto worker = find_worker(caller);
  const auto cached = cache_file(wanted, worker, caller);
  std::error_code ignored;
  if (!cached.empty() && fs::exists(cached, ignored)) {
    try {
      return run::load_model(cached);
    } catch (const Error&) {
      // The file is damaged: the worker is asked again.
    }
  }
  const OtherLoad others;
  const auto text = ask(worker, wanted, caller);
  auto model = run::model_from_json(text, "the output of lockstep_worker --describe");
  const double share = others.share();
  if (is_of_busy_machine(model, share) &&
      wanted.config.monitor.verbosity != config::Verbosity::quiet) {
    caller.say(
        fmt::format("other processes took {:.0f} % of the cores while the model was "
                    "tried: steps may be faster than predicted; the next plan tries "
                    "again",
                    100 * share));
  }
  // Files may come, and the machine may be idle the next time.
  const bool lasts = model.assumed_data.empty() && !is_of_busy_machine(model, share);
  if (lasts) keep(cached, text);
  return model;
}

}  // namespace

bool is_of_busy_machine(const run::ModelDescription& model, double others_share) {
  return !model.trials.empty() && others_share > run::kBusyShare;
}

std::vector<std::string> set_variables(const Caller& caller) {
  std::vector<std::string> names;
  for (const auto& [name, value] : caller.environment) names.push_back(name);
  return names;
}

namespace {

planner::Correction correction_by_runs(const PredictedRun& run, const Caller& caller) {
  const auto& [model, config, machine] = run;
  const auto state = state_directory(caller);
  if (state.empty()) return {};
  try {
    const auto file = hardware::machine_directory(state, machine) / "predictions.json";
    const auto runs = planner::past_from_json(files::read(file, kLargestFile));
    return planner::estimate_correction(runs,
                                        planner::learnt_as(model, config, machine),
                                        planner::kind_of_memory(config, machine));
  } catch (const std::exception&) {
    return {};  // there was no run yet
  }
}

}  // namespace

planner::Correction correction_for(const PredictedRun& run, const Caller& caller) {
  auto correction = correction_by_runs(run, caller);
  if (correction.runs > 0) return correction;
  const auto& [model, config, machine] = run;
  const auto kind = planner::kind_of_memory(config, machine);
  const bool fp32 = config.precision.mode == config::Precision::automatic ||
                    config.precision.mode == config::Precision::fp32;
  if (kind == "cuda" || !fp32) return correction;
  correction.trials = planner::factors_of_trials(model, machine);
  if (kind == "cpu" && !correction.trials.empty()) {
    correction.memory_bytes = static_cast<double>(model.process_bytes);
  }
  return correction;
}

planner::Knowledge gather_knowledge(const config::Loaded& wanted,
                                    const hardware::Machine& machine,
                                    const Caller& caller) {
  planner::Knowledge knowledge{.set_variables = set_variables(caller)};
  try {
    knowledge.model = describe_model(wanted, caller);
    knowledge.correction =
        correction_for({*knowledge.model, wanted.config, machine}, caller);
  } catch (const WorkerDied& problem) {
    knowledge.no_model = str("the model is not known: ", problem.what());
    knowledge.worker_died = true;
  } catch (const std::exception& problem) {
    knowledge.no_model = str("the model is not known: ", problem.what());
  }
  return knowledge;
}

}  // namespace lockstep::jobs
