#include "lockstep/base/error.h"

#include <array>
#include <csignal>

namespace lockstep {
namespace {

struct Row {
  Fault fault;
  std::string_view name;
  int shell_status;
};

constexpr std::array kRows = {
    Row{Fault::config, "config", kExitUsage},
    Row{Fault::hardware, "hardware", kExitEnvironment},
    Row{Fault::io, "io", kExitEnvironment},
    Row{Fault::comm, "comm", kExitFailed},
    Row{Fault::diverged, "diverged", kExitFailed},
    Row{Fault::internal, "internal", kExitFailed},
};

const Row& row_of(Fault fault) noexcept {
  for (const auto& row : kRows) {
    if (row.fault == fault) return row;
  }
  return kRows.back();
}

}  // namespace

std::string_view name_of(Fault fault) noexcept {
  return row_of(fault).name;
}

int exit_status(Fault fault) noexcept {
  return static_cast<int>(fault);
}

Fault fault_of(int exit_status) noexcept {
  for (const auto& row : kRows) {
    if (static_cast<int>(row.fault) == exit_status) return row.fault;
  }
  return Fault::internal;
}

int shell_status(Fault fault) noexcept {
  return row_of(fault).shell_status;
}

int stop_status(int signal, bool rerun_resumes) noexcept {
  return rerun_resumes && signal != SIGINT ? kExitStopped : 128 + signal;
}

namespace detail {

void check_failed(std::string_view expression, const std::string& values,
                  const SourceLine& place) {
  throw Error(Fault::internal, "internal: ", place.file, ":", place.line, ": ",
              expression, " does not hold", values.empty() ? "" : ": ", values,
              "; this is a bug of Lockstep, please report it");
}

}  // namespace detail
}  // namespace lockstep
