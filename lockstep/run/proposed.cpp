#include "lockstep/run/proposed.h"

#include <array>
#include <cerrno>
#include <cstdio>

#include "lockstep/base/files.h"

namespace lockstep::run {
namespace {

struct Replaced {
  Path now;
  Path before;
};

std::array<Replaced, 2> replaced_in(const RunDirectory& run) {
  return {{{run.config(), run.path() / "config.before.yaml"},
           {run.plan(), run.path() / "plan.before.json"}}};
}

bool is_there(const Path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

void replace(const Replaced& file, const std::string& text) {
  constexpr std::int64_t kLongest = 64 << 20;
  // One that is there is of an attempt that was cut: what the run was trained with
  // before it.
  if (is_there(file.now) && !is_there(file.before)) {
    files::write_atomically(file.before, files::read(file.now, kLongest));
  }
  files::write_atomically(file.now, text);
}

}  // namespace

void propose(const RunDirectory& run, const ProposedFiles& settings) {
  const auto [config, plan] = replaced_in(run);
  replace(config, settings.config_yaml);
  replace(plan, settings.plan_json);
}

void accept_proposed(const RunDirectory& run) {
  for (const auto& file : replaced_in(run)) {
    std::error_code error;
    std::filesystem::remove(file.before, error);
    if (error) files::fail("remove", file.before, error.value());
  }
}

bool take_back_proposed(const RunDirectory& run) {
  bool found = false;
  for (const auto& file : replaced_in(run)) {
    if (!is_there(file.before)) continue;
    found = true;
    if (std::rename(file.before.c_str(), file.now.c_str()) != 0) {
      files::fail("replace", file.now, errno);
    }
  }
  return found;
}

}  // namespace lockstep::run
