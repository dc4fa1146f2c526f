// Turns the options of `lockstep launch` into a launcher::Job.
#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/detail/launch.h"
#include "lockstep/hardware/cpu_topology.h"
#include "lockstep/hardware/machine.h"
#include "lockstep/jobs/job_options.h"

namespace lockstep::cli {
namespace {

using launcher::Binding;
using launcher::StdStreams;

constexpr int kMostRanks = 4'096;  // a slip of the finger is no fork bomb

int count_or_refuse(const LaunchWords& words, const std::string& given) {
  const auto number = text::to_integer(given);
  if (number && *number >= 1 && *number <= kMostRanks) return static_cast<int>(*number);
  const std::vector<std::string> known = {"auto", "gpu", "cpu"};
  throw Error(Fault::config, words.source("--nproc-per-node"), ": '", given,
              "' is not a number from 1 to ", kMostRanks, ", nor auto, gpu or cpu",
              number ? "" : text::did_you_mean(given, known));
}

int ranks_per_node(const LaunchWords& words, std::vector<std::string>& notes) {
  const auto given = words.value("--nproc-per-node").value_or("1");
  if (given != "auto" && given != "gpu" && given != "cpu") {
    return count_or_refuse(words, given);
  }
  const auto machine = hardware::detect();
  const auto gpus = static_cast<int>(machine.gpus.size());
  if (given == "gpu" && gpus == 0) {
    throw Error(Fault::config, words.source("--nproc-per-node"),
                ": 'gpu', but there is no GPU: ", machine.gpu_note,
                "; give a number, or cpu");
  }
  const bool by_gpu = given != "cpu" && gpus > 0;
  const int ranks = by_gpu ? gpus : machine.logical_cores;
  notes.push_back(str("--nproc-per-node ", given, " is ", ranks, ": ",
                      by_gpu ? "one rank for each GPU" : "one rank for each CPU"));
  return ranks;
}

Binding binding_for(const LaunchWords& words) {
  if (const auto given = words.value("--binding")) {
    if (const auto binding = launcher::binding_of(*given)) return *binding;
    throw Error(Fault::config, words.source("--binding"), ": '", *given,
                "' is not one of none, numa, cores");
  }
  const auto given = words.value("--numa-binding");
  if (!given) return Binding::none;
  if (*given == "node") return Binding::numa;
  throw Error(Fault::config, words.source("--numa-binding"), ": '", *given,
              "' is not supported; use node (the same as --binding numa), or "
              "--binding cores for cores that no other rank has");
}

std::vector<launcher::RankPlacement> places_for(const LaunchWords& words, int ranks,
                                                LaunchOptions& options) {
  launcher::PlacementRequest request{.ranks = ranks, .binding = binding_for(words)};
  request.near_gpu = jobs::near_gpus(request.binding, ranks);
  const auto set = words.variable("OMP_NUM_THREADS");
  if (set) {
    const auto number = text::to_integer(set->substr(0, set->find(',')));
    request.omp_num_threads =
        static_cast<int>(std::clamp<long long>(number.value_or(1), 1, 1 << 20));
  }
  auto places = place_ranks(hardware::cpu_topology(), request);
  std::vector<std::string> threads;
  threads.reserve(places.size());
  for (const auto& place : places) threads.push_back(str(place.threads));
  const bool same = std::count(threads.begin(), threads.end(), threads[0]) ==
                    static_cast<std::ptrdiff_t>(threads.size());
  options.threads_line =
      set ? str("OMP_NUM_THREADS=", *set, " for each rank, as in the environment")
          : str("OMP_NUM_THREADS=", same ? threads[0] : text::join(threads, ","),
                same ? " for each rank" : " by rank", " (", places[0].because,
                "); set it to choose another");
  return places;
}

// `source` is where the text was given.
int local_rank(const std::string& source, std::string_view given, int ranks) {
  const auto rank = text::to_integer(text::trim(given));
  if (rank && *rank >= 0 && *rank < ranks) return static_cast<int>(*rank);
  throw Error(Fault::config, source, ": '", given, "' is not a local rank (0 to ",
              ranks - 1, ")");
}

// Parses "3", or "0:1,1:3": a mask for all ranks, or for some.
std::map<int, StdStreams> masks(const LaunchWords& words, std::string_view option,
                                int ranks) {
  const auto given = words.value(option);
  std::map<int, StdStreams> result;
  if (!given) return result;
  const auto fail = [&] {
    throw Error(Fault::config, words.source(option), ": '", *given,
                "' is not a mask; write 0 (none), 1 (stdout), 2 (stderr) or 3 (both), "
                "for some ranks as 0:1,1:3");
  };
  for (const auto& part : text::split(*given, ',')) {
    const auto colon = part.find(':');
    const auto mask =
        text::to_integer(colon == std::string::npos ? part : part.substr(colon + 1));
    if (!mask || *mask < 0 || *mask > 3) fail();
    const auto console = static_cast<StdStreams>(*mask);
    if (colon == std::string::npos) {
      if (*given != part) fail();
      for (int rank = 0; rank < ranks; ++rank) result[rank] = console;
      continue;
    }
    result[local_rank(words.source(option), part.substr(0, colon), ranks)] = console;
  }
  return result;
}

std::set<int> rank_filter(const LaunchWords& words, int ranks) {
  std::set<int> shown;
  const auto given = words.value("--local-ranks-filter");
  if (!given) {
    const bool masked = words.value("--tee") || words.value("--redirects");
    for (int rank = 0; rank < (masked ? ranks : 1); ++rank) shown.insert(rank);
    return shown;
  }
  for (const auto& part : text::split(*given, ',')) {
    shown.insert(local_rank(words.source("--local-ranks-filter"), part, ranks));
  }
  return shown;
}

std::chrono::milliseconds monitor_interval(const LaunchWords& words) {
  const auto given = words.value("--monitor-interval");
  if (!given) return launcher::Job{}.monitor_interval;
  const auto seconds = text::to_double(*given);
  constexpr double kLongest = 3600;
  if (!seconds || !(*seconds > 0) || *seconds > kLongest) {
    throw Error(Fault::config, words.source("--monitor-interval"), ": '", *given,
                "' is not a time in seconds above 0 and up to 3600; write 0.1");
  }
  return std::chrono::milliseconds(std::max(1L, std::lround(*seconds * 1000)));
}

void check_without_effect(const LaunchWords& words, std::vector<std::string>& notes) {
  if (const auto given = words.value("--signals-to-handle")) {
    const std::vector<std::string> known = {"SIGTERM", "SIGINT",  "SIGHUP",
                                            "SIGQUIT", "SIGUSR1", "SIGUSR2"};
    for (const auto& name : text::split(*given, ',')) {
      if (std::find(known.begin(), known.end(), text::trim(name)) != known.end()) {
        continue;
      }
      throw Error(Fault::config, words.source("--signals-to-handle"), ": '", name,
                  "' is not one that can be passed on to ranks; those are ",
                  text::join(known, ", "), ", always");
    }
  }
  if (words.value("--rdzv-conf")) {
    notes.push_back(words.source("--rdzv-conf") +
                    " has no effect: launchers do not negotiate here");
  }
}

std::string random_id() {
  std::random_device random;
  std::string id = "standalone-";
  constexpr std::string_view kDigits = "0123456789abcdef";
  for (int i = 0; i < 16; ++i) id += kDigits[random() % kDigits.size()];
  return id;
}

run::RankEnvironment first_rank(const LaunchWords& words, const Meeting& meeting,
                                int ranks) {
  run::RankEnvironment first;
  first.by = run::StartedBy::lockstep;
  first.nodes = meeting.nodes;
  first.node = meeting.node;
  first.rank = meeting.node * ranks;
  first.world_size = meeting.nodes * ranks;
  first.local_world_size = ranks;
  first.master_address = meeting.address;
  first.master_port = meeting.port;
  first.max_restarts = words.number("--max-restarts", 0).value_or(0);
  first.role = words.value("--role").value_or("default");
  first.job_id = words.has("--standalone") ? random_id()
                                           : words.value("--rdzv-id").value_or("none");
  // One token for all nodes can only come from outside; on one node run_job makes one.
  if (meeting.nodes > 1) {
    first.token = words.variable("LOCKSTEP_JOB_TOKEN").value_or("");
  }
  return first;
}

}  // namespace

std::vector<StdStreams> consoles_of(const LaunchWords& words, int ranks) {
  const auto tee = masks(words, "--tee", ranks);
  const auto redirects = masks(words, "--redirects", ranks);
  const auto filter = rank_filter(words, ranks);
  const auto mask_of = [](const std::map<int, StdStreams>& all, int rank) {
    const auto found = all.find(rank);
    return found == all.end() ? 0U : static_cast<unsigned>(found->second);
  };
  std::vector<StdStreams> consoles;
  for (int rank = 0; rank < ranks; ++rank) {
    // torchrun's rule: redirected streams leave the terminal, unless they are teed.
    const auto shown = (3U & ~mask_of(redirects, rank)) | mask_of(tee, rank);
    consoles.push_back(filter.contains(rank) ? static_cast<StdStreams>(shown)
                                             : StdStreams::nothing);
  }
  return consoles;
}

LaunchOptions launch_options(const LaunchWords& words) {
  refuse_foreign_options(words);
  LaunchOptions options;
  check_without_effect(words, options.notes);
  const auto meeting = meeting_of(words);
  const int ranks = ranks_per_node(words, options.notes);
  auto& job = options.job;
  job.command = program_command(words, options.notes);
  job.first = first_rank(words, meeting, ranks);
  const auto consoles = consoles_of(words, ranks);
  const auto places = places_for(words, ranks, options);
  for (std::size_t i = 0; i < places.size(); ++i) {
    job.ranks.push_back({.place = places[i], .console = consoles[i]});
  }
  job.grace =
      grace_period(words.source("--grace-period"), words.value("--grace-period"));
  job.monitor_interval = monitor_interval(words);
  options.log_dir = words.value("--log-dir").value_or("");
  return options;
}

}  // namespace lockstep::cli
