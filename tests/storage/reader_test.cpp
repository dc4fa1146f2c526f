#include "lockstep/storage/reader.h"

#include <numeric>
#include <thread>

#include "tests/storage/support/small_checkpoint.h"

namespace lockstep::test {
namespace {

using storage::ElementRange;
using storage::FileSystem;
using storage::Order;
using storage::Shape;

std::vector<float> read_floats(const storage::Reader& reader, std::string_view name,
                               const ElementRange& range) {
  std::vector<float> values(static_cast<std::size_t>(range.count));
  reader.read(name, range, std::as_writable_bytes(std::span(values)));
  return values;
}

// Plainly: the elements of `shape`, stored in `stored`, as they come in `wanted`.
std::vector<float> reference(const Shape& shape, const Order& stored,
                             const Order& wanted, float first) {
  std::vector<float> result;
  const auto total = *storage::num_elements(shape);
  const auto in_stored = storage::strides_of(shape, stored);
  const auto in_wanted = storage::strides_of(shape, wanted);
  for (std::int64_t i = 0; i < total; ++i) {
    std::int64_t at = 0;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      at += i / in_wanted[d] % shape[d] * in_stored[d];
    }
    result.push_back(first + static_cast<float>(at));
  }
  return result;
}

TEST(Reader, AnyRangeInAnyOrderIsThere) {
  const files::TemporaryDirectory folder;
  const Shape shape{2, 3, 2, 2};
  const Order stored{0, 2, 3, 1};
  for (const std::int64_t ranks : {1, 2, 3}) {
    const storage::Reader reader(save_small(
        FileSystem::real(), folder.path(), {.step = ranks, .seed = 5, .ranks = ranks}));
    for (const auto& order : {Order{}, Order{0, 1, 2, 3}, stored, Order{3, 2, 1, 0}}) {
      const auto all = reference(shape, stored, order, 5);
      for (std::int64_t begin = 0; begin <= 24; ++begin) {
        for (std::int64_t count = 0; begin + count <= 24; ++count) {
          const auto got =
              read_floats(reader, "model.conv.weight", {begin, count, order});
          ASSERT_TRUE(std::equal(got.begin(), got.end(), all.begin() + begin))
              << begin << " " << count;
        }
      }
    }
  }
}

TEST(Reader, OnlyTheBlocksThatHoldTheRangeAreReadAndEachIsVerifiedOnce) {
  const files::TemporaryDirectory folder;
  constexpr std::int64_t kBlock = 4096;
  const std::int64_t count = 100'000;
  std::vector<float> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), 0.0F);
  auto& files = FileSystem::real();
  const auto partial = storage::begin_save(files, folder.path(), 1);
  const storage::RankFile file("rank_0.safetensors",
                               {{"x", "F32", {count}, {}, 0, count}});
  const std::string_view bytes(reinterpret_cast<const char*>(values.data()),
                               values.size() * sizeof(float));
  const auto written =
      write_image(files, partial, file, bytes, {.block_bytes = kBlock});
  storage::Manifest head{.step = 1};
  head.block_bytes = kBlock;
  const storage::Reader reader(
      storage::publish(files, folder.path(), {head, {written}}));
  EXPECT_EQ(reader.bytes_read(), 0);
  EXPECT_EQ(read_floats(reader, "x", {50'000, 3, {}}),
            (std::vector<float>{50'000, 50'001, 50'002}));
  EXPECT_EQ(reader.bytes_read(), kBlock);
  read_floats(reader, "x", {50'001, 2, {}});
  EXPECT_EQ(reader.bytes_read(), kBlock + 8);  // a block that is known to be good
  const auto before = reader.bytes_read();
  EXPECT_EQ(read_floats(reader, "x", {0, count, {}}), values);
  EXPECT_LE(reader.bytes_read() - before, count * 4 + 2 * kBlock);
}

TEST(Reader, ManyThreadsReadWhatOneDoes) {
  const files::TemporaryDirectory folder;
  const storage::Reader reader(save_small(FileSystem::real(), folder.path(),
                                          {.step = 1, .seed = 3, .ranks = 3}));
  const auto wanted = small_tensors(3);
  std::vector<std::jthread> threads;
  std::atomic<int> same = 0;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 50; ++round) {
        const auto& tensor =
            wanted[static_cast<std::size_t>(i + round) % wanted.size()];
        std::string got(tensor.bytes.size(), '\0');
        reader.read(tensor.name,
                    {0, *storage::num_elements(tensor.shape), tensor.order},
                    std::as_writable_bytes(std::span(got)));
        same += got == tensor.bytes ? 1 : 0;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(same, 8 * 50);
}

TEST(Reader, AMissingTensorIsNamedWithItsCheckpoint) {
  const files::TemporaryDirectory folder;
  const auto place = save_small(FileSystem::real(), folder.path(), {.step = 1});
  const auto text =
      error_text(Fault::io, [&] { storage::Reader(place).tensor("model.none"); });
  EXPECT_THAT(text, testing::HasSubstr("'model.none'"));
  EXPECT_THAT(text, testing::HasSubstr(place.string()));
}

}  // namespace
}  // namespace lockstep::test
