#include "lockstep/train/checkpoints.h"

#include <algorithm>

#include <fmt/format.h>

#include <torch/version.h>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/library_error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "lockstep/base/version.h"
#include "lockstep/checkpoint/load.h"
#include "lockstep/comm/broadcast_text.h"
#include "lockstep/run/events.h"
#include "lockstep/run/knobs.h"
#include "lockstep/run/proposed.h"
#include "lockstep/storage/publish.h"
#include "lockstep/storage/reader.h"

namespace lockstep::train {
namespace {

using Path = std::filesystem::path;

constexpr std::int64_t kLongestConfig = 1 << 20;

checkpoint::Saver::Options saver_options(const Checkpoints::Parts& parts) {
  const auto& config = parts.config;
  return {
      .checkpoints = parts.run.checkpoints(),
      .rank = parts.world.rank(),
      .ranks = parts.world.size(),
      .device = parts.world.data().device(),
      .keep = {
          .last = config.keep, .best = config.keep_best, .every = config.keep_every}};
}

checkpoint::LoadRules rules_of(const config::CheckpointConfig& config) {
  return {config.allow_missing, config.ignore};
}

// Returns whether a piece belongs to a rank, not to the model: it may be missing.
bool is_of_a_rank(const std::string& name) {
  return text::starts_with(name, "rank.");
}

// Returns the newest good checkpoint; `said` gets a line for each that is not good.
std::optional<storage::NewestValid> newest_in(const Path& folder, std::string& said) {
  auto found = storage::newest_valid(folder, storage::Depth::full);
  for (const auto& skipped : found.skipped) {
    if (skipped.fault == Fault::config) throw Error(Fault::config, skipped.reason);
    said += fmt::format("{} is left out: {}\n", skipped.path.string(), skipped.reason);
  }
  if (!found.path) return std::nullopt;
  return found;
}

// A path into this very run is ambiguous: a command that is given again names where it
// began, a user who wants to go back names the same. Returns a line about it, or "".
std::string where_it_stands(const Path& wanted, const Path& folder,
                            std::int64_t newest) {
  std::error_code ignored;
  const auto place = std::filesystem::weakly_canonical(wanted, ignored);
  const auto own = std::filesystem::weakly_canonical(folder, ignored);
  const auto last = std::filesystem::weakly_canonical(
      storage::step_directory(folder, newest), ignored);
  if (place.parent_path() != own || newest < 0 || place == last) return "";
  return fmt::format(
      "checkpoint.resume: {} belongs to this run, which has reached step {} since and "
      "resumes from there; to go back, name this path with another --run-dir\n",
      wanted.string(), newest);
}

// The relation of this run to the checkpoint that it resumes from.
constexpr std::string_view kForeign = "", kOwn = "own", kOver = "over";

// On rank 0, returns kOver if this run's own events say that it ended at that step.
std::string_view kinship(const Checkpoints::Parts& parts, const Path& from,
                         const RunState& at) {
  if (parts.world.rank() != 0) return kForeign;
  std::error_code ignored;
  const auto own = std::filesystem::weakly_canonical(parts.run.checkpoints(), ignored);
  const auto place = std::filesystem::weakly_canonical(from, ignored).parent_path();
  if (own != place) return kForeign;
  const auto done = run::last_done(parts.run.events());
  return done && done->over && done->steps == at.steps ? kOver : kOwn;
}

}  // namespace

Checkpoints::Checkpoints(const Parts& parts)
    : parts_(parts), saver_(saver_options(parts)) {
  if (parts.world.rank() == 0) {
    config_text_ = files::read(parts.run.config(), kLongestConfig);
  }
  find();
}

// Returns, on rank 0, the newest good checkpoint of this run, else of where the config
// says. A run that the launcher has restarted resumes from its own.
std::filesystem::path Checkpoints::look(std::string& said) const {
  const auto& wanted = parts_.config.resume;
  const auto& folder = parts_.run.checkpoints();
  const bool anew = wanted == "never" && parts_.restarts == 0;
  const auto own = anew ? std::nullopt : newest_in(folder, said);
  const auto step = own ? own->manifest.step : -1;
  if (wanted != "never" && wanted != "auto") {
    said += where_it_stands(wanted, folder, step);
  }
  if (own || wanted == "auto" || wanted == "never") return own ? *own->path : Path();
  return look_elsewhere(said);
}

// Returns the checkpoint at the path in checkpoint.resume.
std::filesystem::path Checkpoints::look_elsewhere(std::string& said) const {
  const Path path(parts_.config.resume);
  if (std::filesystem::exists(path / storage::kManifestName)) {
    storage::verify(path, storage::Depth::full);
    return std::filesystem::canonical(path);
  }
  const bool is_run = std::filesystem::is_directory(path / "checkpoints");
  const auto found = newest_in(is_run ? path / "checkpoints" : path, said);
  if (found) return *found->path;
  throw Error(Fault::config, "checkpoint.resume: '", path.string(),
              "' is not a checkpoint, and there is none in it",
              said.empty() ? "" : ": ", text::trim(said),
              "; `lockstep checkpoint list RUN` shows those of a run");
}

// Runs `text` on rank 0 and returns what it returned, or throws what it threw, on every
// rank.
std::string Checkpoints::from_first(const std::function<std::string()>& text) const {
  std::string result, fault, error;
  if (parts_.world.rank() == 0) {
    try {
      result = text();
    } catch (const Error& failed) {
      fault = std::to_string(static_cast<int>(failed.fault()));
      error = failed.what();
    } catch (const std::exception& failed) {
      fault = std::to_string(static_cast<int>(Fault::io));
      error = str("checkpoint.resume: ", without_frames(failed));
    }
  }
  auto& cpu = parts_.world.cpu();
  error = comm::broadcast_text(error, cpu);
  fault = comm::broadcast_text(fault, cpu);
  if (!error.empty()) throw Error(static_cast<Fault>(std::stoi(fault)), error);
  return comm::broadcast_text(result, cpu);
}

void Checkpoints::find() {
  std::string said;
  from_ = from_first([&] { return look(said).string(); });
  for (const auto& line : text::split(said, '\n')) {
    if (!line.empty()) log::warning("checkpoint", std::string(line));
  }
  auto& cpu = parts_.world.cpu();
  if (from_.empty()) return;
  const auto manifest = storage::verify(from_, storage::Depth::quick);
  resumed_ = run_state_from_json(manifest.state, from_.string());
  const auto kin =
      comm::broadcast_text(std::string(kinship(parts_, from_, *resumed_)), cpu);
  // A checkpoint of another run is not this run's last one, whatever its step.
  if (kin != kForeign) last_step_ = resumed_->steps;
  had_ended_ = kin == kOver;
  log::info("checkpoint", fmt::format("resuming from step {}: {}, saved {}",
                                      resumed_->steps, from_.string(), manifest.time));
  if (parts_.world.rank() == 0) say_what_differs(manifest);
}

void Checkpoints::say_what_differs(const storage::Manifest& manifest) const {
  const auto then = run::parse_knobs(manifest.config);
  std::vector<std::string> changed;
  for (const auto& [key, value] : run::parse_knobs(config_text_)) {
    const auto before = then.find(key);
    if (before == then.end()) {
      changed.push_back(str(key, " unset -> ", value));
    } else if (before->second != value) {
      changed.push_back(str(key, " ", before->second, " -> ", value));
    }
  }
  constexpr std::size_t kShown = 10;
  if (changed.empty()) return;
  const auto more = changed.size() > kShown ? ", ..." : "";
  changed.resize(std::min(changed.size(), kShown));
  log::warning("checkpoint", fmt::format("config changed since the checkpoint: {}{}",
                                         text::join(changed, ", "), more));
}

namespace {

// Returns the pieces without the sums since the last report if their number differs:
// another task saved them, and the next report starts over.
checkpoint::Pieces of_this_task(checkpoint::Pieces own,
                                const storage::Manifest& manifest) {
  bool differs = false;
  for (const auto& piece : own) {
    for (const auto& saved : manifest.tensors) {
      differs |= piece.name.ends_with(".tally") && saved.name == piece.name &&
                 saved.shape != piece.shape;
    }
  }
  if (!differs) return own;
  log::info("checkpoint",
            "saved by another task: metrics since its last log line are dropped");
  std::erase_if(own, [](const auto& piece) {
    return piece.name.ends_with(".tally") || piece.name.ends_with(".count");
  });
  return own;
}

}  // namespace

void Checkpoints::load(parallel::Strategy& strategy, const checkpoint::Pieces& own) {
  if (!resumed_) return;
  const storage::Reader reader(from_);
  auto manifest = reader.manifest();
  std::erase_if(manifest.tensors, [](const auto& t) { return is_of_a_rank(t.name); });
  const auto rules = rules_of(parts_.config);
  checkpoint::check(manifest, strategy.state().expected(), rules);
  checkpoint::load(reader, strategy.state().to_load(), rules);
  strategy.state().use_unused_steps(resumed_->unused_steps);
  const auto ranks = reader.manifest().world_size;
  if (ranks == parts_.world.size()) {
    return checkpoint::load(reader, of_this_task(own, reader.manifest()), rules);
  }
  log::info(
      "checkpoint",
      fmt::format("saved with {} ranks, resuming with {}: same samples, sums differ "
                  "in the last bits",
                  ranks, parts_.world.size()));
}

void Checkpoints::begin() {
  from_first([&] {
    run::accept_proposed(parts_.run);
    auto& files = storage::FileSystem::real();
    const auto folder = parts_.run.checkpoints();
    for (const auto& line : storage::clean_up(files, folder)) {
      log::info("checkpoint", line);
    }
    // The last step of this run's own checkpoints, not of one from another run.
    const auto step = last_step_;
    if (const auto aside = storage::set_aside(files, folder, step)) {
      log::warning("checkpoint",
                   fmt::format("checkpoints after step {} are in {} now",
                               std::max<std::int64_t>(0, step), aside->string()));
    }
    return std::string();
  });
}

bool Checkpoints::wants_last(std::int64_t steps, bool cut_short) const {
  const auto& config = parts_.config;
  const bool regular = config.every > 0 && steps % config.every == 0;
  return steps > 0 && (cut_short || regular || config.save_last) && last_step_ != steps;
}

bool Checkpoints::is_due(std::int64_t step) const {
  const auto every = parts_.config.every;
  return (asked_ || (every > 0 && step % every == 0)) && step != last_step_;
}

comm::Flags Checkpoints::flags() const {
  auto flags = saver_.flags();
  const auto interval = parts_.config.interval;
  const bool late = parts_.world.rank() == 0 && interval.count() > 0 &&
                    Clock::system().now() - last_time_ >= interval;
  wants_ = wants_ || parts_.stop.take_save();
  if (late || wants_) flags |= comm::kSave;
  return flags;
}

void Checkpoints::on_ballots(const std::vector<comm::Ballot>& ballots) {
  asked_ = (comm::Votes::any(ballots) & comm::kSave) != 0;
  if (const auto outcome = saver_.on_ballots(ballots)) conclude(*outcome);
}

void Checkpoints::conclude(const checkpoint::Saver::SaveOutcome& outcome) {
  const bool stops = parts_.config.on_failure == config::OnSaveFailure::stop;
  parts_.reporter.checkpoint({.step = outcome.step,
                              .saved = outcome.saved,
                              .text = outcome.text,
                              .goes_on = !stops,
                              .bytes = outcome.bytes,
                              .held_bytes = outcome.held_bytes,
                              .blocked_seconds = outcome.blocked_seconds,
                              .seconds = outcome.seconds});
  if (outcome.saved) {
    longest_ = std::max(longest_, outcome.work_seconds);
    last_ = outcome.text;
    return;
  }
  last_step_ = -1;
  if (!stops) return;
  throw Error(Fault::io, "checkpoint: no checkpoint of step ", outcome.step, ": ",
              outcome.text, " (checkpoint.on_failure is stop)");
}

void Checkpoints::save(parallel::Strategy& strategy, const Save& save) {
  if (saver_.is_busy() && parts_.config.on_busy == config::OnBusy::skip) {
    if (parts_.world.rank() == 0) {
      log::warning("checkpoint",
                   fmt::format("skipped at step {}: the previous one is still being "
                               "written (checkpoint.on_busy=skip)",
                               save.state.steps));
    }
    return;
  }
  finish();
  auto pieces = strategy.state().to_save();
  pieces.insert(pieces.end(), save.own.begin(), save.own.end());
  storage::Manifest head{.step = save.state.steps,
                         .time = iso_time(Clock::system().wall()),
                         .world_size = parts_.world.size(),
                         .metric = save.metric,
                         .state = to_json(save.state)};
  if (parts_.world.rank() == 0) {
    head.config = config_text_;
    head.versions = {{"libtorch", TORCH_VERSION}, {"lockstep", std::string(version())}};
  }
  saver_.begin(std::move(pieces), std::move(head));
  wants_ = false;
  last_step_ = save.state.steps;
  last_time_ = Clock::system().now();
}

void Checkpoints::make_way(std::int64_t step) {
  const bool waits = parts_.config.on_busy == config::OnBusy::wait;
  if (!waits || !is_due(step) || !saver_.is_busy()) return;
  parts_.reporter.beat(step - 1, run::Phase::saving);
  finish();
}

// Ranks go on exchanging ballots until the checkpoint is complete.
void Checkpoints::finish() {
  auto& votes = parts_.world.votes();
  while (saver_.is_busy()) {
    saver_.wait(std::chrono::milliseconds(20));
    votes.cast({.flags = saver_.flags()});
    if (const auto outcome = saver_.on_ballots(votes.count())) conclude(*outcome);
  }
}

bool Checkpoints::load_best(parallel::Strategy& strategy, std::int64_t step) {
  std::string path, problem =
                        "no checkpoint was evaluated (checkpoint.every and eval.every "
                        "never fall on the same step)";
  if (parts_.world.rank() == 0) {
    try {
      const auto best = storage::named(parts_.run.checkpoints(), storage::kBest);
      if (best) static_cast<void>(storage::verify(*best, storage::Depth::full));
      if (best) path = best->string();
    } catch (const std::exception& error) {
      problem = without_frames(error);
    }
  }
  path = comm::broadcast_text(path, parts_.world.cpu());
  if (path.empty()) {
    if (parts_.world.rank() != 0) return false;
    log::warning(
        "checkpoint",
        fmt::format("checkpoint.load_best: {}; keeping the last weights", problem));
    return false;
  }
  const storage::Reader reader{path};
  if (reader.manifest().step == step) return false;
  checkpoint::load(reader, strategy.state().to_load(), {});
  strategy.state().use_unused_steps(
      run_state_from_json(reader.manifest().state, path).unused_steps);
  log::info("checkpoint", fmt::format("the best weights are those of step {}, from {}",
                                      reader.manifest().step, path));
  return true;
}

}  // namespace lockstep::train
