// What jobs on GPUs get from the service, on a machine that is made up: which GPUs they
// see, and how much of them. The worker computes nothing.
#include <csignal>

#include "tests/service/rig.h"

namespace lockstep::service {
namespace {

using ::testing::HasSubstr;

class GpuJobsTest : public test::ServiceRig {
 protected:
  GpuJobsTest() {
    config_.queue.cores = 2;
    serve(config_, /*gpus=*/2);
  }

  std::string submit_on(const Resources& resources) {
    return submit_held(30, {.resources = resources});
  }

  // The value of a variable of the job's supervisor.
  std::string variable(const std::string& id, const std::string& name) {
    const auto view = look_at_attempt(folder(id), job(id).attempt);
    if (!view.supervisor) return "no supervisor";
    std::string all("\0", 1);
    all +=
        test::read_file("/proc/" + std::to_string(view.supervisor->pid) + "/environ");
    const auto at = all.find('\0' + name + "=");
    if (at == std::string::npos) return "not set";
    const auto begin = at + name.size() + 2;
    return all.substr(begin, all.find('\0', begin) - begin);
  }

  std::string fraction_of(const std::string& id) {
    std::string last = "none";
    for (const auto& [key, value] : read_order(folder(id)).overrides) {
      if (key == "memory.fraction") last = value;
    }
    return last;
  }

  config::ServerConfig config_;
};

TEST_F(GpuJobsTest, AJobSeesItsGpusAndNoOthers) {
  const auto first = submit_on({.cores = 1, .gpus = 1});
  ASSERT_TRUE(reaches(first, JobState::running)) << job(first).reason;
  const auto second = submit_on({.cores = 1, .gpus = 1});
  ASSERT_TRUE(reaches(second, JobState::running)) << job(second).reason;
  EXPECT_EQ(variable(first, "CUDA_VISIBLE_DEVICES"), "0");
  EXPECT_EQ(variable(second, "CUDA_VISIBLE_DEVICES"), "1");
  service_->cancel(ada_, second);
  ASSERT_TRUE(reaches(second, JobState::cancelled));
  const auto without = submit_on({.cores = 1});
  ASSERT_TRUE(reaches(without, JobState::running)) << job(without).reason;
  EXPECT_EQ(variable(without, "CUDA_VISIBLE_DEVICES"), "");
}

TEST_F(GpuJobsTest, APausedJobGoesOnOnAnotherGpu) {
  const auto id = submit_on({.cores = 1, .gpus = 1, .gpu_ids = {0}});
  ASSERT_TRUE(reaches(id, JobState::running)) << job(id).reason;
  service_->pause(ada_, id);
  ASSERT_TRUE(reaches(id, JobState::paused)) << job(id).reason;
  service_->resume(ada_, id, Resources{.cores = 1, .gpus = 1, .gpu_ids = {1}});
  ASSERT_TRUE(reaches(id, JobState::running)) << job(id).reason;
  EXPECT_EQ(variable(id, "CUDA_VISIBLE_DEVICES"), "1");
}

// Whoever has a share of a GPU may not take more of its memory, nor after a resume with
// another share what it had before.
TEST_F(GpuJobsTest, AShareOfAGpuIsAShareOfItsMemory) {
  const auto id = submit_on({.cores = 1, .gpus = 1, .memory_fraction = 0.5});
  ASSERT_TRUE(reaches(id, JobState::running)) << job(id).reason;
  EXPECT_EQ(fraction_of(id), "0.5");
  for (const auto& [share, wanted] :
       {std::pair(0.25, "0.25"), std::pair(0.0, "none")}) {
    service_->pause(ada_, id);
    ASSERT_TRUE(reaches(id, JobState::paused)) << job(id).reason;
    service_->resume(ada_, id,
                     Resources{.cores = 1, .gpus = 1, .memory_fraction = share});
    ASSERT_TRUE(reaches(id, JobState::running)) << job(id).reason;
    EXPECT_EQ(fraction_of(id), wanted);
  }
}

}  // namespace
}  // namespace lockstep::service
