#include "lockstep/jobs/trial.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/config/print.h"
#include "lockstep/hardware/cpu_topology.h"
#include "lockstep/jobs/job_options.h"
#include "lockstep/jobs/worker.h"

namespace lockstep::jobs {

using config::Origin;

bool Settings::typed(const std::string& key) const {
  const auto source = loaded_.sources.find(key);
  return source != loaded_.sources.end() && source->second.origin == Origin::override_;
}

void Settings::set(const std::string& key, const std::string& value,
                   const std::string& because) {
  const auto before = config::get(loaded_, key);
  if (before == value) return;
  if (typed(key)) {
    throw Error(Fault::config, command_, ": ", key, "=", before, ": here it is ", value,
                ", because ", because, "; leave it out");
  }
  const bool said = loaded_.sources[key].origin != Origin::standard;
  config::set(loaded_, {key, value}, {Origin::override_, command_ + ": " + because});
  if (said) made_.push_back({key, value, str("not ", before, ": ", because)});
}

void only_steps(Settings& settings, const config::Config& config, std::int64_t steps) {
  settings.set("train.epochs", "auto", "set by --steps");
  settings.set("train.steps", str(steps), "set by --steps");
  settings.set("train.max_time", "0s", "all steps are made");
  if (config.schedule.warmup_steps > steps) {
    settings.set("schedule.warmup_steps", str(steps), "there are no more steps");
  }
  settings.set("eval.every", "0", "evaluation is off");
  settings.set("data.eval_samples", "16", "evaluation is off");
  settings.set("checkpoint.final_weights", "false", "the weights are not needed");
  settings.set("checkpoint.save_last", "false", "nobody resumes from there");
}

run::RunDirectory make_trial(const Trials& trials, const planner::Plan& plan) {
  run::NewRun wanted{.name = plan.config.config.run.name,
                     .record = run::record_of_this_process(),
                     .config_yaml = config::to_yaml(plan.config, true),
                     .plan_json = planner::to_json(plan)};
  wanted.record.recipe = plan.config.recipe;
  wanted.record.command = trials.caller.command_line;
  return run::RunDirectory::create(trials.directory, wanted);
}

launcher::JobResult run_trial(const Trials& trials, const Trial& trial) {
  const auto& [plan, run, more] = trial;
  const auto& config = plan.config.config;
  const auto path = std::filesystem::absolute(run.path());
  launcher::Job job;
  job.command = {trials.worker.string(), "--run-dir", path.string()};
  job.command.insert(job.command.end(), more.begin(), more.end());
  const int started = processes(config.parallel);
  for (auto& where :
       launcher::place_ranks(hardware::cpu_topology(), {.ranks = started})) {
    where.threads = config.parallel.threads.value();
    job.ranks.push_back({.place = std::move(where)});
  }
  job.first.world_size = started;
  job.first.job_id = run.read_record().id;
  job.hang_limits = hang_limits(config.watch);
  job.say = trials.caller.say;
  return launcher::run_job(run, job, trials.signals);
}

}  // namespace lockstep::jobs
