#pragma once

#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/files.h"
#include "lockstep/storage/catalog.h"
#include "lockstep/storage/publish.h"
#include "lockstep/storage/reader.h"
#include "tests/support/support.h"

// A checkpoint of two ranks that has one of everything and fits into a few blocks.
namespace lockstep::test {

inline std::string numbers(std::size_t count, float first) {
  std::string bytes(count * sizeof(float), '\0');
  for (std::size_t i = 0; i < count; ++i) {
    const float value = first + static_cast<float>(i);
    std::memcpy(bytes.data() + i * sizeof value, &value, sizeof value);
  }
  return bytes;
}

struct SmallTensor {
  std::string name, dtype;
  storage::Shape shape;
  storage::Order order;
  std::string bytes;  // in that order
};

// Other numbers for another `seed`.
inline std::vector<SmallTensor> small_tensors(float seed) {
  return {{"model.conv.weight", "F32", {2, 3, 2, 2}, {0, 2, 3, 1}, numbers(24, seed)},
          {"model.fc.weight", "F32", {5, 3}, {}, numbers(15, seed + 100)},
          {"model.steps", "I64", {}, {}, std::string(8, static_cast<char>(seed))},
          {"optimizer.empty", "F32", {0, 3}, {}, ""},
          {"rng.rank_0", "U8", {11}, {}, std::string(11, static_cast<char>(seed + 1))}};
}

constexpr std::int64_t kSmallBlock = 64;

// The part of every tensor that rank `rank` of `ranks` writes: as the shards of a flat
// buffer are, in one stretch.
inline std::vector<storage::PieceToWrite> pieces_of(
    const std::vector<SmallTensor>& tensors, std::int64_t rank, std::int64_t ranks) {
  std::vector<storage::PieceToWrite> pieces;
  for (const auto& tensor : tensors) {
    const auto total = *storage::num_elements(tensor.shape);
    const auto begin = total * rank / ranks, end = total * (rank + 1) / ranks;
    if (begin == end && rank > 0) continue;
    pieces.push_back(
        {tensor.name, tensor.dtype, tensor.shape, tensor.order, begin, end - begin});
  }
  return pieces;
}

// `bytes`: of all pieces, in the order of the file.
inline storage::WrittenFile write_image(storage::FileSystem& files,
                                        const Path& directory,
                                        const storage::RankFile& file,
                                        std::string_view bytes,
                                        storage::WriteOptions options = {}) {
  const auto size = static_cast<std::size_t>(file.image_bytes());
  const std::unique_ptr<void, decltype(&std::free)> memory(
      std::aligned_alloc(storage::kDirectAlignment, size), &std::free);
  auto* image = static_cast<std::byte*>(memory.get());
  std::memset(image, 0, size);
  std::memcpy(image, file.header().data(), file.header().size());
  std::memcpy(image + file.header().size(), bytes.data(), bytes.size());
  return file.write(files, directory, {{image, size}, std::move(options)});
}

inline storage::WrittenFile write_rank(storage::FileSystem& files,
                                       const Path& directory,
                                       const std::vector<SmallTensor>& tensors,
                                       std::int64_t rank, std::int64_t ranks,
                                       std::int64_t block_bytes = kSmallBlock) {
  const storage::RankFile file(str("rank_", rank, ".safetensors"),
                               pieces_of(tensors, rank, ranks));
  std::string bytes;
  for (const auto& piece : file.pieces()) {
    for (const auto& tensor : tensors) {
      if (tensor.name != piece.name) continue;
      const auto width = *storage::num_bytes(tensor.dtype, 1);
      bytes += tensor.bytes.substr(static_cast<std::size_t>(piece.begin * width),
                                   static_cast<std::size_t>(piece.count * width));
    }
  }
  return write_image(files, directory, file, bytes, {.block_bytes = block_bytes});
}

// For thousands of small files: a disk would take minutes.
struct MemoryDirectory : files::TemporaryDirectory {
  MemoryDirectory()
      : TemporaryDirectory(std::filesystem::exists("/dev/shm")
                               ? Path("/dev/shm")
                               : std::filesystem::temp_directory_path()) {}
};

struct SmallSave {
  std::int64_t step = 10;
  float seed = 1;
  std::int64_t ranks = 2;
  std::optional<double> loss = {};
};

inline storage::Manifest small_head(const SmallSave& save) {
  storage::Manifest head{.step = save.step,
                         .time = "2026-11-15T03:22:41.125Z",
                         .world_size = save.ranks,
                         .metric = {},
                         .state = R"({"epoch":3,"scale":0.1})",
                         .config = "optim: {lr: 0.1}\n",
                         .versions = {{"lockstep", "0.1.0"}},
                         .block_bytes = kSmallBlock};
  if (save.loss) head.metric = storage::WatchedMetric{"loss", *save.loss, false};
  return head;
}

// What a job of that many ranks does.
inline Path save_small(storage::FileSystem& files, const Path& checkpoints,
                       const SmallSave& save) {
  const auto tensors = small_tensors(save.seed);
  const auto directory = storage::begin_save(files, checkpoints, save.step);
  std::vector<storage::WrittenFile> written;
  for (std::int64_t rank = 0; rank < save.ranks; ++rank) {
    written.push_back(write_rank(files, directory, tensors, rank, save.ranks));
  }
  return storage::publish(files, checkpoints, {small_head(save), written});
}

// Waits until a change of a file gets a time that no file has yet: their clock moves in
// steps of some milliseconds.
inline void wait_for_the_clock_of_files() {
  const auto read = [](clockid_t clock) {
    timespec now{};
    ::clock_gettime(clock, &now);
    return std::pair(now.tv_sec, now.tv_nsec);
  };
  // A file may have got its time from the fine clock, which is ahead of the coarse one.
  const auto before = read(CLOCK_REALTIME);
  ASSERT_TRUE(eventually([&] { return read(CLOCK_REALTIME_COARSE) > before; }));
}

// Changes one byte in the middle of a file; its size stays.
inline void damage(const Path& file) {
  auto content = read_file(file);
  content[content.size() / 2] ^= 1;
  wait_for_the_clock_of_files();
  write_file(file, content);
}

// Fails the test unless every tensor reads back as save_small() wrote it.
inline void expect_small(const Path& checkpoint, float seed) {
  const storage::Reader reader(checkpoint);
  for (const auto& tensor : small_tensors(seed)) {
    std::string got(tensor.bytes.size(), '\0');
    reader.read(tensor.name,
                {.begin = 0,
                 .count = *storage::num_elements(tensor.shape),
                 .order = tensor.order},
                std::as_writable_bytes(std::span(got)));
    EXPECT_EQ(got, tensor.bytes) << tensor.name << " of " << checkpoint;
  }
}

}  // namespace lockstep::test
