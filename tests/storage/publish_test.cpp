#include "lockstep/storage/publish.h"

#include <thread>

#include "lockstep/storage/safetensors.h"
#include "lockstep/storage/streaming_copy.h"
#include "tests/storage/support/hooked_files.h"
#include "tests/storage/support/small_checkpoint.h"

namespace lockstep::test {
namespace {

using storage::Depth;
using storage::FileSystem;

TEST(Publish, WhatWasWrittenReadsBackAtAnyNumberOfRanks) {
  for (const std::int64_t ranks : {1, 2, 3, 7}) {
    const files::TemporaryDirectory folder;
    const auto place = save_small(FileSystem::real(), folder.path() / "checkpoints",
                                  {.step = 10, .seed = 5, .ranks = ranks});
    EXPECT_EQ(place, folder.path() / "checkpoints/step_10");
    expect_small(place, 5);
    const auto manifest = storage::verify(place, Depth::full);
    EXPECT_EQ(manifest.step, 10);
    EXPECT_EQ(manifest.world_size, ranks);
    EXPECT_EQ(manifest.state, R"({"epoch":3,"scale":0.1})");
    EXPECT_EQ(manifest.files.size(), static_cast<std::size_t>(ranks));
  }
}

TEST(Publish, NothingIsLeftBesideTheCheckpointAndItsNames) {
  const files::TemporaryDirectory folder;
  save_small(FileSystem::real(), folder.path(), {.step = 1, .seed = 1, .loss = 0.5});
  save_small(FileSystem::real(), folder.path(), {.step = 2, .seed = 2, .loss = 0.7});
  EXPECT_THAT(names_in(folder.path()),
              testing::ElementsAre("best", "last", "step_1", "step_2"));
  EXPECT_EQ(storage::named(folder.path(), "best"), folder.path() / "step_1");
  EXPECT_EQ(storage::named(folder.path(), "last"), folder.path() / "step_2");
  auto names = names_in(folder.path() / "step_1");
  std::erase(names, ".verified");  // where the clock of files has moved on meanwhile
  EXPECT_THAT(names, testing::ElementsAre("manifest.json", "rank_0.safetensors",
                                          "rank_1.safetensors"));
}

TEST(Publish, SavingAStepAgainReplacesIt) {
  const files::TemporaryDirectory folder;
  save_small(FileSystem::real(), folder.path(), {.step = 1, .seed = 1, .ranks = 3});
  save_small(FileSystem::real(), folder.path(), {.step = 1, .seed = 2, .ranks = 2});
  expect_small(folder.path() / "step_1", 2);
  EXPECT_THAT(names_in(folder.path()), testing::ElementsAre("last", "step_1"));
}

TEST(Publish, AGapOrAnOverlapBetweenRanksIsOurBugAndIsNamed) {
  const files::TemporaryDirectory folder;
  auto& files = FileSystem::real();
  const auto tensors = small_tensors(1);
  const auto partial = storage::begin_save(files, folder.path(), 1);
  const auto first = write_rank(files, partial, tensors, 0, 2);
  const auto second = write_rank(files, partial, tensors, 1, 2);
  const auto third = write_rank(files, partial, tensors, 2, 3);
  const auto gap = error_text(Fault::internal, [&] {
    storage::publish(files, folder.path(), {small_head({.step = 1}), {first}});
  });
  EXPECT_THAT(gap,
              testing::HasSubstr("'model.conv.weight': elements 12 to 24 are missing"));
  const auto overlap = error_text(Fault::internal, [&] {
    storage::publish(files, folder.path(),
                     {small_head({.step = 1}), {first, second, third}});
  });
  EXPECT_THAT(overlap, testing::HasSubstr("come twice"));
  EXPECT_TRUE(storage::list_steps(folder.path()).empty());
  storage::abandon_save(files, folder.path(), 1);
  EXPECT_TRUE(names_in(folder.path()).empty());
}

TEST(Publish, ARecordTravelsBetweenRanksAsText) {
  const files::TemporaryDirectory folder;
  const auto written =
      write_rank(FileSystem::real(), folder.path(), small_tensors(1), 0, 2);
  const auto text = written.to_json();
  EXPECT_EQ(storage::WrittenFile::from_json(text).to_json(), text);
  error_text(Fault::io, [&] { storage::WrittenFile::from_json(text.substr(1)); });
}

TEST(Publish, ManyBlocksAndPartsKeepEveryByte) {
  const files::TemporaryDirectory folder;
  // Odd sizes: three parts of 8 MiB and a tail that no page or block divides.
  const std::int64_t count = (25 << 20) + 12345;
  std::string bytes(static_cast<std::size_t>(count), '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<char>(i * 2654435761u >> 13);
  }
  auto& files = FileSystem::real();
  const auto partial = storage::begin_save(files, folder.path(), 1);
  const storage::RankFile file("rank_0.safetensors",
                               {{"big", "U8", {count}, {}, 0, count}});
  const auto written = write_image(files, partial, file, bytes);
  const auto place = storage::publish(files, folder.path(), {{.step = 1}, {written}});
  EXPECT_EQ(storage::verify(place, Depth::full).files[0].blocks.size(), 7u);
  std::string got(bytes.size(), '\0');
  storage::Reader(place).read("big", std::as_writable_bytes(std::span(got)));
  EXPECT_TRUE(got == bytes);
}

TEST(Publish, WritingEndsWhenItMayNotGoOn) {
  const files::TemporaryDirectory folder;
  const std::int64_t count = 100 << 20;
  const storage::RankFile file("rank_0.safetensors",
                               {{"big", "U8", {count}, {}, 0, count}});
  struct Enough {};
  int parts = 0;
  const auto may_go_on = [&] {
    if (++parts > 3) throw Enough();
  };
  EXPECT_THROW(write_image(FileSystem::real(), folder.path(), file,
                           std::string(static_cast<std::size_t>(count), 'x'),
                           {.may_go_on = may_go_on}),
               Enough);
  EXPECT_EQ(parts, 4);  // of 13
}

// The new one stands in its place, but a power cut could still undo that.
TEST(Publish, TheOneBeforeStaysUntilTheNewOneIsSafe) {
  const files::TemporaryDirectory folder;
  save_small(FileSystem::real(), folder.path(), {.step = 10, .seed = 1});
  bool fails = false;
  HookedFiles files([&](const Operation& operation) {
    if (operation.act == Act::exchange) fails = true;
    if (fails && operation.act == Act::sync_directory) throw Error(Fault::io, "EIO");
  });
  error_text(Fault::io,
             [&] { save_small(files, folder.path(), {.step = 10, .seed = 2}); });
  storage::abandon_save(files, folder.path(), 10);
  EXPECT_TRUE(std::filesystem::exists(folder.path() / ".step_10.partial" /
                                      storage::kManifestName))
      << "left to the next start";
  storage::verify(folder.path() / "step_10", Depth::full);
  storage::clean_up(FileSystem::real(), folder.path());
  storage::verify(folder.path() / "step_10", Depth::full);
  EXPECT_FALSE(std::filesystem::exists(folder.path() / ".step_10.partial"));
}

TEST(Publish, NamesThatCanNotBeChangedAreNoFailure) {
  const files::TemporaryDirectory folder;
  HookedFiles files([&](const Operation& operation) {
    if (operation.act == Act::link) throw Error(Fault::io, "EIO");
  });
  save_small(files, folder.path(), {.step = 10});
  storage::verify(folder.path() / "step_10", Depth::full);
}

TEST(Publish, CopiesArriveAndAreHashedWhereverTheyBegin) {
  const std::size_t size = 200'000;
  std::string from(size, '\0');
  for (std::size_t i = 0; i < size; ++i)
    from[i] = static_cast<char>(i * 2654435761u >> 7);
  for (const std::size_t skip : {0u, 1u, 8u, 63u}) {
    for (const std::size_t count : {0u, 5u, 64u, 131'071u, 199'900u}) {
      std::string to(size, '.');
      const auto bytes = std::as_bytes(std::span(from)).subspan(skip / 2, count);
      storage::BlockDigests digests(4096), wanted(4096);
      storage::copy_and_digest(reinterpret_cast<std::byte*>(to.data()) + skip, bytes,
                               digests);
      wanted.add(bytes);
      const auto got = std::string_view(to).substr(skip, count);
      EXPECT_TRUE(got == std::string_view(from).substr(skip / 2, count));
      EXPECT_TRUE(to.find_first_not_of('.', skip + count) == std::string::npos);
      EXPECT_TRUE(to.find_first_not_of('.') >= skip);
      EXPECT_EQ(digests.finish(), wanted.finish());
    }
  }
}

}  // namespace
}  // namespace lockstep::test
