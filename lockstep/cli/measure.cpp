#include "lockstep/cli/detail/measure.h"

#include <algorithm>
#include <ostream>
#include <random>
#include <thread>

#include <fmt/format.h>
#include <signal.h>

#include "lockstep/base/error.h"
#include "lockstep/base/process.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/detail/output.h"
#include "lockstep/jobs/worker.h"
#include "lockstep/launcher/port.h"
#include "lockstep/run/rank_environment.h"

namespace lockstep::cli {
namespace {

constexpr std::chrono::seconds kLimit{120};

// Libraries of the worker print, too.
std::string last_line(const std::string& text, std::string_view prefix) {
  auto lines = text::split(text::trim(text), '\n');
  while (!lines.empty() && !text::starts_with(lines.back(), prefix)) lines.pop_back();
  return lines.empty() ? "" : lines.back();
}

std::string reason_of(const process::Output& output) {
  constexpr std::string_view kError = "lockstep_worker: error: ";
  if (const auto line = last_line(output.err, kError); !line.empty()) {
    return line.substr(kError.size());
  }
  const auto line = last_line(output.err, "");
  return str("the worker ended with ", process::describe(output.end),
             line.empty() ? "" : ": ", line);
}

}  // namespace

Measurements::Measurements(const Context& context, std::chrono::seconds limit)
    : worker_(jobs::find_worker(caller_of(context))), limit_(limit) {}

PartEnd Measurements::run(const Part& part) const {
  process::ProcessOptions command{.arguments = {worker_.string(), "--measure"},
                                  .environment = part.environment,
                                  .directory = {},
                                  .own_group = true};
  command.arguments.insert(command.arguments.end(), part.words.begin(),
                           part.words.end());
  try {
    const auto begin = std::chrono::steady_clock::now();
    const auto output = process::run(command, limit_);
    const bool late = output.end.signal == SIGKILL &&
                      std::chrono::steady_clock::now() - begin >= limit_;
    if (late) {
      return {.problem = str("no answer within ", limit_.count(), " s"), .late = true};
    }
    if (!output.end.ok()) return {.problem = reason_of(output)};
    auto json = last_line(output.out, "{");
    if (json.empty()) return {.problem = "the worker gave no answer"};
    return {.json = std::move(json)};
  } catch (const Error& error) {
    return {.problem = error.what()};
  }
}

std::vector<PartEnd> Measurements::run(const std::vector<Part>& parts) const {
  std::vector<PartEnd> ends(parts.size());
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    threads.emplace_back([&, i] { ends[i] = run(parts[i]); });
  }
  threads.clear();
  return ends;
}

std::vector<PartEnd> Measurements::run_ranks(std::vector<Part> ranks) const {
  const auto port = launcher::HeldPort::any();
  std::random_device random;
  const auto size = static_cast<int>(ranks.size());
  run::RankEnvironment who{.by = run::StartedBy::lockstep,
                           .world_size = size,
                           .local_world_size = size,
                           .master_address = "127.0.0.1",
                           .master_port = port.port(),
                           .job_id = "measure",
                           .token = fmt::format("{:08x}{:08x}", random(), random())};
  for (int rank = 0; rank < size; ++rank) {
    who.rank = who.local_rank = rank;
    auto& environment = ranks[static_cast<std::size_t>(rank)].environment;
    for (auto& variable : run::variables_of(who)) {
      environment.push_back(std::move(variable));
    }
  }
  return run(ranks);
}

std::chrono::seconds time_limit(const Arguments& arguments) {
  constexpr long long kMost = 24 * 3600;
  const auto given = arguments.number("--time-limit", 1);
  return given ? std::chrono::seconds(std::min(*given, kMost)) : kLimit;
}

void warn(Context& context, const std::string& sentence) {
  context.err << "lockstep: " << toned("warning:", Tone::yellow, context.color_err)
              << " " << printable(sentence) << std::endl;
}

}  // namespace lockstep::cli
