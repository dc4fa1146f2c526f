// Samples that are made up: for benchmarks, and to try a model without data.
#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/data/random.h"
#include "lockstep/data/sources.h"

namespace lockstep::data {
namespace {

// Noise is drawn once; a sample is a piece of it. Noise larger than the caches would
// measure the memory, not the loader.
constexpr std::int64_t kNoise = 1 << 16;

// Bytes and floats: noise averaged with a pattern of the class, so that there is
// something to learn. Whole numbers: tokens of a sequence, the target is the next one.
class Synthetic : public Dataset {
 public:
  Synthetic(const config::DataConfig& config, Split split)
      : size_(split == Split::train
                  ? config.synthetic_samples
                  : std::max<std::int64_t>(config.synthetic_samples / 10, 1)),
        salt_(split == Split::train ? 1 : 2) {
    const auto limit = sample_limit(config, split);
    if (limit > 0) size_ = std::min(size_, limit);
    spec_.shape.assign(config.shape.begin(), config.shape.end());
    spec_.num_classes = config.classes > 0 ? config.classes : 10;
    switch (config.dtype) {
      case config::SampleType::uint8:
        spec_.dtype = torch::kUInt8;
        spec_.scale = 1 / 64.0F;
        spec_.shift = -2;
        break;
      case config::SampleType::float32:
        spec_.dtype = torch::kFloat32;
        break;
      case config::SampleType::int64:
        spec_.dtype = torch::kInt64;
        spec_.target_shape = spec_.shape;
        break;
    }
    make_noise();
  }

  std::int64_t size() const noexcept override { return size_; }
  const SampleSpec& spec() const noexcept override { return spec_; }
  std::int64_t class_of(std::int64_t index) const override {
    return spec_.target_shape.empty() ? index % spec_.num_classes
                                      : Dataset::class_of(index);
  }

  void read_sample(const Visit& visit, const SampleBuffer& room) const override {
    const auto key = scramble(static_cast<std::uint64_t>(visit.index) ^ (salt_ << 60));
    const auto at = static_cast<std::int64_t>(key % kNoise);
    if (spec_.dtype == torch::kInt64) return read_tokens(at, room);
    room.target[0] = visit.index % spec_.num_classes;
    const auto pattern = static_cast<std::int64_t>(
        scramble(static_cast<std::uint64_t>(room.target[0])) % kNoise);
    if (spec_.dtype == torch::kUInt8) {
      average(bytes_, {at, pattern},
              reinterpret_cast<std::uint8_t*>(room.input.data()));
    } else {
      average(floats_, {at, pattern}, reinterpret_cast<float*>(room.input.data()));
    }
  }

 private:
  void make_noise() {
    Random random(20261115);
    for (std::int64_t i = 0; i < kNoise; ++i) {
      const auto value = random.next();
      bytes_.push_back(static_cast<std::uint8_t>(value));
      floats_.push_back(static_cast<float>(random.uniform(-1, 1)));
      tokens_.push_back(static_cast<std::int64_t>(
          value % static_cast<std::uint64_t>(spec_.num_classes)));
    }
  }

  // Where a sample and its pattern begin in the noise.
  struct Begins {
    std::int64_t sample, pattern;
  };

  // Computes out = (sample + pattern) / 2, both read in a circle.
  template <typename T>
  void average(const std::vector<T>& noise, const Begins& begins, T* out) const {
    auto [a, b] = begins;
    const auto count = spec_.num_elements();
    for (std::int64_t done = 0; done < count;) {
      const auto run = std::min({count - done, kNoise - a, kNoise - b});
      const T* x = noise.data() + a;
      const T* y = noise.data() + b;
      for (std::int64_t i = 0; i < run; ++i) {
        out[done + i] = static_cast<T>((x[i] + y[i]) / 2);
      }
      done += run;
      a = (a + run) % kNoise;
      b = (b + run) % kNoise;
    }
  }

  void read_tokens(std::int64_t at, const SampleBuffer& room) const {
    auto* input = reinterpret_cast<std::int64_t*>(room.input.data());
    const auto token = [&](std::int64_t i) {
      return tokens_[static_cast<std::size_t>((at + i) % kNoise)];
    };
    for (std::int64_t i = 0; i < spec_.num_elements(); ++i) {
      input[i] = token(i);
      room.target[static_cast<std::size_t>(i)] = token(i + 1);
    }
  }

  std::int64_t size_;
  std::uint64_t salt_;  // the samples of the splits differ
  SampleSpec spec_;
  std::vector<std::uint8_t> bytes_;
  std::vector<float> floats_;
  std::vector<std::int64_t> tokens_;
};

}  // namespace

Opened open_synthetic(const config::DataConfig& config, Split split) {
  if (config.shape.empty()) {
    throw Error(Fault::config,
                "data.shape: the data set 'synthetic' has no shape of its own; set "
                "data.shape, for example to [3, 224, 224]");
  }
  return std::make_unique<Synthetic>(config, split);
}

}  // namespace lockstep::data
