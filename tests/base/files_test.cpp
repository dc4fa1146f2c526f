#include "lockstep/base/files.h"

#include <cerrno>
#include <future>
#include <thread>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/support/support.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Files, ReadReturnsTheWholeFile) {
  const files::TemporaryDirectory directory;
  const std::string content("a\0b\n", 4);
  test::write_file(directory.path() / "x", content);
  EXPECT_EQ(files::read(directory.path() / "x", 4), content);
}

TEST(Files, ReadRefusesWhatIsNotAReadableFile) {
  const files::TemporaryDirectory directory;
  const auto missing = directory.path() / "missing";
  EXPECT_THAT(test::error_text(Fault::io, [&] { files::read(missing, 10); }),
              HasSubstr("missing': No such file"));
  EXPECT_THAT(test::error_text(Fault::io, [&] { files::read(directory.path(), 10); }),
              HasSubstr("it is a directory"));
}

TEST(Files, ReadRefusesAFileAboveTheLimitAlsoWhenItsSizeIsUnknown) {
  const files::TemporaryDirectory directory;
  test::write_file(directory.path() / "x", "12345");
  EXPECT_THAT(
      test::error_text(Fault::io, [&] { files::read(directory.path() / "x", 4); }),
      HasSubstr("it has 5 B, the limit for such a file is 4 B"));
  EXPECT_THAT(test::error_text(Fault::io, [] { files::read("/proc/self/status", 8); }),
              HasSubstr("more than 8 B"));
}

TEST(Files, ReadWaitsForTheWriterOfAPipe) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const files::Descriptor out(ends[0]);
  files::Descriptor in(ends[1]);
  const auto path = "/dev/fd/" + std::to_string(out.get());
  auto content =
      std::async(std::launch::async, [&path] { return files::read(path, 100); });
  files::write_all(in.get(), "first ", path);
  // Taken out of the pipe: the reader now waits for more.
  EXPECT_TRUE(test::eventually([&] {
    int waiting = 1;
    return ::ioctl(in.get(), FIONREAD, &waiting) == 0 && waiting == 0;
  }));
  files::write_all(in.get(), "second", path);
  in.reset();
  EXPECT_EQ(content.get(), "first second");
}

TEST(Files, ReadOfAPipeWithoutAWriterIsEmpty) {
  const files::TemporaryDirectory directory;
  const auto path = directory.path() / "fifo";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(files::read(path, 100), "");
}

TEST(Files, ReadTailStartsAtALine) {
  const files::TemporaryDirectory directory;
  const auto path = directory.path() / "log";
  EXPECT_EQ(files::read_tail(path, 100), "");
  test::write_file(path, "first\nsecond\nthird\n");
  EXPECT_EQ(files::read_tail(path, 100), "first\nsecond\nthird\n");
  EXPECT_EQ(files::read_tail(path, 16), "second\nthird\n");
  EXPECT_EQ(files::read_tail(path, 3), "");
}

TEST(Files, AtomicWriteReplacesTheFileAndLeavesNothingElse) {
  const files::TemporaryDirectory directory;
  const auto path = directory.path() / "run.json";
  files::write_atomically(path, "old");
  files::write_atomically(path, "new");
  EXPECT_EQ(test::read_file(path), "new");
  EXPECT_THAT(test::names_in(directory.path()), ElementsAre("run.json"));
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0644U);
}

TEST(Files, AtomicWriteThatFailsKeepsTheOldContent) {
  const files::TemporaryDirectory directory;
  const auto path = directory.path() / "run.json";
  files::write_atomically(path, "old");
  const int status = test::in_child([&] {
    test::limit_file_size(100);
    const auto error =
        test::error_of([&] { files::write_atomically(path, std::string(1000, 'x')); });
    return error && error->fault() == Fault::io ? 0 : 1;
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(test::read_file(path), "old");
  EXPECT_THAT(test::names_in(directory.path()), ElementsAre("run.json"));
}

TEST(Files, AtomicWriteIntoAMissingDirectoryNamesThePath) {
  const files::TemporaryDirectory directory;
  const auto path = directory.path() / "no" / "x";
  EXPECT_THAT(test::error_text(Fault::io, [&] { files::write_atomically(path, ""); }),
              HasSubstr("no/x': No such file"));
}

TEST(Files, AtomicWriteGoesThroughALinkAndTheLinkStays) {
  const files::TemporaryDirectory directory;
  const auto link = directory.path() / "link", far = directory.path() / "far" / "x";
  std::filesystem::create_directory(directory.path() / "far");
  std::filesystem::create_symlink("far/y", link);
  std::filesystem::create_symlink("x", directory.path() / "far" / "y");
  files::write_atomically(link, "new");  // of a link to a link to nothing
  EXPECT_EQ(test::read_file(far), "new");
  files::write_atomically(link, "newer");
  EXPECT_EQ(test::read_file(far), "newer");
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_TRUE(std::filesystem::is_symlink(directory.path() / "far" / "y"));
  EXPECT_EQ(files::replaceable(link), directory.path() / "far" / "x");
  std::filesystem::create_symlink("ring", directory.path() / "ring");
  EXPECT_THAT(
      test::error_text(
          Fault::io, [&] { files::write_atomically(directory.path() / "ring", "x"); }),
      HasSubstr("Too many levels"));
}

TEST(Files, AtomicWriteWritesToADeviceAndLeavesItOne) {
  const files::TemporaryDirectory directory;
  const auto full = test::full_device(directory.path());
  EXPECT_THAT(
      test::error_text(Fault::io, [&] { files::write_atomically(full, "x"); }),
      HasSubstr("cannot write '" + full.string() + "': No space left on device"));
  EXPECT_TRUE(std::filesystem::is_character_file(full));
}

TEST(Files, AtomicWriteIntoAPipeReachesItsReader) {
  const files::TemporaryDirectory directory;
  const auto fifo = directory.path() / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THAT(test::error_text(Fault::io, [&] { files::write_atomically(fifo, "x"); }),
              HasSubstr("a pipe that nobody reads"));
  const files::Descriptor reader(
      ::open(fifo.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  files::write_atomically(fifo, "line\n");
  char got[6] = {};
  EXPECT_EQ(::read(reader.get(), got, 5), 5);
  EXPECT_STREQ(got, "line\n");
  EXPECT_TRUE(std::filesystem::is_fifo(fifo));
  EXPECT_THAT(test::names_in(directory.path()), ElementsAre("fifo"));
}

TEST(Files, AtomicWriteToAnOpenFileWithoutANameReachesIt) {
  const files::TemporaryDirectory directory;
  const auto path = directory.path() / "x";
  const files::Descriptor file(
      ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  std::filesystem::remove(path);
  files::write_atomically("/proc/self/fd/" + std::to_string(file.get()), "text");
  char got[5] = {};
  EXPECT_EQ(::pread(file.get(), got, 4, 0), 4);
  EXPECT_STREQ(got, "text");
  EXPECT_THAT(test::names_in(directory.path()), ElementsAre());
}

TEST(Files, WhatCanNeitherBeReplacedNorWrittenToIsRefused) {
  const files::TemporaryDirectory directory;
  const auto socket_path = directory.path() / "socket";
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  socket_path.string().copy(address.sun_path, sizeof address.sun_path - 1);
  const files::Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
      0);
  std::filesystem::create_directory(directory.path() / "folder");
  for (const auto* name : {"socket", "folder"}) {
    const auto path = directory.path() / name;
    EXPECT_THAT(test::error_text(Fault::io, [&] { files::write_atomically(path, ""); }),
                HasSubstr(std::string("it is a ") +
                          (path == socket_path ? "socket" : "directory")));
  }
  const auto device = test::full_device(directory.path());
  EXPECT_THAT(test::error_text(Fault::io, [&] { files::replaceable(device); }),
              HasSubstr("it is a device"));
  EXPECT_TRUE(std::filesystem::is_socket(socket_path));
}

TEST(Files, AFullDeviceIsAnErrorWithItsRemedy) {
  const files::Descriptor full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  ASSERT_TRUE(full);
  EXPECT_THAT(
      test::error_text(Fault::io, [&] { files::write_all(full.get(), "x", "place"); }),
      HasSubstr("cannot write 'place': No space left on device; free some space"));
}

TEST(Files, AnUnwritableDirectoryIsAnErrorWithItsRemedy) {
  const files::TemporaryDirectory directory;
  std::filesystem::permissions(directory.path(), std::filesystem::perms(0555));
  const int status = test::in_child([&] {
    if (!test::become_nobody()) return 1;
    const auto error =
        test::error_of([&] { files::write_atomically(directory.path() / "x", "y"); });
    if (!error) return 2;
    const std::string text = error->what();
    return text.find("check the permissions") == std::string::npos ? 3 : 0;
  });
  EXPECT_EQ(status, 0);
}

TEST(Files, MakeNewDirectoryMakesParentsAndSaysIfItExists) {
  const files::TemporaryDirectory directory;
  const auto path = directory.path() / "a" / "b";
  EXPECT_TRUE(files::make_new_directory(path));
  EXPECT_FALSE(files::make_new_directory(path));
  test::write_file(directory.path() / "file", "");
  test::error_text(Fault::io,
                   [&] { files::make_new_directory(directory.path() / "file" / "x"); });
}

TEST(Files, LineWriterAppendsAndEndsATornLineFirst) {
  const files::TemporaryDirectory directory;
  const auto path = directory.path() / "events";
  test::write_file(path, "{\"whole\":1}\n{\"to");
  files::LineWriter lines(path);
  lines.write("next");
  lines.sync();
  EXPECT_EQ(test::read_file(path), "{\"whole\":1}\n{\"to\nnext\n");
}

TEST(Files, LinesOfSeveralWritersDoNotMix) {
  const files::TemporaryDirectory directory;
  const auto path = directory.path() / "lines";
  constexpr int kLines = 200;
  {
    std::vector<std::jthread> writers;
    for (const char letter : {'a', 'b', 'c'}) {
      writers.emplace_back([&path, letter] {
        files::LineWriter lines(path);
        for (int i = 0; i < kLines; ++i) lines.write(std::string(100, letter));
      });
    }
  }
  const auto content = test::read_file(path);
  ASSERT_EQ(content.size(), 3U * kLines * 101U);
  for (std::size_t at = 0; at < content.size(); at += 101) {
    ASSERT_EQ(content.substr(at, 101), std::string(100, content[at]) + "\n");
  }
}

TEST(Files, ADescriptorHasOneOwner) {
  files::Descriptor first(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int fd = first.get();
  files::Descriptor second(std::move(first));
  EXPECT_FALSE(first);  // NOLINT: what a moved-from one holds is the point
  EXPECT_EQ(second.get(), fd);
  second.reset();
  errno = 0;
  EXPECT_EQ(::fcntl(fd, F_GETFD), -1);
  EXPECT_EQ(errno, EBADF);
}

TEST(Files, ATemporaryDirectoryTakesItsContentWithIt) {
  files::Path path;
  {
    const files::TemporaryDirectory directory;
    path = directory.path();
    test::write_file(path / "deep" / "x", "y");
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace lockstep
