#pragma once

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/data/loader.h"
#include "tests/support/support.h"

namespace lockstep::test {

// Images of one byte pattern each, in memory: pixel p of sample i is f(i, p).
class Pictures : public data::Dataset {
 public:
  using Pixel = std::function<int(std::int64_t index, std::int64_t at)>;

  Pictures(std::int64_t size, std::vector<std::int64_t> shape, Pixel pixel,
           std::int64_t num_classes = 10)
      : size_(size), pixel_(std::move(pixel)) {
    spec_.shape = std::move(shape);
    spec_.num_classes = num_classes;
    spec_.scale = 1 / 255.0F;
  }
  std::int64_t size() const noexcept override { return size_; }
  const data::SampleSpec& spec() const noexcept override { return spec_; }
  std::int64_t class_of(std::int64_t index) const override {
    return index % spec_.num_classes;
  }
  std::int64_t read(std::int64_t index, std::span<std::byte> input) const override {
    for (std::size_t i = 0; i < input.size(); ++i) {
      input[i] =
          static_cast<std::byte>(pixel_(index, static_cast<std::int64_t>(i)) & 0xFF);
    }
    return class_of(index);
  }

 private:
  std::int64_t size_;
  Pixel pixel_;
  data::SampleSpec spec_;
};

// Something to look at: neighbours and samples differ.
inline Pictures noise_pictures(std::int64_t size, std::vector<std::int64_t> shape) {
  return {size, std::move(shape), [](std::int64_t index, std::int64_t at) {
            return static_cast<int>((index * 7919 + at * 104729 + at * at) >> 3);
          }};
}

// All batches of a loader after one another, copied.
struct Everything {
  torch::Tensor inputs, targets;
};
inline Everything everything(const data::Dataset& dataset,
                             const data::LoaderOptions& options) {
  data::Loader loader(dataset, options);
  std::vector<torch::Tensor> inputs, targets;
  while (const auto* batch = loader.next()) {
    inputs.push_back(batch->inputs.clone());
    targets.push_back(batch->targets.clone());
  }
  return {torch::cat(inputs), torch::cat(targets)};
}

// The shares of all ranks, put together batch by batch.
inline Everything everything_over(const data::Dataset& dataset,
                                  data::LoaderOptions options, int ranks) {
  std::vector<std::unique_ptr<data::Loader>> loaders;
  options.ranks = ranks;
  for (options.rank = 0; options.rank < ranks; ++options.rank) {
    loaders.push_back(std::make_unique<data::Loader>(dataset, options));
  }
  std::vector<torch::Tensor> inputs, targets;
  while (true) {
    for (auto& loader : loaders) {
      const auto* batch = loader->next();
      if (batch == nullptr) return {torch::cat(inputs), torch::cat(targets)};
      inputs.push_back(batch->inputs.clone());
      targets.push_back(batch->targets.clone());
    }
  }
}

// One sample without a loader.
inline torch::Tensor sample_of(const data::Dataset& dataset, const data::Visit& visit) {
  const auto& spec = dataset.spec();
  auto input = torch::empty(spec.shape, spec.dtype);
  std::vector<std::int64_t> target(static_cast<std::size_t>(spec.num_targets()));
  dataset.read_sample(visit, {{static_cast<std::byte*>(input.data_ptr()),
                               static_cast<std::size_t>(spec.num_bytes())},
                              target,
                              {}});
  return input;
}

}  // namespace lockstep::test
