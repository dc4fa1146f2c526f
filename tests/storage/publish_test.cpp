#include "lockstep/storage/publish.h"

#include <thread>

#include "lockstep/storage/safetensors.h"
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
  EXPECT_THAT(names_in(folder.path() / "step_1"),
              testing::ElementsAre("manifest.json", "rank_0.safetensors",
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
    storage::publish(files, folder.path(), small_head({.step = 1}), {first});
  });
  EXPECT_THAT(gap,
              testing::HasSubstr("'model.conv.weight': elements 12 to 24 are missing"));
  const auto overlap = error_text(Fault::internal, [&] {
    storage::publish(files, folder.path(), small_head({.step = 1}),
                     {first, second, third});
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

TEST(Publish, ManyBlocksAndBuffersKeepEveryByte) {
  const files::TemporaryDirectory folder;
  // Odd sizes: three buffers of 8 MiB and a tail that no page or block divides.
  const std::int64_t count = (25 << 20) + 12345;
  std::string bytes(static_cast<std::size_t>(count), '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<char>(i * 2654435761u >> 13);
  }
  auto& files = FileSystem::real();
  const auto partial = storage::begin_save(files, folder.path(), 1);
  storage::RankFile file(files, partial, "rank_0.safetensors",
                         {{"big", "U8", {count}, {}, 0, count}});
  for (std::size_t at = 0; at < bytes.size(); at += 1'000'003) {
    file.append(std::as_bytes(std::span(bytes))
                    .subspan(at, std::min<std::size_t>(1'000'003, bytes.size() - at)));
  }
  const auto place =
      storage::publish(files, folder.path(), {.step = 1}, {file.finish()});
  EXPECT_EQ(storage::verify(place, Depth::full).files[0].blocks.size(), 7u);
  std::string got(bytes.size(), '\0');
  storage::Reader(place).read("big", std::as_writable_bytes(std::span(got)));
  EXPECT_TRUE(got == bytes);
}

}  // namespace
}  // namespace lockstep::test
