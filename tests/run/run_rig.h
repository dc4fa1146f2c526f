#pragma once

#include "lockstep/config/load.h"
#include "lockstep/config/print.h"
#include "lockstep/run/run_directory.h"
#include "tests/support/support.h"

namespace lockstep::test {

// A run directory of its own, with a config that can be loaded.
class RunRig {
 public:
  explicit RunRig(const std::string& name = "0001")
      : run(run::RunDirectory::create(directory_.path(), wanted(name))) {}

 private:
  static run::NewRun wanted(const std::string& name) {
    run::NewRun run;
    run.name = name;
    run.record.recipe = "r.yaml";
    run.record.host = "testhost";
    run.config_yaml = config::to_yaml(config::defaults({}, {}), false);
    run.plan_json = "{}";
    return run;
  }

  files::TemporaryDirectory directory_;

 public:
  const run::RunDirectory run;
};

}  // namespace lockstep::test
