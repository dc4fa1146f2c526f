#include "lockstep/base/leftovers.h"

#include <chrono>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/base/str.h"
#include "tests/support/support.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// Does it in a process that is killed in the middle.
void in_killed_child(const std::function<void()>& body) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    body();
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
}

TEST(Leftovers, WhatAKilledWriterLeftIsSweptAndTheFileStays) {
  const files::TemporaryDirectory place;
  test::write_file(place.path() / "run.json", "old");
  in_killed_child([&] {
    files::write_atomically(place.path() / "run.json",
                            [](int) { ::kill(::getpid(), SIGKILL); });
  });
  EXPECT_THAT(test::names_in(place.path()), SizeIs(2));
  files::sweep_leftovers(place.path());
  EXPECT_THAT(test::names_in(place.path()), ElementsAre("run.json"));
  EXPECT_EQ(test::read_file(place.path() / "run.json"), "old");
}

TEST(Leftovers, ATemporaryDirectoryOfAKilledProcessGoesWithTheNextOne) {
  const files::TemporaryDirectory place;
  in_killed_child([&] {
    const files::TemporaryDirectory own(place.path());
    test::write_file(own.path() / "inside" / "x", "");
    ::kill(::getpid(), SIGKILL);
  });
  EXPECT_THAT(test::names_in(place.path()), SizeIs(1));
  const files::TemporaryDirectory next(place.path());
  EXPECT_THAT(test::names_in(place.path()),
              ElementsAre(next.path().filename().string()));
}

TEST(Leftovers, WhatALivingProcessUsesStays) {
  const files::TemporaryDirectory place;
  const files::TemporaryDirectory mine(place.path());
  files::write_atomically(place.path() / "x", [&](int) {
    files::sweep_leftovers(place.path());
    EXPECT_THAT(test::names_in(place.path()), SizeIs(2));
  });
  EXPECT_THAT(test::names_in(place.path()), SizeIs(2)) << "the directory and x";
}

TEST(Leftovers, OfAnotherHostOnlyWhatNobodyHasTouchedForADay) {
  const files::TemporaryDirectory place;
  const auto young = place.path() / ".x.00000000-1.abcdef";
  const auto old = place.path() / ".y.00000000-1.abcdef";
  test::write_file(young, "");
  test::write_file(old, "");
  std::filesystem::last_write_time(
      old, std::filesystem::file_time_type::clock::now() - std::chrono::hours(25));
  files::sweep_leftovers(place.path());
  EXPECT_THAT(test::names_in(place.path()), ElementsAre(".x.00000000-1.abcdef"));
}

TEST(Leftovers, WhatIsNotOursStays) {
  const files::TemporaryDirectory place;
  const std::vector<std::string> names{".bashrc",
                                       ".run.json.ABC123",
                                       ".x.0000000g-1.abcdef",
                                       ".x.00000000-.abcdef",
                                       "lockstep.yaml",
                                       "x.00000000-1.abcdef"};
  for (const auto& name : names) {
    test::write_file(place.path() / name, "");
    std::filesystem::last_write_time(
        place.path() / name,
        std::filesystem::file_time_type::clock::now() - std::chrono::hours(1000));
  }
  files::sweep_leftovers(place.path());
  files::sweep_leftovers(place.path() / "nowhere");
  EXPECT_THAT(test::names_in(place.path()), SizeIs(names.size()));
}

TEST(Leftovers, AFileOfALongNameHasATemporaryThatFits) {
  const files::TemporaryDirectory place;
  const std::string name(255, 'n');
  files::write_atomically(place.path() / name, "content");
  EXPECT_EQ(test::read_file(place.path() / name), "content");
}

TEST(Leftovers, ALimitOfFileSizesIsNamed) {
  const files::TemporaryDirectory place;
  const int status = test::in_child([&] {
    test::limit_file_size(10);
    const auto error = test::error_of(
        [&] { files::write_atomically(place.path() / "x", "more than ten bytes"); });
    if (!error) return 1;
    return std::string(error->what()).find("ulimit -f") == std::string::npos ? 2 : 0;
  });
  EXPECT_EQ(status, 0);
  EXPECT_THAT(test::names_in(place.path()), ::testing::IsEmpty());
}

}  // namespace
}  // namespace lockstep
