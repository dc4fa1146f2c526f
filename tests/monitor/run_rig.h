#pragma once

#include "lockstep/config/load.h"
#include "lockstep/config/print.h"
#include "lockstep/monitor/run_directory.h"
#include "tests/support/support.h"

namespace lockstep::test {

// A run directory of its own, with a config that can be loaded.
class RunRig {
 public:
  explicit RunRig(const std::string& name = "0001")
      : run(monitor::RunDirectory::create(
            directory_.path(),
            {.name = name,
             .record = {.recipe = "r.yaml", .host = "testhost"},
             .config_yaml = config::to_yaml(config::defaults({}, {}), false),
             .plan_json = "{}"})) {}

 private:
  files::TemporaryDirectory directory_;

 public:
  const monitor::RunDirectory run;
};

}  // namespace lockstep::test
