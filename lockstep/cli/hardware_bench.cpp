// lockstep hardware bench: what this machine does, measured by the worker, part by
// part.
#include <algorithm>
#include <cstdlib>
#include <ostream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/cli/detail/measure.h"
#include "lockstep/cli/detail/output.h"
#include "lockstep/cli/detail/run_view.h"
#include "lockstep/hardware/json.h"
#include "lockstep/hardware/measured_store.h"
#include "lockstep/jobs/state_directory.h"

namespace lockstep::cli {
namespace {

using hardware::Machine;
using hardware::Measured;
using Json = nlohmann::ordered_json;
using Words = std::vector<std::string>;

// Returns 2, 4, 8, ... and the most.
std::vector<int> sizes_up_to(int most) {
  std::vector<int> sizes;
  for (int size = 2; size < most; size *= 2) sizes.push_back(size);
  sizes.push_back(std::max(most, 2));
  return sizes;
}

class Bench {
 public:
  struct Options {
    const Machine& machine;
    const Measurements& parts;
    bool quick = false;
  };
  Bench(const Options& options, Context& context)
      : machine_(options.machine),
        parts_(options.parts),
        quick_(options.quick),
        context_(context) {}

  Measured run() {
    measured_.date = iso_time(Clock::system().wall()).substr(0, 10);
    host();
    for (const auto& gpu : machine_.gpus) one_gpu(gpu);
    pairs();
    if (machine_.gpus.size() > 1) {
      nccl();
    } else {
      between_cpus();
    }
    return measured_;
  }

  // Returns sentences on what could not be measured.
  const std::vector<std::string>& failures() const { return failures_; }

 private:
  void say(const std::string& what) {
    context_.err << "lockstep: measuring " << what << std::endl;
  }

  Part part(Words words) const {
    if (quick_) words.emplace_back("--quick");
    return {std::move(words)};
  }

  // Returns what the worker measured, or nothing and keeps a sentence.
  std::optional<Measured> read(const PartEnd& end, const std::string& what) {
    auto problem = end.problem;
    if (problem.empty()) {
      try {
        return hardware::measured_from_json(end.json, "lockstep_worker");
      } catch (const Error& error) {
        problem = error.what();
      }
    }
    failures_.push_back(str(what, " could not be measured: ", problem));
    return std::nullopt;
  }

  void host() {
    say("the host's memory and cores");
    const auto got =
        read(parts_.run(part({"host", "--threads", str(machine_.physical_cores)})),
             "the host");
    if (!got) throw Error(Fault::hardware, "hardware bench: ", failures_.back());
    measured_.host_copy = got->host_copy;
    measured_.cpu_flops = got->cpu_flops;
  }

  void one_gpu(const hardware::Gpu& gpu) {
    const auto name = str("GPU ", gpu.index);
    say(name);
    const auto got = read(parts_.run(part({"gpu", "--gpu", str(gpu.index)})), name);
    if (!got || got->gpus.empty()) return;
    measured_.gpus.push_back(got->gpus[0]);
    measured_.gpus.back().uuid = gpu.uuid;
  }

  void pairs() {
    for (std::size_t a = 0; a < machine_.gpus.size(); ++a) {
      for (std::size_t b = a + 1; b < machine_.gpus.size(); ++b) {
        one_pair(machine_.gpus[a].index, machine_.gpus[b].index);
      }
    }
  }

  // A pair that hangs, or damages what it sends, is what we came for: it is a result.
  // A worker that failed for a reason of its own says nothing about the pair.
  void one_pair(int first, int second) {
    const auto what = str("GPU ", first, " to GPU ", second);
    say(what);
    const auto end =
        parts_.run(part({"pair", "--gpu", str(first), "--peer", str(second)}));
    hardware::MeasuredPair pair{.first = first, .second = second, .problem = ""};
    if (end.late) {
      pair.problem = end.problem;
    } else {
      const auto got = read(end, what);
      if (!got || got->pairs.empty()) return;
      pair.copy = got->pairs[0].copy;
      pair.problem = got->pairs[0].problem;
    }
    measured_.pairs.push_back(std::move(pair));
  }

  void nccl() {
    const bool broken = !hardware::broken_pairs(measured_).empty();
    for (const int size : sizes_up_to(static_cast<int>(machine_.gpus.size()))) {
      std::vector<Part> ranks;
      for (int rank = 0; rank < size; ++rank) {
        const auto& gpu = machine_.gpus[static_cast<std::size_t>(rank)];
        ranks.push_back(
            part({"collective", "--gpu", str(gpu.index), "--backend", "nccl"}));
        if (broken) ranks.back().environment.emplace_back("NCCL_P2P_DISABLE", "1");
      }
      collective("nccl", std::move(ranks));
    }
  }

  void between_cpus() {
    constexpr int kMostRanks = 16;
    const int most = quick_ ? 2 : std::min(machine_.physical_cores, kMostRanks);
    for (const char* backend : {"shm", "gloo"}) {
      for (const int size : sizes_up_to(most)) {
        const auto rank = part({"collective", "--backend", backend});
        collective(backend, std::vector<Part>(static_cast<std::size_t>(size), rank));
      }
    }
  }

  void collective(const std::string& backend, std::vector<Part> ranks) {
    const auto what = str("all-reduce over ", ranks.size(), " ranks (", backend, ")");
    say(what);
    const auto ends = parts_.run_ranks(std::move(ranks));
    // The failed worker that did not only wait in vain says most.
    const auto failed = std::find_if(ends.begin(), ends.end(), [](const auto& end) {
      return !end.problem.empty() && !end.late;
    });
    const auto got = read(failed == ends.end() ? ends.at(0) : *failed, what);
    if (!got) return;
    measured_.collectives.insert(measured_.collectives.end(), got->collectives.begin(),
                                 got->collectives.end());
  }

  const Machine& machine_;
  const Measurements& parts_;
  const bool quick_;
  Context& context_;
  Measured measured_;
  std::vector<std::string> failures_;
};

// Other processes that compute meanwhile make everything look slow.
void warn_of_load(const Machine& machine, Context& context) {
  double load = 0;
  if (::getloadavg(&load, 1) != 1 || load < 0.5 * machine.logical_cores) return;
  warn(context,
       fmt::format("the load is {:.1f} on {} cores: what else runs makes these "
                   "numbers too low",
                   load, machine.logical_cores));
}

struct Sentences {
  std::vector<std::string> failures, slow, broken;
};

struct BenchResult {
  Measured measured;
  Sentences sentences;
  std::string stored;  // where it was kept; "": nowhere
};

std::string json_of(const Machine& machine, const BenchResult& result) {
  const auto& [measured, sentences, stored] = result;
  Json json;
  json["machine"] = hardware::machine_key(machine);
  json["stored"] = stored;
  json["gpu_note"] = machine.gpu_note;
  json["failures"] = sentences.failures;
  json["slow"] = sentences.slow;
  json["broken"] = sentences.broken;
  json["measured"] = Json::parse(to_json(measured));
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

// Missing devices are named, not left out.
std::string without_gpus(const Machine& machine) {
  if (machine.gpus.empty()) {
    return str("gpu       none: ", machine.gpu_note,
               "; neither GPUs nor copies between them are measured\n");
  }
  return machine.gpus.size() == 1
             ? "          one GPU: there are no copies and sums between GPUs\n"
             : "";
}

std::string store(const Machine& machine, const Measured& measured, Context& context) {
  const auto state = jobs::state_directory(caller_of(context));
  if (state.empty()) {
    throw Error(Fault::config,
                "hardware bench: there is no place to keep the result, because neither "
                "XDG_STATE_HOME nor HOME is set; set one, or add --no-store");
  }
  return hardware::store_measured(machine, state, measured).string();
}

}  // namespace

int bench_hardware(const Arguments& arguments, Context& context) {
  const Measurements parts(context, time_limit(arguments));
  const auto machine = hardware::inspect(default_run_dir(context));
  warn_of_load(machine, context);
  Bench bench({.machine = machine, .parts = parts, .quick = arguments.has("--quick")},
              context);
  BenchResult result{.measured = bench.run(), .sentences = {}, .stored = ""};
  const auto& [measured, sentences, stored] = result;
  result.sentences = {bench.failures(), hardware::slow_ones(machine, measured),
                      hardware::broken_pairs(measured)};
  if (!arguments.has("--no-store")) result.stored = store(machine, measured, context);
  if (arguments.has("--json")) {
    context.out << json_of(machine, result);
  } else {
    context.out << printable(measured_text(machine, measured) + without_gpus(machine));
  }
  for (const auto& list : {sentences.failures, sentences.slow, sentences.broken}) {
    for (const auto& sentence : list) warn(context, sentence);
  }
  if (!stored.empty()) context.err << "lockstep: kept in " << printable(stored) << "\n";
  const bool bad = !sentences.failures.empty() || !sentences.broken.empty();
  return bad ? kExitFailed : kExitOk;
}

}  // namespace lockstep::cli
