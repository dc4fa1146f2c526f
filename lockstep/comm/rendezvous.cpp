#include "lockstep/comm/rendezvous.h"

#include <array>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include <unistd.h>

#include "lockstep/base/files.h"
#include "lockstep/base/text.h"
#include "lockstep/base/units.h"
#include "lockstep/comm/detail/c10d.h"

namespace lockstep::comm {
namespace {

using Steady = std::chrono::steady_clock;
using run::RankEnvironment;
using wire::Hello;
using wire::Verdict;

constexpr char kVerdictKey[] = "verdict";

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

// Processes with the same answer can share memory and see each other's pids: one boot
// of one kernel, the same namespaces.
std::string machine() {
  std::string answer;
  try {
    answer = text::trim(files::read("/proc/sys/kernel/random/boot_id", 100));
  } catch (const Error&) {
    answer = host_name();
  }
  for (const char* space : {"/proc/self/ns/pid", "/proc/self/ns/net"}) {
    std::error_code ignored;
    answer += str(" ", std::filesystem::read_symlink(space, ignored).string());
  }
  return answer;
}

Hello own_hello(const RankEnvironment& env, const MeetOptions& options) {
  return {.rank = env.rank,
          .world_size = env.world_size,
          .node = env.node,
          .host = host_name(),
          .pid = ::getpid(),
          .machine = machine(),
          .instance = options.instance,
          .facts = options.facts};
}

std::string who(const Hello& hello) {
  return str("rank ", hello.rank, " (", hello.host, ", pid ", hello.pid, ")");
}

// Returns "" if `b` may go on with `a`, which is rank 0.
std::string difference(const Hello& a, const Hello& b) {
  const auto differ = [&](std::string_view what, const auto& of_a, const auto& of_b,
                          std::string_view remedy) {
    return str("comm: ", what, " differs between ranks: ", of_a, " on ", who(a), ", ",
               of_b, " on ", who(b), "; ", remedy);
  };
  if (a.world_size != b.world_size) {
    return differ("the number of ranks", a.world_size, b.world_size,
                  "start all of them with the same number");
  }
  if (a.facts.size() != b.facts.size()) {
    return differ("the number of facts", a.facts.size(), b.facts.size(),
                  "start the same program everywhere");
  }
  for (std::size_t i = 0; i < a.facts.size(); ++i) {
    const auto& [name, of_a] = a.facts[i];
    if (name == b.facts[i].name && of_a == b.facts[i].value) continue;
    return differ(name, of_a, b.facts[i].value, "it must be the same on every rank");
  }
  return "";
}

// Returns "rank 2 and rank 3 (node 1)".
std::string missing_text(const RankEnvironment& env, const std::set<int>& missing) {
  std::map<int, std::vector<std::string>> by_node;
  const int per_node = std::max(1, env.local_world_size);
  for (const int rank : missing) by_node[rank / per_node].push_back(str("rank ", rank));
  std::vector<std::string> texts;
  for (const auto& [node, ranks] : by_node) {
    auto shown = ranks;
    constexpr std::size_t kMost = 8;
    if (shown.size() > kMost) {
      shown.resize(kMost);
      shown.push_back(str("and ", ranks.size() - kMost, " more"));
    }
    texts.push_back(str(text::join(shown, ", "), " (node ", node, ")"));
  }
  return text::join(texts, ", ");
}

class Meeting {
 public:
  Meeting(c10d::Store& store, const RankEnvironment& env, const MeetOptions& options)
      : store_(store),
        env_(env),
        hello_(own_hello(env, options)),
        patience_(options.patience) {}

  Verdict run() {
    announce();
    if (env_.rank == 0) {
      decide(gather());
    } else {
      compare_with_rank_0();
    }
    const auto verdict = wait_for_verdict();
    if (verdict.problem.empty()) return verdict;
    store_.add("told", 1);
    if (env_.rank == 0) stay_until_all_are_told();
    throw Error(verdict.fault, verdict.problem);
  }

 private:
  static std::string key_of(int rank) { return str("hello_", rank); }

  Hello read_hello(int rank) {
    return wire::decode_hello(store_.get_to_str(key_of(rank)));
  }

  std::string meeting_place() const {
    return env_.master_address.empty()
               ? ""
               : str(" to ", env_.master_address, ":", env_.master_port);
  }

  // The first rank to find a problem decides; rank 0 alone decides that there is none.
  void decide(const Verdict& verdict) {
    store_.compareSet(kVerdictKey, std::string(), wire::encode(verdict));
  }

  void object(const std::string& problem) {
    Verdict verdict;
    verdict.problem = problem;
    verdict.fault = Fault::config;
    decide(verdict);
  }

  void announce() {
    const auto key = key_of(env_.rank);
    // The rank may have lost the store and come back.
    if (store_.add(str("came_", env_.rank), 1) > 1 &&
        read_hello(env_.rank).instance != hello_.instance) {
      object(str("comm: two processes say that they are rank ", env_.rank, ": ",
                 who(read_hello(env_.rank)), " and ", who(hello_),
                 "; give every process its own RANK"));
      store_.add("arrived", 1);
      return;
    }
    store_.set(key, wire::encode(hello_));
    store_.add("arrived", 1);
  }

  // Rank 0 may believe in a smaller world, and never look for this rank.
  void compare_with_rank_0() {
    if (!wait_for(key_of(0), std::chrono::milliseconds(0))) {
      throw Error(Fault::comm, "comm: rank ", env_.rank, " of ", env_.world_size,
                  " waited ", units::exact_duration(patience_.limit()),
                  " for rank 0 (node 0), which did not join; start it, or raise "
                  "comm.join_timeout");
    }
    const auto problem = difference(read_hello(0), hello_);
    if (!problem.empty()) object(problem);
  }

  // Polls rather than waits in the store: this process may be asked to stop.
  bool wait_for(const std::string& key, std::chrono::milliseconds more) {
    constexpr std::chrono::milliseconds kLongestPause{20};
    std::chrono::milliseconds pause{1};
    std::optional<Steady::time_point> end;
    while (!store_.check({key})) {
      patience_.check();
      if (patience_.is_over() && !end) end = Steady::now() + more;
      if (end && Steady::now() >= *end) return false;
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, kLongestPause);
    }
    return true;
  }

  // Waits for all ranks; compares each as soon as it is there, so that a difference is
  // not found only when the last has come.
  Verdict gather() {
    std::set<int> missing;
    for (int rank = 1; rank < env_.world_size; ++rank) missing.insert(rank);
    Verdict verdict;
    verdict.one_machine = true;
    std::int64_t seen = 0;
    while (!missing.empty()) {
      const auto arrived = store_.add("arrived", 0);
      if (arrived != seen) {
        seen = arrived;
        if (!look_at_new(missing, verdict)) return verdict;
      } else if (store_.check({kVerdictKey})) {
        return verdict;  // a rank has objected
      } else if (patience_.is_over()) {
        verdict.problem =
            str("comm: ", missing_text(env_, missing), " did not join within ",
                units::exact_duration(patience_.limit()), meeting_place(),
                "; start the missing ones, or raise comm.join_timeout");
        return verdict;
      } else {
        patience_.check();
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
    }
    return verdict;
  }

  bool look_at_new(std::set<int>& missing, Verdict& verdict) {
    for (auto at = missing.begin(); at != missing.end();) {
      if (!store_.check({key_of(*at)})) {
        ++at;
        continue;
      }
      const auto hello = read_hello(*at);
      verdict.problem = difference(hello_, hello);
      verdict.fault = Fault::config;
      if (!verdict.problem.empty()) return false;
      verdict.one_machine &= hello.machine == hello_.machine;
      at = missing.erase(at);
    }
    verdict.fault = Fault::comm;
    return true;
  }

  // Rank 0 may host the store: when it leaves at once, others lose the verdict.
  void stay_until_all_are_told() {
    const auto limit = Steady::now() + std::chrono::seconds(2);
    while (store_.add("told", 0) < store_.add("arrived", 0) && Steady::now() < limit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

  Verdict wait_for_verdict() {
    // Rank 0 gives up at its own deadline, which may be later than this rank's.
    constexpr std::chrono::milliseconds kMore{5'000};
    if (!wait_for(kVerdictKey, kMore)) {
      throw Error(Fault::comm, "comm: rank ", env_.rank, " of ", env_.world_size,
                  " joined, but rank 0 did not answer within ",
                  units::exact_duration(patience_.limit() + kMore),
                  "; its own log says why");
    }
    return wire::decode_verdict(store_.get_to_str(kVerdictKey));
  }

  c10d::Store& store_;
  const RankEnvironment& env_;
  const Hello hello_;
  const Patience& patience_;
};

}  // namespace

Verdict meet(c10d::Store& store, const RankEnvironment& environment,
             const MeetOptions& options) {
  try {
    return Meeting(store, environment, options).run();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw StoreLost(
        Fault::comm, "comm: rank ", environment.rank, " of ", environment.world_size,
        " lost the store during the rendezvous: ", detail::first_line(error));
  }
}

}  // namespace lockstep::comm
