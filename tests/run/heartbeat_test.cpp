#include "lockstep/run/heartbeat.h"

#include <thread>

#include <fcntl.h>
#include <unistd.h>

#include "tests/support/support.h"

namespace lockstep {
namespace {

using run::HeartbeatReader;
using run::HeartbeatWriter;
using run::Phase;
using ::testing::HasSubstr;

TEST(Heartbeat, ABeatIsReadBack) {
  const files::TemporaryDirectory directory;
  const auto path = directory.path() / "heartbeat";
  ManualClock clock;
  HeartbeatWriter writer(path, {1, 3}, clock);
  writer.beat(7, Phase::training);
  clock.advance(std::chrono::milliseconds(250));
  writer.beat(8, Phase::evaluating);
  const HeartbeatReader reader(path);
  EXPECT_EQ(reader.ranks(), 3);
  const auto beat = reader.read(1);
  ASSERT_TRUE(beat);
  EXPECT_EQ(beat->step, 8);
  EXPECT_EQ(beat->phase, Phase::evaluating);
  EXPECT_EQ(run::name_of(beat->phase), "evaluating");
  EXPECT_DOUBLE_EQ(beat->time, 1700000000.25);
  EXPECT_EQ(beat->pid, ::getpid());
}

TEST(Heartbeat, ARankThatHasNotBeatenHasNoBeat) {
  const files::TemporaryDirectory directory;
  const auto path = directory.path() / "heartbeat";
  const HeartbeatWriter writer(path, {0, 2});
  const HeartbeatReader reader(path);
  EXPECT_EQ(reader.read(0), std::nullopt);
  EXPECT_EQ(reader.read(1), std::nullopt);
  EXPECT_EQ(reader.read(-1), std::nullopt);
  EXPECT_EQ(reader.read(2), std::nullopt);
}

TEST(Heartbeat, RanksShareAFileInAnyOrder) {
  const files::TemporaryDirectory directory;
  const auto path = directory.path() / "heartbeat";
  HeartbeatWriter second(path, {1, 2});
  second.beat(2, Phase::saving);
  HeartbeatWriter first(path, {0, 2});  // comes later and must not wipe the other
  first.beat(1, Phase::starting);
  const HeartbeatReader reader(path);
  EXPECT_EQ(reader.read(0)->step, 1);
  EXPECT_EQ(reader.read(1)->step, 2);
}

TEST(Heartbeat, TheLayoutIsAFormat) {
  const files::TemporaryDirectory directory;
  const auto path = directory.path() / "heartbeat";
  HeartbeatWriter writer(path, {0, 1});
  writer.beat(5, Phase::finished);
  const auto bytes = test::read_file(path);
  ASSERT_EQ(bytes.size(), 128U);
  EXPECT_EQ(bytes.substr(0, 8), "LSHEART\n");
  EXPECT_EQ(bytes[8], 1);       // version
  EXPECT_EQ(bytes[12], 1);      // ranks
  EXPECT_EQ(bytes[64 + 4], 5);  // phase
  EXPECT_EQ(bytes[64 + 8], 5);  // step
}

// A writer in slow motion: it follows the protocol with a system call for every store,
// so that it is in the middle of a beat most of the time.
void beat_slowly(const files::Path& path, const std::stop_token& stop) {
  const files::Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  const auto put = [&](std::uint32_t value, off_t at) {
    EXPECT_EQ(::pwrite(file.get(), &value, sizeof value, 64 + at), 4);
  };
  for (std::uint32_t i = 2; !stop.stop_requested(); ++i) {
    put(2 * i - 1, 0);  // sequence: odd
    put(i % 6, 4);      // phase
    put(i, 8);          // step
    put(2 * i, 0);      // sequence: even
    std::this_thread::yield();
  }
}

TEST(Heartbeat, AReaderNeverSeesHalfABeat) {
  const files::TemporaryDirectory directory;
  const auto path = directory.path() / "heartbeat";
  HeartbeatWriter(path, {0, 1}).beat(1, Phase::training);
  const std::jthread writer(
      [&](const std::stop_token& stop) { beat_slowly(path, stop); });
  const HeartbeatReader reader(path);
  std::int64_t last = 0;
  const bool far_enough = test::eventually([&] {
    for (int i = 0; i < 100; ++i) {
      const auto beat = reader.read(0);
      if (!beat) continue;
      EXPECT_EQ(beat->step % 6, static_cast<std::int64_t>(beat->phase));
      EXPECT_GE(beat->step, last);
      last = beat->step;
    }
    return last > 2000 || ::testing::Test::HasFailure();
  });
  EXPECT_TRUE(far_enough);
}

TEST(Heartbeat, AWriterThatDiedInTheMiddleGivesNoBeat) {
  const files::TemporaryDirectory directory;
  const auto path = directory.path() / "heartbeat";
  HeartbeatWriter(path, {0, 1}).beat(3, Phase::training);
  auto bytes = test::read_file(path);
  bytes[64] = 3;  // an odd sequence
  test::write_file(path, bytes);
  EXPECT_EQ(HeartbeatReader(path).read(0), std::nullopt);
  HeartbeatWriter(path, {0, 1}).beat(4, Phase::training);  // its successor repairs it
  EXPECT_EQ(HeartbeatReader(path).read(0)->step, 4);
}

TEST(Heartbeat, OtherFilesAreRefusedAndAShortOneHasNoBeat) {
  const files::TemporaryDirectory directory;
  const auto path = directory.path() / "heartbeat";
  EXPECT_THAT(test::error_text(Fault::io, [&] { HeartbeatReader reader(path); }),
              HasSubstr("cannot open"));
  test::write_file(path, "something else");
  EXPECT_THAT(test::error_text(Fault::io, [&] { HeartbeatReader reader(path); }),
              HasSubstr("is not a heartbeat file"));
  std::filesystem::remove(path);
  HeartbeatWriter(path, {0, 2}).beat(3, Phase::training);
  std::filesystem::resize_file(path, 100);
  EXPECT_EQ(HeartbeatReader(path).read(0), std::nullopt);
}

TEST(Heartbeat, ANewerVersionIsRefused) {
  const files::TemporaryDirectory directory;
  const auto path = directory.path() / "heartbeat";
  HeartbeatWriter(path, {0, 1}).beat(1, Phase::training);
  auto bytes = test::read_file(path);
  bytes[8] = 2;
  test::write_file(path, bytes);
  EXPECT_THAT(test::error_text(Fault::io, [&] { HeartbeatReader reader(path); }),
              HasSubstr("has version 2"));
}

TEST(Heartbeat, AFullDiskIsAnErrorNotASignal) {
  const files::TemporaryDirectory directory;
  const auto path = directory.path() / "heartbeat";
  const int status = test::in_child([&] {
    test::limit_file_size(64);
    const auto error = test::error_of([&] { HeartbeatWriter writer(path, {0, 4}); });
    return error && error->fault() == Fault::io ? 0 : 1;
  });
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace lockstep
