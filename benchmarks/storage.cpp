// How fast is a checkpoint written and read, with every byte hashed?
//
//   bench_storage [MEGABYTES] [ROUNDS] [FOLDER]
//
// In turn, in FOLDER (default: here): plain O_DIRECT writes of the same bytes from
// aligned memory with one fsync, the publisher, plain reads, the reader. Medians, one
// JSON line.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "benchmarks/support.h"
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lockstep/base/files.h"
#include "lockstep/storage/publish.h"
#include "lockstep/storage/reader.h"

using namespace lockstep;  // NOLINT: a program of one file

namespace {

using Path = std::filesystem::path;
using Steady = std::chrono::steady_clock;

constexpr std::size_t kWrite = 8 << 20;
constexpr std::size_t kHugePage = 2 << 20;

double seconds_since(Steady::time_point begin) {
  return std::chrono::duration<double>(Steady::now() - begin).count();
}

std::span<std::byte> aligned(std::size_t bytes) {
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(kHugePage, bytes));
  ::madvise(memory, bytes, MADV_HUGEPAGE);  // as the saver's memory is
  for (std::size_t i = 0; i < bytes; i += 8) {
    const auto word = i * 0x9E3779B97F4A7C15ULL;
    std::memcpy(memory + i, &word, 8);
  }
  return {memory, bytes};
}

double plain_write(const Path& path, std::span<const std::byte> bytes) {
  const auto begin = Steady::now();
  const files::Descriptor file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_DIRECT | O_CLOEXEC, 0644));
  if (!file) files::fail("write", path, errno);
  for (std::size_t at = 0; at < bytes.size(); at += kWrite) {
    const auto part = bytes.subspan(at, std::min(kWrite, bytes.size() - at));
    if (::pwrite(file.get(), part.data(), part.size(), static_cast<off_t>(at)) < 0) {
      files::fail("write", path, errno);
    }
  }
  ::fsync(file.get());
  return seconds_since(begin);
}

// One tensor: all that the header leaves of `image`.
storage::RankFile file_of(storage::Bytes image) {
  const auto of = [](std::int64_t count) {
    return storage::RankFile("rank_0.safetensors",
                             {{"x", "U8", {count}, {}, 0, count}});
  };
  const auto size = static_cast<std::int64_t>(image.size());
  const auto header = static_cast<std::int64_t>(of(size).header().size());
  return of(size - header);
}

double published(const Path& folder, std::span<const std::byte> bytes,
                 std::int64_t step) {
  const auto begin = Steady::now();
  auto& files = storage::FileSystem::real();
  const auto partial = storage::begin_save(files, folder, step);
  const auto file = file_of(bytes);
  storage::publish(files, folder,
                   {{.step = step}, {file.write(files, partial, {bytes})}});
  return seconds_since(begin);
}

void forget(const Path& path) {
  const files::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
}

double plain_read(const Path& path, std::span<std::byte> out) {
  forget(path);
  const auto begin = Steady::now();
  const files::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  for (std::size_t at = 0; at < out.size();) {
    const auto got = ::pread(file.get(), out.data() + at,
                             std::min(kWrite, out.size() - at), static_cast<off_t>(at));
    if (got <= 0) files::fail("read", path, errno);
    at += static_cast<std::size_t>(got);
  }
  return seconds_since(begin);
}

double verified_read(const Path& checkpoint, std::span<std::byte> out) {
  forget(checkpoint / "rank_0.safetensors");
  const auto begin = Steady::now();
  storage::Reader(checkpoint)
      .read("x",
            out.first(static_cast<std::size_t>(file_of(out).pieces()[0].num_bytes())));
  return seconds_since(begin);
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t megabytes = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 512;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 5;
  const files::TemporaryDirectory folder(argc > 3 ? Path(argv[3]) : Path("."));
  const auto bytes = aligned(megabytes << 20), out = aligned(megabytes << 20);
  std::vector<double> plain, ours, read, ours_read, share, read_share, cpu;
  for (int round = 0; round <= rounds; ++round) {
    const auto file = folder.path() / "plain";
    double a = 0, b = 0, c = 0, d = 0, cpu_used = 0;
    // By turns first: a disk may have taken on or given out a burst before.
    for (const bool theirs : {round % 2 == 0, round % 2 != 0}) {
      const double cpu_before = cpu_seconds();
      if (theirs) {
        a = plain_write(file, bytes);
      } else {
        b = published(folder.path() / "checkpoints", bytes, round);
        cpu_used = cpu_seconds() - cpu_before;
      }
    }
    for (const bool theirs : {round % 2 == 0, round % 2 != 0}) {
      if (theirs) {
        c = plain_read(file, out);
      } else {
        d = verified_read(folder.path() / "checkpoints/last", out);
      }
    }
    std::filesystem::remove(file);
    std::filesystem::remove_all(folder.path() / "checkpoints");
    if (round == 0) continue;  // the first one finds cold buffers
    plain.push_back(a);
    ours.push_back(b);
    cpu.push_back(cpu_used);
    share.push_back(a / b);
    read.push_back(c);
    ours_read.push_back(d);
    read_share.push_back(c / d);
  }
  const auto fastest = [](const std::vector<double>& seconds) {
    return *std::min_element(seconds.begin(), seconds.end());
  };
  const auto rate = [&](const std::vector<double>& seconds) {
    return static_cast<double>(megabytes) / median(seconds);
  };
  fmt::print(
      "{{\"megabytes\": {}, \"rounds\": {}, \"plain_write_mb_s\": {:.0f}, "
      "\"publish_mb_s\": {:.0f}, \"write_share\": {:.3f}, \"fastest_write_share\": "
      "{:.3f}, \"publish_cpu_s\": {:.3f}, "
      "\"plain_read_mb_s\": {:.0f}, "
      "\"verified_read_mb_s\": {:.0f}, \"read_share\": {:.3f}}}\n",
      megabytes, rounds, rate(plain), rate(ours), median(share),
      fastest(plain) / fastest(ours), median(cpu), rate(read), rate(ours_read),
      median(read_share));
  std::free(bytes.data());
  std::free(out.data());
  return 0;
}
