#include "lockstep/launcher/activity.h"

#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/base/files.h"
#include "tests/support/support.h"

namespace lockstep {
namespace {

using launcher::Activity;
using launcher::GpuWatch;
using launcher::is_ending;
using launcher::process_state;
using launcher::read_activity;
using std::chrono::milliseconds;

constexpr int kCanNotBeTried = 77;
constexpr std::size_t kPage = 4096;

// A process that does one thing again and again, until it is killed.
class Doing {
 public:
  explicit Doing(const std::function<void()>& what) : pid_(::fork()) {
    if (pid_ != 0) return;
    while (true) what();
  }
  ~Doing() {
    ::kill(pid_, SIGKILL);
    if (!ended_) ::waitpid(pid_, nullptr, 0);
  }
  Doing(const Doing&) = delete;
  Doing& operator=(const Doing&) = delete;

  pid_t pid() const { return pid_; }
  Activity activity() const { return read_activity(pid_).value(); }

  // Whether it has said that this machine does not let it.
  bool can_not() {
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) != pid_) return false;
    ended_ = true;
    return WIFEXITED(status) && WEXITSTATUS(status) == kCanNotBeTried;
  }

 private:
  const pid_t pid_;
  bool ended_ = false;
};

void sleep_a_little() {
  std::this_thread::sleep_for(milliseconds(5));
}

// On a disk more likely than the place for temporary files.
test::Path own_folder() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path();
}

TEST(ActivityOf, OneThatSleepsIsNothing) {
  const Doing sleeps([] { ::pause(); });
  EXPECT_TRUE(test::eventually([&] { return process_state(sleeps.pid()) == 'S'; }));
  const auto before = sleeps.activity();
  std::this_thread::sleep_for(milliseconds(300));
  const auto now = sleeps.activity();
  // Where a tick is counted: by the kernel, of whatever interrupted it.
  EXPECT_LT(now.cpu_seconds - before.cpu_seconds, 0.03);
  EXPECT_EQ(now.io_bytes, before.io_bytes);
  EXPECT_EQ(now.storage_bytes, before.storage_bytes);
  EXPECT_EQ(now.major_page_faults, before.major_page_faults);
  EXPECT_FALSE(now.in_kernel);
}

TEST(ActivityOf, OneThatSpinsIsCpuTime) {
  const Doing spins([] {});
  EXPECT_TRUE(test::eventually([&] { return spins.activity().cpu_seconds > 0.2; }));
  EXPECT_EQ(process_state(spins.pid()), 'R');
}

// Pages of fresh memory are filled with zeros by the kernel, on the time of the one who
// touches them.
TEST(ActivityOf, OneThatTouchesFreshMemoryIsCpuTime) {
  const Doing touches([] {
    constexpr std::size_t kBytes = 1 << 20;
    void* fresh = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    auto* bytes = static_cast<volatile char*>(fresh);
    for (std::size_t i = 0; i < kBytes; i += kPage) bytes[i] = 1;
    ::munmap(fresh, kBytes);
  });
  EXPECT_TRUE(test::eventually([&] { return touches.activity().cpu_seconds > 0.2; }));
}

TEST(ActivityOf, OneThatReadsAndSleepsIsBytes) {
  const int zero = ::open("/dev/zero", O_RDONLY | O_CLOEXEC);
  std::vector<char> buffer(1 << 20);
  const Doing reads([&] {
    if (::read(zero, buffer.data(), buffer.size()) < 0) ::_exit(1);
    sleep_a_little();
  });
  EXPECT_TRUE(test::eventually([&] { return reads.activity().io_bytes > 5 << 20; }));
  ::close(zero);
}

TEST(ActivityOf, OneThatWritesIsBytesOfAFile) {
  const files::TemporaryDirectory folder;
  const auto path = folder.path() / "file";
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  const std::vector<char> buffer(1 << 16);
  const Doing writes([&] {
    if (::pwrite(file, buffer.data(), buffer.size(), 0) < 0) ::_exit(1);
    sleep_a_little();
  });
  EXPECT_TRUE(test::eventually([&] { return writes.activity().io_bytes > 1 << 20; }));
  ::close(file);
}

// Past the page cache, as loaders of large files do.
TEST(ActivityOf, OneThatReadsADiskIsBytesOfStorage) {
  const files::TemporaryDirectory folder(own_folder());
  const auto path = folder.path() / "file";
  test::write_file(path, std::string(1 << 16, 'x'));
  const files::Descriptor file(
      ::open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC, 0644));
  if (!file) GTEST_SKIP() << "this file system has no O_DIRECT";
  ASSERT_EQ(::syncfs(file.get()), 0);
  void* aligned = ::aligned_alloc(kPage, 1 << 16);
  Doing reads([&] {
    const auto counted = [] {
      rusage usage{};
      ::getrusage(RUSAGE_SELF, &usage);
      return usage.ru_inblock;
    };
    const auto before = counted();
    if (::pread(file.get(), aligned, 1 << 16, 0) < 0) ::_exit(kCanNotBeTried);
    if (counted() == before) ::_exit(kCanNotBeTried);
    sleep_a_little();
  });
  bool can_not = false;
  EXPECT_TRUE(test::eventually([&] {
    can_not = reads.can_not();
    return can_not || reads.activity().storage_bytes > 1 << 20;
  }));
  std::free(aligned);
  if (can_not) GTEST_SKIP() << "the kernel counts no bytes of this file system's disk";
}

// A program, or a mapped file, of which memory holds nothing any more.
TEST(ActivityOf, OneThatWaitsForPagesOfAFileIsMajorFaults) {
  const files::TemporaryDirectory folder(own_folder());
  const auto path = folder.path() / "file";
  constexpr std::size_t kBytes = 64 * kPage;
  test::write_file(path, std::string(kBytes, 'x'));
  const files::Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::fsync(file.get()), 0);
  Doing faults([&] {
    rusage before{}, after{};
    ::getrusage(RUSAGE_SELF, &before);
    ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
    void* mapped = ::mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, file.get(), 0);
    ::madvise(mapped, kBytes, MADV_RANDOM);
    const auto* bytes = static_cast<const volatile char*>(mapped);
    for (std::size_t i = 0; i < kBytes; i += kPage) static_cast<void>(bytes[i]);
    ::munmap(mapped, kBytes);
    ::getrusage(RUSAGE_SELF, &after);
    if (after.ru_majflt == before.ru_majflt) ::_exit(kCanNotBeTried);
    sleep_a_little();
  });
  bool can_not = false;
  EXPECT_TRUE(test::eventually([&] {
    can_not = faults.can_not();
    return can_not || faults.activity().major_page_faults > 100;
  }));
  if (can_not) GTEST_SKIP() << "this file system keeps its pages in memory";
}

TEST(ActivityOf, OneThatIsStoppedIsSoUntilItGoesOn) {
  const Doing spins([] {});
  ::kill(spins.pid(), SIGSTOP);
  EXPECT_TRUE(test::eventually([&] { return process_state(spins.pid()) == 'T'; }));
  const auto before = spins.activity();
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(spins.activity().cpu_seconds, before.cpu_seconds);
  ::kill(spins.pid(), SIGCONT);
  EXPECT_TRUE(test::eventually([&] { return process_state(spins.pid()) == 'R'; }));
}

TEST(ActivityOf, OneThatHasEndedIsNotKnown) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(0);
  ::waitpid(pid, nullptr, 0);
  EXPECT_FALSE(read_activity(pid));
  EXPECT_EQ(process_state(pid), 'X');
  EXPECT_TRUE(is_ending(pid));
}

TEST(ActivityOf, OneThatEndsIsSoBeforeItCanBeWaitedFor) {
  const Doing spins([] {});
  EXPECT_FALSE(is_ending(spins.pid()));
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(0);
  EXPECT_TRUE(test::eventually([&] { return is_ending(pid); }));  // a zombie by then
  ::waitpid(pid, nullptr, 0);
  const files::TemporaryDirectory proc;
  std::filesystem::create_directories(proc.path() / "7");
  const auto has_flags = [&](int flags) {
    test::write_file(proc.path() / "7" / "stat",
                     str("7 (a) S 1 7 7 0 -1 ", flags, " 5"));
    return is_ending(7, proc.path());
  };
  EXPECT_FALSE(has_flags(0x400040));
  EXPECT_TRUE(has_flags(0x400044));
}

// A process whose name is no help to who reads its line, with a thread that waits for a
// disk and one that waits for a CPU.
TEST(ActivityOf, AllThreadsCountWhateverTheirNames) {
  const files::TemporaryDirectory proc;
  const auto write = [&](const std::string& name, const std::string& content) {
    const auto path = proc.path() / "7" / name;
    std::filesystem::create_directories(path.parent_path());
    test::write_file(path, content);
  };
  const std::string head = "7 (a) R 1 (b",
                    tail = " 1 7 7 0 -1 0 5 0 31 0 250 50 0 0 20 0";
  write("stat", head + ") S" + tail);
  write("io", "rchar: 100\nwchar: 20\nsyscr: 9\nread_bytes: 3\nwrite_bytes: 4\n");
  write("task/7/stat", head + ") S" + tail);
  write("task/7/schedstat", "5000000000 250000000 12\n");
  write("task/8/stat", head + ") D" + tail);
  write("task/8/schedstat", "5000000000 500000000 12\n");
  EXPECT_EQ(process_state(7, proc.path()), 'S');
  const auto seen = read_activity(7, proc.path()).value();
  const double ticks = 300.0 / static_cast<double>(::sysconf(_SC_CLK_TCK));
  EXPECT_DOUBLE_EQ(seen.cpu_seconds, ticks + 0.75);
  EXPECT_EQ(seen.io_bytes, 120);
  EXPECT_EQ(seen.storage_bytes, 7);
  EXPECT_EQ(seen.major_page_faults, 31);
  EXPECT_TRUE(seen.in_kernel);
}

// Time that another thread may look at.
class SharedClock : public Clock {
 public:
  SteadyTime now() const override { return SteadyTime(milliseconds(now_.load())); }
  WallTime wall() const override { return {}; }
  void advance(milliseconds by) { now_ += by.count(); }

 private:
  std::atomic<std::int64_t> now_{1};
};

// GPUs that are as busy as the test says, or do not answer. Of the thread, too, which
// may look once more when the test is over.
struct MadeUpGpus {
  GpuWatch::Read reader(const std::shared_ptr<MadeUpGpus>& self) const {
    return [self] {
      while (self->hangs) sleep_a_little();
      std::vector<hardware::GpuStatus> statuses(self->percent.size());
      for (std::size_t i = 0; i < statuses.size(); ++i) {
        const int now = self->percent[i];
        if (now >= 0) statuses[i].utilization_percent = now;
      }
      ++self->reads;
      return statuses;
    };
  }

  std::vector<std::atomic<int>> percent = std::vector<std::atomic<int>>(3);
  std::atomic<bool> hangs{false};
  std::atomic<int> reads{0};
  SharedClock clock;
};

class WatchedGpus : public ::testing::Test {
 protected:
  GpuWatch watch(std::vector<GpuWatch::GpusOfRank> by_rank) const {
    return GpuWatch(std::move(by_rank), gpus_->clock, gpus_->reader(gpus_));
  }
  // What is known once the GPUs have been asked again, which they are twice a second.
  std::optional<bool> next(GpuWatch& watch, int rank) const {
    static_cast<void>(watch.is_busy(rank));  // the first question starts the thread
    const int before = gpus_->reads;
    // The second of two readings began after this was called.
    EXPECT_TRUE(test::eventually([&] { return gpus_->reads >= before + 2; }));
    return watch.is_busy(rank);
  }

  std::shared_ptr<MadeUpGpus> gpus_ = std::make_shared<MadeUpGpus>();
};

TEST_F(WatchedGpus, AreBusyForTheRanksThatHaveThem) {
  gpus_->percent[1] = 40;
  auto watch = this->watch({std::vector{0}, std::vector{0, 1}, std::nullopt});
  EXPECT_EQ(next(watch, 0), false);
  EXPECT_EQ(watch.is_busy(1), true);
  EXPECT_EQ(watch.is_busy(2), true) << "it may have any of them";
  gpus_->percent[1] = 0;
  EXPECT_EQ(next(watch, 1), false);
  EXPECT_EQ(watch.is_busy(2), false);
}

TEST_F(WatchedGpus, AreNotAskedForARankWithoutAny) {
  auto watch = this->watch({std::vector<int>{}});
  EXPECT_EQ(watch.is_busy(0), false);
  EXPECT_EQ(gpus_->reads, 0);
}

TEST_F(WatchedGpus, AreNotKnownBeforeTheFirstAnswerNorWhereTheDriverDoesNotSay) {
  gpus_->hangs = true;
  auto watch = this->watch({std::vector{0}, std::vector{5}, std::vector{2}});
  EXPECT_EQ(watch.is_busy(0), std::nullopt);
  gpus_->hangs = false;
  gpus_->percent[2] = -1;
  EXPECT_EQ(next(watch, 0), false);
  EXPECT_EQ(watch.is_busy(1), std::nullopt) << "there is no such GPU";
  EXPECT_EQ(watch.is_busy(2), std::nullopt);
}

TEST_F(WatchedGpus, AreNotKnownWhenADriverHangs) {
  auto watch = this->watch({std::vector{0}});
  EXPECT_EQ(next(watch, 0), false);
  gpus_->hangs = true;
  gpus_->clock.advance(milliseconds(2'000));
  EXPECT_EQ(watch.is_busy(0), false) << "of two seconds ago";
  gpus_->clock.advance(milliseconds(1'500));
  EXPECT_EQ(watch.is_busy(0), std::nullopt);
  gpus_->hangs = false;
  EXPECT_EQ(next(watch, 0), false);
}

}  // namespace
}  // namespace lockstep
