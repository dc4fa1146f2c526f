#include "lockstep/service/service.h"

#include <algorithm>

#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/base/text.h"
#include "lockstep/hardware/cpu_topology.h"
#include "lockstep/hf/model_folders.h"
#include "lockstep/jobs/settle_model.h"
#include "lockstep/jobs/state_directory.h"
#include "lockstep/service/detail/one_line.h"
#include "lockstep/service/secrets.h"
#include "lockstep/service/unix_users.h"

namespace lockstep::service {
namespace {

constexpr std::size_t kLongestJobName = 200;
constexpr int kMostRetries = 100;
constexpr int kHighestPriority = 100;

std::vector<int> cores_here() {
  std::vector<int> cores;
  for (const auto& cpu : hardware::cpu_topology().cpus) cores.push_back(cpu.number);
  return cores;
}

std::unique_ptr<Executor> executor_for(const config::QueueConfig& queue,
                                       const jobs::Caller& caller) {
  if (queue.executor == config::Executor::slurm) {
    return make_slurm_executor(queue, caller);
  }
  return make_local_executor(caller);
}

DispatcherOptions dispatcher_options(const ServiceOptions& options) {
  auto machine = options.machine;
  if (!machine) machine = [state = options.state] { return hardware::inspect(state); };
  return {.config = options.config,
          .jobs = made_private(options.state / "jobs"),
          .removed = made_private(options.state / "removed"),
          .machine = machine,
          .cores = cores_here(),
          .on_change = options.on_change};
}

void check_submission(const Submission& wanted) {
  if (wanted.name.size() > kLongestJobName || text::first_invalid_utf8(wanted.name)) {
    throw Refusal(Refused::invalid, "name: at most ", kLongestJobName,
                  " bytes of UTF-8");
  }
  if (has_control_characters(wanted.name)) {
    throw Refusal(Refused::invalid, "name: no control characters");
  }
  if (std::abs(wanted.priority) > kHighestPriority) {
    throw Refusal(Refused::invalid, "priority: from ", -kHighestPriority, " to ",
                  kHighestPriority);
  }
  if (wanted.max_retries < 0 || wanted.max_retries > kMostRetries) {
    throw Refusal(Refused::invalid, "max_retries: from 0 to ", kMostRetries);
  }
  if (wanted.time_limit < 0) {
    throw Refusal(Refused::invalid, "time_limit: above 0, or left out");
  }
}

// One line of JSON for each text, as data.name: text reads them.
std::string lines_of(const std::vector<std::string>& texts) {
  std::string lines;
  for (const auto& text : texts) {
    lines += nlohmann::json({{"text", text}})
                 .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) +
             "\n";
  }
  return lines;
}

}  // namespace

files::Path made_private(const files::Path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) files::fail("make", folder, error.value());
  struct stat info {};
  if (::stat(folder.c_str(), &info) != 0) files::fail("look at", folder, errno);
  // What is below it is guarded by it, whatever its own permissions are; unless a
  // server has opened it for queue.unix_users, and with that guarded each thing below.
  constexpr mode_t kAll = 07777;
  if ((info.st_mode & kAll) == 0711) return folder;
  if (::chmod(folder.c_str(), 0700) != 0) files::fail("protect", folder, errno);
  return folder;
}

files::Path state_folder(const config::StoreConfig& store, const jobs::Caller& caller) {
  if (!store.dir.empty()) return std::filesystem::absolute(store.dir);
  const auto usual = jobs::state_directory(caller);
  if (usual.empty()) {
    throw Error(Fault::config,
                "store.dir: set it: without HOME there is no usual place");
  }
  return usual / "server";
}

Service::Service(ServiceOptions options)
    : config_(options.config),
      state_(made_private(options.state)),
      caller_(options.caller),
      store_(state_ / "lockstep.db"),
      uploads_(store_, made_private(state_ / "files")),
      executor_(executor_for(options.config.queue, caller_)),
      dispatcher_(store_, *executor_, dispatcher_options(options)) {}

Service::~Service() {
  stop();
}

void Service::start() {
  prepare_unix_users(config_.queue, state_);
  worker_ =
      std::jthread([this](const std::stop_token& stop) { dispatcher_.run(stop); });
}

void Service::stop() {
  worker_.request_stop();
  if (worker_.joinable()) worker_.join();
}

config::ServerConfig Service::config() const {
  const std::lock_guard lock(mutex_);
  return config_;
}

config::LimitsConfig Service::limits() const {
  const std::lock_guard lock(mutex_);
  return config_.limits;
}

void Service::reload(const config::ServerConfig& config) {
  prepare_unix_users(config.queue, state_);
  {
    const std::lock_guard lock(mutex_);
    config_ = config;
  }
  dispatcher_.set_config(config);
}

std::vector<std::string> Service::input_names() const {
  std::vector<std::string> names;
  for (const auto& [name, path] : config().provided.inputs) names.push_back(name);
  return names;
}

std::vector<std::string> Service::model_names() const {
  config::ModelsConfig models;
  models.dir = config().provided.models_dir;
  std::vector<std::string> names;
  try {
    for (const auto& model : hf::list_models(jobs::models_directory(models, caller_))) {
      if (model.model) names.push_back(model.name);
    }
  } catch (const Error&) {  // no such folder: no models
  }
  return names;
}

std::optional<std::string> Service::find_input(const Identity& who,
                                               const std::string& knob,
                                               const std::string& name) {
  const auto provided = config().provided;
  const auto found = provided.inputs.find(name);
  if (found != provided.inputs.end()) return found->second;
  if (text::starts_with(name, "file-")) {
    const auto upload = uploads_.find(who, name);
    if (!upload.complete) {
      throw Refusal(Refused::conflict, name, " is not complete yet");
    }
    const auto place = uploads_.path_of(upload);
    const auto queue = config().queue;
    if (const auto as = unix_user_of(queue, who.user)) give_file(place, *as);
    return place.string();
  }
  const auto models = model_names();
  if (knob == "model.weights" &&
      std::find(models.begin(), models.end(), name) != models.end()) {
    config::ModelsConfig folder;
    folder.dir = provided.models_dir;
    return (jobs::models_directory(folder, caller_) / name).string();
  }
  return std::nullopt;
}

// Texts become an upload of their own. If no job comes of it, nobody else would remove
// it.
CheckedRecipe Service::check_recipe(const Identity& who, const Submission& submission) {
  const FindInput find = [&](const std::string& knob, const std::string& name) {
    return find_input(who, knob, name);
  };
  const auto check = [&](const RemoteRecipe& recipe) {
    auto checked = check_remote(recipe, find);
    const bool starts_ranks = submission.kind == JobKind::training;
    if (starts_ranks) check_ranks(checked.loaded.config, submission.resources);
    return checked;
  };
  auto recipe = submission.recipe;
  if (submission.texts.empty()) return check(recipe);
  const auto lines = lines_of(submission.texts);
  const auto bytes = static_cast<std::int64_t>(lines.size());
  check_disk(who.user, bytes);
  const auto texts = uploads_.create(who, {.name = "texts of a job",
                                           .kind = "jsonl",
                                           .bytes = bytes,
                                           .sha256 = sha256(lines)});
  try {
    uploads_.add_part(who, texts.id, {0, lines});
    recipe.inputs["data.dir"] = texts.id;
    return check(recipe);
  } catch (...) {
    uploads_.remove(who, texts.id);
    throw;
  }
}

Job Service::submit(const Identity& who, const Submission& submission) {
  if (!who.may_change(who.user)) {
    throw Refusal(Refused::not_allowed, "a viewer may not submit jobs");
  }
  check_submission(submission);
  check_priority(who, submission.priority);
  unix_user_of(config().queue, who.user);  // refuses those without one
  check_quota(who.user);
  for (const auto& needed : submission.needs) job(who, needed);  // refuses unknown ones
  const auto problem = never_fits(pool(), submission.resources);
  if (!problem.empty()) throw Refusal(Refused::invalid, "resources: ", problem);
  const auto checked = check_recipe(who, submission);
  NewJob job{.user = who.user,
             .name = submission.name,
             .kind = submission.kind,
             .priority = submission.priority,
             .max_retries = submission.max_retries,
             .time_limit = submission.time_limit,
             .resources = submission.resources,
             .needs = submission.needs,
             .request = submission.request,
             .recipe = submission.recipe.text,
             .overrides = checked.overrides};
  if (!config().provided.models_dir.empty()) {
    job.overrides.emplace_back("models.dir", config().provided.models_dir);
  }
  std::string id;
  store_.transaction([&] {
    add_user(store_, who.user);
    id = store_.add_job(job);
  });
  dispatcher_.wake();
  return *store_.find_job(id);
}

std::shared_ptr<const JobAndHistory> Service::job_now(const Identity& who,
                                                      const std::string& id) {
  auto found = store_.job_now(id);
  if (!found || !who.may_see(found->job.user)) {
    throw Refusal(Refused::unknown, "there is no such job");
  }
  return found;
}

Job Service::job(const Identity& who, const std::string& id) {
  return job_now(who, id)->job;
}

std::vector<Job> Service::jobs(const Identity& who, JobFilter filter) {
  if (who.role != Role::admin) filter.user = who.user;
  return store_.jobs(filter);
}

std::vector<StateChange> Service::history(const Identity& who, const std::string& id) {
  return job_now(who, id)->history;
}

Job Service::changeable(const Identity& who, const std::string& id) {
  auto found = job(who, id);
  if (!who.may_change(found.user)) {
    throw Refusal(Refused::not_allowed, "a viewer may not change jobs");
  }
  return found;
}

Job Service::cancel(const Identity& who, const std::string& id) {
  store_.transaction([&] {
    const auto now = changeable(who, id);
    if (now.state == JobState::cancelled || now.state == JobState::stopping) return;
    const auto to = is_active(now.state) ? JobState::stopping : JobState::cancelled;
    if (is_over(now.state) ||
        !store_.move(id, {now.state, to, "cancelled by " + who.user})) {
      throw Refusal(Refused::conflict, "the job is ", name_of(now.state));
    }
  });
  dispatcher_.wake();
  return job(who, id);
}

Job Service::pause(const Identity& who, const std::string& id) {
  store_.transaction([&] {
    const auto now = changeable(who, id);
    if (now.state == JobState::paused || now.state == JobState::pausing) return;
    const auto to = is_active(now.state) ? JobState::pausing : JobState::paused;
    if (!store_.move(id, {now.state, to, "paused by " + who.user})) {
      throw Refusal(Refused::conflict, "the job is ", name_of(now.state));
    }
  });
  dispatcher_.wake();
  return job(who, id);
}

JobFolder Service::folder(const Identity& who, const std::string& id) {
  return dispatcher_.folder_of(job_now(who, id)->job.id);
}

}  // namespace lockstep::service
