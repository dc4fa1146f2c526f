#include "lockstep/server/detail/prometheus.h"

#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/text.h"
#include "lockstep/base/version.h"
#include "lockstep/monitor/metrics.h"
#include "lockstep/server/detail/prometheus.h"
#include "lockstep/service/job_files.h"

namespace lockstep::server {
namespace {

using service::JobState;

std::string label_value(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\' || c == '"') escaped += '\\';
    escaped += c == '\n' ? ' ' : c;
  }
  return escaped;
}

// One family: its help and type once, then its samples.
class Family {
 public:
  Family(std::string name, std::string_view help, std::string_view type)
      : name_(std::move(name)),
        text_(str("# HELP ", name_, " ", help, "\n# TYPE ", name_, " ", type, "\n")) {}

  void add(const std::string& labels, double value) {
    text_ += str(name_, labels.empty() ? "" : "{", labels, labels.empty() ? "" : "}",
                 " ", text::from_double(value), "\n");
  }
  const std::string& text() const { return text_; }

 private:
  std::string name_, text_;
};

std::string job_labels(const service::Job& job) {
  return str("job=\"", job.id, "\",user=\"", label_value(job.user), "\"");
}

}  // namespace

std::string prometheus_text(service::Service& service, const service::Identity& who) {
  constexpr int kMost = 10'000;
  Family info("lockstep_server_info", "The version of the server.", "gauge");
  info.add(str("version=\"", version(), "\""), 1);
  Family jobs("lockstep_server_jobs", "Jobs by state.", "gauge");
  Family steps("lockstep_job_steps", "Finished steps of a running job.", "gauge");
  Family losses("lockstep_job_loss", "Last training loss of a running job.", "gauge");
  Family rates("lockstep_job_samples_per_second", "Speed of a running job.", "gauge");
  std::map<JobState, int> states;
  for (const auto& job : service.jobs(who, {.limit = kMost})) {
    ++states[job.state];
    if (job.state != JobState::running) continue;
    const service::JobFile file(service.folder(who, job.id), "run/metrics.jsonl");
    const auto last = monitor::last_metrics(file.path(), monitor::Split::train);
    if (!last) continue;
    steps.add(job_labels(job), static_cast<double>(last->step));
    losses.add(job_labels(job), last->loss);
    if (const auto rate = last->find("samples_per_second")) {
      rates.add(job_labels(job), *rate);
    }
  }
  for (const auto& [state, count] : states) {
    jobs.add(str("state=\"", service::name_of(state), "\""), count);
  }
  const auto pool = service.pool();
  Family cores("lockstep_server_cores", "CPU cores that jobs share.", "gauge");
  cores.add("", static_cast<double>(pool.cores.size()));
  Family gpus("lockstep_server_gpus", "GPUs that jobs share.", "gauge");
  gpus.add("", static_cast<double>(pool.gpus.size()));
  Family leased("lockstep_server_leases", "Cores and GPUs that jobs have.", "gauge");
  double leased_cores = 0;
  double leased_gpus = 0;
  for (const auto& lease : service.store().leases()) {
    (lease.is_gpu ? leased_gpus : leased_cores) += lease.share;
  }
  leased.add("kind=\"core\"", leased_cores);
  leased.add("kind=\"gpu\"", leased_gpus);
  return info.text() + jobs.text() + steps.text() + losses.text() + rates.text() +
         cores.text() + gpus.text() + leased.text();
}

}  // namespace lockstep::server
