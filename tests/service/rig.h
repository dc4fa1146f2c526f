#pragma once

#include <csignal>
#include <filesystem>
#include <memory>
#include <string>

#include "lockstep/base/files.h"
#include "lockstep/service/detached.h"
#include "lockstep/service/secrets.h"
#include "lockstep/service/service.h"
#include "tests/support/support.h"

namespace lockstep::test {

// Without HOME: nothing is kept of what jobs show of this machine.
inline jobs::Caller quiet_caller(const std::string& executable) {
  jobs::Caller caller;
  caller.environment = {{"PATH", "/usr/bin:/bin"}};
  caller.executable = executable;
  caller.say = [](std::string_view) {};
  caller.warn = [](std::string_view) {};
  return caller;
}

// A machine with so many GPUs of 16 GiB.
inline hardware::Machine machine_with(int gpus) {
  hardware::Machine machine;
  machine.physical_cores = machine.logical_cores = 4;
  for (int i = 0; i < gpus; ++i) {
    hardware::Gpu gpu;
    gpu.index = gpu.nvml_index = i;
    gpu.name = "test";
    gpu.uuid = "GPU-" + std::to_string(i);
    gpu.memory_total_bytes = std::int64_t{16} << 30;
    gpu.status.memory_free_bytes = gpu.memory_total_bytes;
    machine.gpus.push_back(gpu);
  }
  if (gpus == 0) machine.gpu_note = "no NVIDIA driver";
  return machine;
}

// The program with a worker beside it that computes nothing.
class FakeInstallation {
 public:
  FakeInstallation() {
    std::filesystem::create_hard_link(binary("lockstep"), folder_.path() / "lockstep",
                                      error_);
    if (error_) {
      std::filesystem::copy_file(binary("lockstep"), folder_.path() / "lockstep");
    }
    std::filesystem::copy_file(
        binary("lockstep").parent_path().parent_path() / "tests" / "fake_worker",
        folder_.path() / "lockstep_worker");
  }

  std::string program() const { return (folder_.path() / "lockstep").string(); }

 private:
  files::TemporaryDirectory folder_{binary("lockstep").parent_path().parent_path()};
  std::error_code error_;
};

inline std::string short_recipe(int steps, int milliseconds = 1) {
  return "{\"train\": {\"steps\": " + std::to_string(steps) +
         ", \"log_every\": " + std::to_string(milliseconds) +
         "}, \"model\": {\"name\": \"mlp\"}, \"data\": {\"name\": \"synthetic\", "
         "\"shape\": [4]}, \"parallel\": {\"device\": \"cpu\", \"ranks\": 1}}";
}

// Longer than any test: whoever submits it ends it.
inline constexpr int kEndless = 1'000'000'000;

// The same, held at its tenth step until let_go().
inline std::string held_recipe(int steps) {
  auto recipe = short_recipe(steps);
  return recipe.insert(1, "\"optim\": {\"lr\": 14}, ");
}

// Lets a held job go on to this step, and to its end by default.
inline void let_go(const service::JobFolder& folder, int until = kEndless) {
  files::write_atomically(folder.path() / "until", std::to_string(until));
}

inline service::Identity as(const std::string& user,
                            service::Role role = service::Role::user) {
  return {.user = user, .role = role, .token = "token-of-" + user};
}

// A service over a folder that stays when it is started again, as after a kill: real
// supervisors, with a worker that computes nothing. No test leaves one behind.
class ServiceRig : public ::testing::Test {
 protected:
  using JobState = service::JobState;

  ~ServiceRig() override { end(); }

  void end() {
    if (!service_) return;
    end_supervisors();
    service_.reset();
  }

  void serve(config::ServerConfig config, int gpus = 0) {
    service_.reset();
    service_ = std::make_unique<service::Service>(
        service::ServiceOptions{.config = std::move(config),
                                .state = state_.path(),
                                .caller = quiet_caller(installation_.program()),
                                .machine = [gpus] { return machine_with(gpus); }});
    service_->start();
  }

  std::string submit(int steps, service::Submission more = {}) {
    more.recipe.text = short_recipe(steps);
    return service_->submit(ada_, more).id;
  }

  std::string submit_held(int steps, service::Submission more = {}) {
    more.recipe.text = held_recipe(steps);
    return service_->submit(ada_, more).id;
  }

  service::JobFolder folder(const std::string& id) {
    return service_->folder(admin_, id);
  }
  service::Job job(const std::string& id) { return service_->job(admin_, id); }

  bool reaches(const std::string& id, JobState state) {
    return eventually([&] { return job(id).state == state; });
  }

  FakeInstallation installation_;
  files::TemporaryDirectory state_;
  const service::Identity ada_ = as("ada");
  const service::Identity admin_ = as("root", service::Role::admin);
  std::unique_ptr<service::Service> service_;

 private:
  void end_supervisors() {
    for (const auto& job : service_->jobs(admin_, {.limit = 1000})) {
      const auto view = service::look_at_attempt(folder(job.id), job.attempt);
      if (view.status != service::AttemptStatus::alive) continue;
      service::signal_supervisor(*view.supervisor, SIGKILL);
    }
  }
};

}  // namespace lockstep::test
