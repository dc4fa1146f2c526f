// The steady state of a step allocates nothing on the heap by code of ours: every
// operator new that is called from this program, not from LibTorch's libraries, is
// counted.
#include <atomic>
#include <cstdlib>
#include <new>

#include <execinfo.h>

#include "lockstep/monitor/console.h"
#include "lockstep/train/callbacks.h"
#include "lockstep/train/trainer.h"
#include "tests/train/small_data.h"

namespace {

// Of the thread that trains: the loader's have a test of their own, and who samples the
// machine has all the time it wants.
thread_local bool counts_allocations = false;   // NOLINT: an allocator has no object
std::atomic<std::int64_t> own_allocations = 0;  // NOLINT
std::array<std::atomic<void*>, 64> allocated_at{};  // NOLINT

}  // namespace

// Of the linker: the code of this program.
extern "C" char __executable_start, etext;  // NOLINT

// A sanitizer has its own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
[[gnu::noinline]] void* operator new(std::size_t size) {
  if (counts_allocations) {
    auto* caller = static_cast<char*>(__builtin_return_address(0));
    if (caller >= &__executable_start && caller < &etext) {
      const auto i = static_cast<std::size_t>(own_allocations++);
      if (i < allocated_at.size()) allocated_at[i] = caller;
    }
  }
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace lockstep::train {
namespace {

// Counts from the begin of one step to that of another.
struct Counter : Callback {
  void on_step_begin(const RunContext& m, const data::Batch&) override {
    if (m.step == 20) {
      own_allocations = 0;
      counts_allocations = true;
    }
    if (m.step == 30) counts_allocations = false;
  }
};

std::string places() {
  std::string text;
  const auto count = std::min<std::int64_t>(own_allocations, allocated_at.size());
  for (std::int64_t i = 0; i < count; ++i) {
    const auto* at =
        static_cast<char*>(allocated_at[static_cast<std::size_t>(i)].load());
    text += str(std::hex, at - &__executable_start, " ");
  }
  return text;
}

std::int64_t allocations_of(const config::Config& config) {
  const files::TemporaryDirectory folder;
  const auto run = run::RunDirectory::create(folder.path() / "runs", {.name = "r"});
  monitor::Console console({.write = [](std::string_view) {}});
  const StopRequest stop;
  auto world = comm::join({}, {});
  Reporter reporter({run, console}, config.monitor, {});
  train(test::resolved(config), {run, reporter, stop, world},
        {.callbacks = {std::make_shared<Counter>()}});
  return own_allocations;
}

TEST(StepAllocation, IsCountedIfItIsOurs) {
  own_allocations = 0;
  counts_allocations = true;
  ::operator delete(::operator new(8));
  const auto tensor = torch::zeros({1 << 20});
  counts_allocations = false;
  EXPECT_EQ(own_allocations, 1) << "LibTorch's are not";
}

TEST(StepAllocation, LoaderEngineAndLoopHaveNoneInASteadyStep) {
  auto config = test::quick_config();
  config.data.train_samples = 192;  // batches are all of one size
  config.train.steps = 31;
  config.train.log_every = 1000;
  config.batch.micro = 8;  // two passes
  config.optim.clip_norm = 1;
  // But what autograd wants as objects on the heap: the list that a hook of a parameter
  // gives back for each pass, and what is called at the end of a step, with its token.
  constexpr int kSteps = 10, kPasses = 2, kParameters = 6;
  EXPECT_EQ(allocations_of(config), kSteps * (kPasses * kParameters + 2)) << places();
}

}  // namespace
}  // namespace lockstep::train
#endif
