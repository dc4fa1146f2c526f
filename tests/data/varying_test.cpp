// Samples of different lengths: padded with a mask, or packed with segments.
#include <numeric>

#include "lockstep/data/packed.h"
#include "tests/data/support.h"

namespace lockstep::data {
namespace {

using testing::HasSubstr;

// Sequence i has lengths()[i] tokens, 100 i + 1, 100 i + 2, ...; the target of a token
// is the next one, of the last one 0.
class Sequences : public Dataset {
 public:
  explicit Sequences(std::vector<std::int64_t> lengths, std::int64_t longest = 20)
      : lengths_(std::move(lengths)) {
    spec_.shape = spec_.target_shape = {longest};
    spec_.dtype = torch::kInt64;
    spec_.num_classes = 10'000;
    spec_.varies = spec_.target_varies = true;
    spec_.ignore_index = -100;
  }
  std::int64_t size() const noexcept override {
    return static_cast<std::int64_t>(lengths_.size());
  }
  const SampleSpec& spec() const noexcept override { return spec_; }
  void read_sample(const Visit& visit, const SampleBuffer& room) const override {
    const auto length = lengths_[static_cast<std::size_t>(visit.index)];
    auto* input = reinterpret_cast<std::int64_t*>(room.input.data());
    const auto room_for = std::min(length, spec_.shape[0]);
    for (std::int64_t i = 0; i < room_for; ++i) {
      input[i] = 100 * visit.index + i + 1;
      room.target[static_cast<std::size_t>(i)] = i + 1 < length ? input[i] + 1 : 0;
    }
    room.lengths[0] = room.lengths[1] = length;
  }

 private:
  std::vector<std::int64_t> lengths_;
  SampleSpec spec_;
};

TEST(Varying, BatchesAreAsLongAsTheirLongestSampleAndMasked) {
  const Sequences data({3, 9, 1, 20, 0, 5});
  Loader loader(data, {.batch = 3, .shuffle = false, .epochs = 1});
  const auto* first = loader.next();
  ASSERT_EQ(first->inputs.sizes(), (std::vector<std::int64_t>{3, 16}));
  const auto& mask = first->at("input_mask");
  EXPECT_EQ(mask.scalar_type(), torch::kBool);
  EXPECT_TRUE(mask.sum(1).equal(torch::tensor({3, 9, 1})));
  EXPECT_TRUE(first->at("target_mask").equal(mask));
  EXPECT_TRUE(first->inputs[1].narrow(0, 0, 9).equal(torch::arange(101, 110)));
  EXPECT_EQ(first->inputs.masked_select(mask.logical_not()).abs().sum().item<int>(), 0);
  EXPECT_TRUE(
      first->targets.masked_select(mask.logical_not()).eq(-100).all().item<bool>())
      << "what is missing has no target";
  EXPECT_TRUE(first->inputs.is_contiguous());
  const auto* second = loader.next();
  EXPECT_EQ(second->inputs.size(1), 20) << "no longer than the longest can be";
  EXPECT_TRUE(second->at("input_mask").sum(1).equal(torch::tensor({20, 0, 5})));
}

// A slot that held longer samples holds shorter ones next.
TEST(Varying, SamplesAreTheSameWhateverWasInTheirMemoryBefore) {
  std::vector<std::int64_t> lengths(40);
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    lengths[i] = static_cast<std::int64_t>((i * 7) % 21);
  }
  const Sequences data(lengths);
  Loader loader(data,
                {.batch = 7, .workers = 2, .prefetch = 1, .seed = 5, .epochs = 4});
  std::int64_t seen = 0;
  while (const auto* batch = loader.next()) {
    for (std::int64_t row = 0; row < batch->size; ++row, ++seen) {
      const auto length = batch->at("input_mask")[row].sum().item<std::int64_t>();
      if (length == 0) continue;
      const auto first = batch->inputs[row][0].item<std::int64_t>();
      EXPECT_EQ(lengths[static_cast<std::size_t>(first / 100)], length);
      EXPECT_TRUE(batch->inputs[row]
                      .narrow(0, 0, length)
                      .equal(torch::arange(first, first + length)));
      EXPECT_EQ(batch->inputs[row]
                    .narrow(0, length, batch->inputs.size(1) - length)
                    .abs()
                    .sum()
                    .item<std::int64_t>(),
                0);
    }
  }
  EXPECT_EQ(seen, 160);
}

TEST(Varying, ALengthBeyondTheLongestIsABadSample) {
  const Sequences data({3, 21});
  Loader loader(data, {.batch = 2, .shuffle = false});
  EXPECT_THAT(test::error_text(Fault::io, [&] { loader.next(); }),
              HasSubstr("sample 1: its 'input' has the length 21, the longest of the "
                        "data set is 20"));
}

// Targets of any type; a class that may be missing.
class Answers : public Dataset {
 public:
  Answers() {
    spec_.shape = {2};
    spec_.dtype = torch::kFloat32;
    spec_.target_shape = {3};
    spec_.target_dtype = torch::kFloat32;
    spec_.fields = {{.name = "organ", .dtype = torch::kInt64, .num_classes = 4}};
    spec_.ignore_index = -1;
  }
  std::int64_t size() const noexcept override { return 6; }
  const SampleSpec& spec() const noexcept override { return spec_; }
  void read_sample(const Visit& visit, const SampleBuffer& room) const override {
    EXPECT_TRUE(room.target.empty());
    auto* target = reinterpret_cast<float*>(room.target_bytes.data());
    for (int i = 0; i < 3; ++i) target[i] = static_cast<float>(visit.index) + 0.5F;
    const std::int64_t organ = visit.index < 5 ? visit.index - 1 : 4;
    std::memcpy(room.fields[0].data(), &organ, sizeof organ);
  }

 private:
  SampleSpec spec_;
};

TEST(Varying, TargetsMayBeOfAnyTypeAndClassesMissing) {
  const Answers data;
  Loader loader(data, {.batch = 5, .shuffle = false});
  const auto* batch = loader.next();
  EXPECT_EQ(batch->targets.scalar_type(), torch::kFloat32);
  EXPECT_TRUE(batch->targets.select(1, 2).equal(torch::arange(5) + 0.5));
  EXPECT_TRUE(batch->at("organ").equal(torch::arange(-1, 4)));
  EXPECT_THAT(test::error_text(Fault::io, [&] { loader.next(); }),
              HasSubstr("it has the label 4 in 'organ', the data set has the classes 0 "
                        "to 3"));
}

TEST(Packed, SequencesStandBehindEachOtherInRows) {
  const auto rows = packed(
      std::make_unique<Sequences>(std::vector<std::int64_t>{3, 4, 0, 6, 2, 19}), 8);
  Loader loader(*rows, {.batch = 10, .shuffle = false, .epochs = 1});
  const auto* batch = loader.next();
  // 3 + 4, 6 + 2, then 8 + 8 + 3 of the long one.
  ASSERT_EQ(batch->inputs.sizes(), (std::vector<std::int64_t>{5, 8}));
  EXPECT_TRUE(batch->inputs[0].equal(
      torch::tensor({1, 2, 3, 101, 102, 103, 104, 0}, torch::kInt64)));
  EXPECT_TRUE(batch->at("segment")[0].equal(
      torch::tensor({1, 1, 1, 2, 2, 2, 2, 0}, torch::kInt64)));
  EXPECT_TRUE(batch->at("position")[0].equal(
      torch::tensor({0, 1, 2, 0, 1, 2, 3, 0}, torch::kInt64)));
  EXPECT_TRUE(batch->targets[0].equal(
      torch::tensor({2, 3, 0, 102, 103, 104, 0, -100}, torch::kInt64)));
  EXPECT_TRUE(batch->inputs[3].equal(torch::arange(509, 517)));
  EXPECT_TRUE(batch->at("position")[3].equal(torch::arange(0, 8)))
      << "what is in another row cannot be seen";
  EXPECT_EQ(batch->at("segment").ne(0).sum().item<int>(), 3 + 4 + 6 + 2 + 19)
      << "every token once";
  EXPECT_THAT(
      test::error_text(
          Fault::io,
          [] {
            packed(std::make_unique<Sequences>(std::vector<std::int64_t>{0, 0}), 8);
          }),
      HasSubstr("all 2 sequences are empty"));
}

TEST(Packed, RowsWithoutRoomAreRefused) {
  EXPECT_THAT(
      test::error_text(
          Fault::config,
          [] { packed(std::make_unique<Sequences>(std::vector<std::int64_t>{3}), 0); }),
      HasSubstr("rows of length 0 hold no token"));
}

}  // namespace
}  // namespace lockstep::data
