// --nnodes, --node-rank, --master-addr, --rdzv-*: where the ranks meet.
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/detail/launch.h"
#include "lockstep/cli/detail/output.h"
#include "lockstep/run/host.h"
#include "lockstep/run/slurm.h"

namespace lockstep::cli {
namespace {

constexpr int kMasterPort = 29500;      // torchrun's, of --master-port
constexpr int kRendezvousPort = 29400;  // torchrun's, of --rdzv-endpoint

struct Endpoint {
  std::string host;
  std::optional<int> port;
};

// Parses "host", "host:29400", "[::1]:29400".
Endpoint parse_endpoint(const std::string& source, const std::string& text) {
  const auto colon = text.rfind(':');
  const bool bracket = !text.empty() && text.front() == '[';
  const auto close = bracket ? text.find(']') : std::string::npos;
  Endpoint endpoint;
  std::string port;
  if (bracket) {
    if (close != std::string::npos) endpoint.host = text.substr(1, close - 1);
    if (close < text.size()) port = text.substr(close + 1);
  } else if (colon != std::string::npos && text.find(':') == colon) {
    endpoint.host = text.substr(0, colon);
    port = text.substr(colon);
  } else {
    endpoint.host = text;  // a name, or an IPv6 address without a port
  }
  if (!port.empty()) {
    const auto number = text::to_integer(port.substr(1));
    if (port.front() == ':' && number && *number >= 0 && *number <= 65'535) {
      endpoint.port = static_cast<int>(*number);
    } else {
      endpoint.host.clear();
    }
  }
  if (!endpoint.host.empty()) return endpoint;
  throw Error(Fault::config, source, ": '", text,
              "' is not of the form HOST:PORT; write node0:29400 or [fe80::1]:29400");
}

void check_backend(const LaunchWords& words) {
  const auto backend = words.value("--rdzv-backend");
  if (!backend || *backend == "static" || *backend == "c10d") return;
  if (text::starts_with(*backend, "etcd")) {
    throw Error(Fault::config, words.source("--rdzv-backend"), ": '", *backend,
                "' needs an etcd server, which is not supported; use c10d with "
                "--rdzv-endpoint HOST:PORT, HOST being the first node");
  }
  const std::vector<std::string> known = {"static", "c10d"};
  throw Error(Fault::config, words.source("--rdzv-backend"), ": '", *backend,
              "' is not one of static, c10d", text::did_you_mean(*backend, known));
}

// Returns --rdzv-endpoint, else --master-addr and --master-port.
Endpoint wanted_endpoint(const LaunchWords& words) {
  if (words.has("--standalone")) return {};
  const auto address = words.value("--master-addr");
  const auto port = words.number("--master-port", 0);
  const auto given = words.value("--rdzv-endpoint");
  if (!given) return {.host = address.value_or(""), .port = port};
  auto endpoint = parse_endpoint(words.source("--rdzv-endpoint"), *given);
  const bool differs = (address && *address != endpoint.host) ||
                       (port && endpoint.port && *port != *endpoint.port);
  if (differs && (words.typed("--master-addr") || words.typed("--master-port")) &&
      words.typed("--rdzv-endpoint")) {
    throw Error(Fault::config, "--rdzv-endpoint ", *given, " and --master-addr ",
                address.value_or("(none)"), " --master-port ",
                port ? str(*port) : "(none)",
                " name two rendezvous addresses; give one");
  }
  if (!endpoint.port) endpoint.port = kRendezvousPort;
  return endpoint;
}

// Returns the torchrun command for a number of nodes that may change.
std::string torchrun_line(const LaunchWords& words) {
  const auto endpoint = words.value("--rdzv-endpoint");
  const auto address = words.value("--master-addr").value_or("FIRST_NODE");
  std::string line = "torchrun";
  const auto& program = words.program();
  const bool python =
      !program.empty() && program[0].size() > 3 && program[0].ends_with(".py");
  if (words.has("--module")) {
    line += " --module";
  } else if (!python || words.has("--no-python")) {
    line += " --no-python";
  }
  line += str(" --nnodes ", *words.value("--nnodes"), " --nproc-per-node ",
              words.value("--nproc-per-node").value_or("1"),
              " --rdzv-backend c10d --rdzv-endpoint ",
              endpoint ? *endpoint : str(address, ":", kRendezvousPort), " --rdzv-id ",
              words.value("--rdzv-id").value_or("JOB_NAME"), " --max-restarts ",
              words.value("--max-restarts").value_or("3"));
  for (const auto& word : program) line += " " + shell_word(word);
  return line;
}

int number_of_nodes(const LaunchWords& words) {
  const auto given = words.value("--nnodes").value_or("1");
  const auto parts = text::split(given, ':');
  std::vector<long long> numbers;
  for (const auto& part : parts) {
    const auto number = text::to_integer(part);
    if (number && *number >= 1 && *number <= 65'536) numbers.push_back(*number);
  }
  if (numbers.size() != parts.size() || parts.size() > 2) {
    throw Error(Fault::config, words.source("--nnodes"), ": '", given,
                "' is not a number of nodes; write --nnodes 2");
  }
  if (numbers.front() != numbers.back()) {
    throw Error(Fault::config, words.source("--nnodes"), ": '", given,
                "': a number of nodes that changes is torchrun's to manage; use\n  ",
                torchrun_line(words));
  }
  return static_cast<int>(numbers.front());
}

// Slurm's own numbers count only if this launcher is one of a task on every node.
bool one_task_of_slurm(const LaunchWords& words, int nodes) {
  for (const auto* name : {"SLURM_STEP_NUM_NODES", "SLURM_NNODES"}) {
    if (const auto count = words.variable(name)) {
      return text::to_integer(*count) == nodes && words.variable("SLURM_STEP_ID");
    }
  }
  return false;
}

std::optional<std::string> slurm_first_node(const LaunchWords& words) {
  for (const auto* name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}) {
    const auto list = words.variable(name);
    if (!list || list->empty()) continue;
    return run::slurm::expand_nodes(*list).front();
  }
  return std::nullopt;
}

struct GivenNodeRank {
  std::string source;
  std::string value;
};

std::optional<GivenNodeRank> given_node_rank(const LaunchWords& words, int nodes) {
  if (const auto given = words.value("--node-rank")) {
    return GivenNodeRank{words.source("--node-rank"), *given};
  }
  if (one_task_of_slurm(words, nodes)) {
    if (const auto given = words.variable("SLURM_NODEID")) {
      return GivenNodeRank{"SLURM_NODEID", *given};
    }
  }
  if (const auto given = words.variable("JOB_COMPLETION_INDEX")) {
    return GivenNodeRank{"JOB_COMPLETION_INDEX", *given};
  }
  return std::nullopt;
}

int node_rank(const LaunchWords& words, const Meeting& meeting) {
  if (const auto found = given_node_rank(words, meeting.nodes)) {
    const auto number = text::to_integer(found->value);
    if (number && *number >= 0 && *number < meeting.nodes) {
      return static_cast<int>(*number);
    }
    throw Error(Fault::config, found->source, ": '", found->value,
                "' is not a node of ", meeting.nodes, " (0 to ", meeting.nodes - 1,
                "); give --node-rank");
  }
  if (run::is_loopback(meeting.address)) {
    throw Error(Fault::config, "--node-rank: --master-addr ", meeting.address,
                " is every host's own address; give --node-rank, or the address of the "
                "first node that the others can reach");
  }
  if (run::is_this_host(meeting.address)) return 0;
  if (meeting.nodes == 2) return 1;
  throw Error(Fault::config, "--node-rank: --master-addr ", meeting.address,
              " is not this host, so it is one of the nodes 1 to ", meeting.nodes - 1,
              "; give --node-rank");
}

void find_master(const LaunchWords& words, const Endpoint& endpoint, Meeting& meeting) {
  meeting.address = endpoint.host;
  meeting.port = endpoint.port.value_or(kMasterPort);
  if (meeting.address.empty() && one_task_of_slurm(words, meeting.nodes)) {
    meeting.address = slurm_first_node(words).value_or("");
  }
  if (meeting.address.empty()) {
    throw Error(Fault::config, "--nnodes ", meeting.nodes,
                ": the rendezvous address is missing; give --master-addr HOST, the "
                "first node, the same on all of them");
  }
  if (meeting.port == 0) {
    throw Error(Fault::config,
                "--master-port: 0 (any free port) is for one node; with "
                "--nnodes ",
                meeting.nodes, " give the same port on all of them");
  }
}

}  // namespace

Meeting meeting_of(const LaunchWords& words) {
  check_backend(words);
  Meeting meeting;
  meeting.nodes = number_of_nodes(words);
  const auto endpoint = wanted_endpoint(words);
  if (endpoint.port.value_or(0) > 65'535) {
    throw Error(Fault::config, words.source("--master-port"), ": ", *endpoint.port,
                " is not a TCP port; choose one of 1024 to 65535");
  }
  if (meeting.nodes == 1) {
    meeting.address = endpoint.host;
    meeting.port = endpoint.port.value_or(0);
    if (words.value("--node-rank")) meeting.node = node_rank(words, meeting);
    return meeting;
  }
  if (words.has("--standalone")) {
    throw Error(Fault::config, words.source("--standalone"),
                " is for one node, but --nnodes is ", meeting.nodes,
                "; leave one of them out");
  }
  find_master(words, endpoint, meeting);
  meeting.node = node_rank(words, meeting);
  return meeting;
}

}  // namespace lockstep::cli
