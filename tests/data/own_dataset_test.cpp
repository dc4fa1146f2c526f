// A data set of one's own: an input, a class and more; bad samples in it.
#include <mutex>
#include <set>

#include "lockstep/base/log.h"
#include "lockstep/data/device_feed.h"
#include "lockstep/data/stage.h"
#include "tests/data/support.h"

namespace lockstep::data {
namespace {

using testing::HasSubstr;

// What a driver sees: a picture, its speed, and two answers.
class Drive : public Dataset {
 public:
  Drive() {
    spec_.shape = {1, 2, 2};
    spec_.num_classes = 4;
    spec_.fields = {{"speed", {}, torch::kFloat32}, {"steering", {3}, torch::kFloat32}};
  }
  std::int64_t size() const noexcept override { return 20; }
  const SampleSpec& spec() const noexcept override { return spec_; }
  void read_sample(const Visit& visit, const SampleBuffer& room) const override {
    std::fill(room.input.begin(), room.input.end(), std::byte(visit.index));
    room.target[0] = visit.index % 4;
    const auto speed = static_cast<float>(visit.index) / 2;
    std::memcpy(room.fields[0].data(), &speed, sizeof speed);
    const std::array<float, 3> steering{speed, speed + 1, speed + 2};
    std::memcpy(room.fields[1].data(), steering.data(), sizeof steering);
  }

 private:
  SampleSpec spec_;
};

TEST(OwnDataset, NamedFieldsTravelWithTheirSamples) {
  const Drive drive;
  Loader loader(drive, {.batch = 6, .workers = 2, .seed = 3, .epochs = 2});
  while (const auto* batch = loader.next()) {
    const auto index = batch->inputs.flatten(1).select(1, 0).to(torch::kFloat32);
    EXPECT_EQ(batch->fields.size(), 2u);
    EXPECT_TRUE(batch->at("speed").equal(index / 2));
    EXPECT_TRUE(batch->at("steering").select(1, 2).equal(index / 2 + 2));
    EXPECT_TRUE(batch->at("target").equal(batch->targets));
    EXPECT_TRUE(batch->at("input").equal(batch->inputs));
  }
}

TEST(OwnDataset, AFieldThatIsNotThereIsAnErrorWithTheNames) {
  const Drive drive;
  Loader loader(drive, {.batch = 6});
  auto batch = *loader.next();
  EXPECT_THAT(test::error_text(Fault::config, [&] { batch.at("sped"); }),
              HasSubstr("no field 'sped'; it has input, target, speed, steering"));
  batch.inputs.reset();  // as a feed leaves it out that nobody has asked for
  EXPECT_EQ(batch.tensors().size(), 3U);
  EXPECT_THAT(test::error_text(Fault::config, [&] { batch.at("input"); }),
              HasSubstr("no field 'input'; it has target, speed, steering"));
}

TEST(OwnDataset, ItsClassIsReadIfItDoesNotSayIt) {
  EXPECT_EQ(Drive().class_of(7), 3);
}

TEST(DeviceFeed, OnACpuTheLoadersBatchesArePassedOn) {
  const Drive drive;
  Loader loader(drive, {.batch = 6, .epochs = 1});
  Loader same(drive, {.batch = 6, .epochs = 1});
  DeviceFeed feed(loader, torch::kCPU);
  while (const auto* batch = feed.next()) {
    EXPECT_TRUE(batch->inputs.equal(same.next()->inputs));
  }
  EXPECT_EQ(feed.next(), nullptr);
}

TEST(DeviceFeedGpu, BringsEveryBatchUnharmed) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  const Drive drive;
  for (const bool pinned : {true, false}) {
    const LoaderOptions options{
        .batch = 6, .workers = 3, .seed = 3, .epochs = 40, .pin_memory = pinned};
    Loader loader(drive, options), same(drive, options);
    DeviceFeed feed(loader, torch::kCUDA);
    auto sums = torch::zeros({1}, torch::kCUDA);
    auto expected = torch::zeros({1});
    const auto load = torch::rand({2048, 2048}, torch::kCUDA);
    while (const auto* batch = feed.next()) {
      EXPECT_TRUE(batch->inputs.is_cuda() && batch->at("speed").is_cuda());
      const auto* again = same.next();
      EXPECT_EQ(batch->begin, again->begin);
      // The device is behind: a batch that was overwritten too early shows.
      const auto busy = load.mm(load).sum() * 0;
      sums += batch->inputs.sum() * (batch->begin.consumed + 1) +
              batch->at("speed").sum() + busy;
      expected +=
          again->inputs.sum() * (again->begin.consumed + 1) + again->at("speed").sum();
    }
    EXPECT_TRUE(sums.cpu().equal(expected)) << "pinned: " << pinned;
  }
}

TEST(DeviceFeedGpu, CopiesOnlyTheFieldsThatAreAskedFor) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  const Drive drive;
  Loader loader(drive, {.batch = 6, .seed = 3, .epochs = 1});
  Loader same(drive, {.batch = 6, .seed = 3, .epochs = 1});
  DeviceFeed feed(loader, torch::kCUDA, std::vector<std::string>{"speed"});
  while (const auto* batch = feed.next()) {
    ASSERT_EQ(batch->tensors().size(), 1U);  // neither input nor target
    EXPECT_TRUE(batch->at("speed").cpu().equal(same.next()->at("speed")));
  }
}

TEST(BatchStage, HasTheTensorsThatAreAskedForAndNoOthers) {
  const Drive drive;
  Loader loader(drive, {.batch = 6, .epochs = 1});
  BatchStage stage({.spec = drive.spec(), .wanted = {"speed", "target"}});
  stage.reserve(6);
  std::vector<std::string> names;
  const auto* batch = loader.next();
  for (const auto& field : stage.stage(*batch, 0, batch->size)) {
    names.push_back(field.name);
  }
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("speed", "target"));
}

TEST(DeviceFeedGpu, PinnedBatchesAreInPinnedMemory) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  const Drive drive;
  Loader loader(drive, {.batch = 6, .pin_memory = true});
  EXPECT_TRUE(loader.next()->inputs.is_pinned());
}

// Samples 7 and 8 can not be read, sample 12 has a wrong label.
class Damaged : public test::Pictures {
 public:
  Damaged() : Pictures(20, {1, 2, 2}, [](auto index, auto) { return int(index); }) {}
  std::int64_t read(std::int64_t index, std::span<std::byte> input) const override {
    if (index == 7 || index == 8)
      throw Error(Fault::io, "'", index, ".jpg' is damaged");
    Pictures::read(index, input);
    return index == 12 ? 10 : index % 10;
  }
};

TEST(BadSample, StopsTheRunAndIsNamed) {
  const Damaged data;
  Loader loader(data, {.batch = 10, .shuffle = false});
  const auto text = test::error_text(Fault::io, [&] { loader.next(); });
  EXPECT_THAT(text, HasSubstr("sample 7: '7.jpg' is damaged"));
  EXPECT_THAT(text, HasSubstr("data.on_bad_sample=skip"));
  Loader behind(data, {.batch = 4, .shuffle = false, .start = {.consumed = 12}});
  EXPECT_THAT(
      test::error_text(Fault::io, [&] { behind.next(); }),
      HasSubstr("sample 12: it has the label 10, the data set has the classes 0"));
}

TEST(BadSample, SkippedOnesAreReplacedCountedAndNamed) {
  std::mutex mutex;
  std::vector<std::string> lines;
  log::start({.writer = [&](log::Level, std::string_view line) {
    const std::lock_guard lock(mutex);
    lines.emplace_back(line);
  }});
  const Damaged data;
  const LoaderOptions options{
      .batch = 4, .workers = 2, .shuffle = false, .epochs = 2, .skip_bad = true};
  {
    Loader loader(data, options);
    std::set<int> seen;
    while (const auto* batch = loader.next()) {
      EXPECT_EQ(batch->size, 4);
      for (std::int64_t i = 0; i < 4; ++i) {
        seen.insert(batch->inputs[i].flatten()[0].item<int>());
      }
    }
    for (const int bad : {7, 8, 12}) EXPECT_EQ(seen.count(bad), 0u);
    EXPECT_EQ(seen.size(), 17u);
    EXPECT_GE(loader.num_skipped(), 6);  // three in each of two epochs
  }
  log::start({});
  EXPECT_EQ(lines.size(), 3u);  // each is named once
  EXPECT_THAT(lines,
              testing::Contains(HasSubstr("sample 7 is skipped, another takes")));
  const auto alone = test::everything(data, options);
  EXPECT_TRUE(test::everything_over(data, options, 3).inputs.equal(alone.inputs));
}

TEST(BadSample, NothingButBadSamplesIsAnErrorNotALoop) {
  class Rotten : public Damaged {
    std::int64_t read(std::int64_t, std::span<std::byte>) const override {
      throw Error(Fault::io, "rotten");
    }
  };
  const Rotten data;
  Loader loader(data, {.batch = 4, .shuffle = false, .skip_bad = true});
  EXPECT_THAT(test::error_text(Fault::io, [&] { loader.next(); }),
              HasSubstr("tried in its place are bad"));
}

TEST(BadSample, ABugOfTheDataSetIsNoBadSample) {
  class Buggy : public Damaged {
    std::int64_t read(std::int64_t, std::span<std::byte>) const override {
      throw Error(Fault::internal, "a bug");
    }
  };
  const Buggy data;
  Loader loader(data, {.batch = 4, .skip_bad = true});
  EXPECT_EQ(test::error_text(Fault::internal, [&] { loader.next(); }), "a bug");
}

}  // namespace
}  // namespace lockstep::data
