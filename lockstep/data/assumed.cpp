#include "lockstep/data/assumed.h"

#include <algorithm>
#include <string_view>

namespace lockstep::data {
namespace {

constexpr std::int64_t kClassesOfImages = 1000;  // ImageNet's
constexpr std::int64_t kWords = 50'257;          // GPT-2's

struct KnownImages {
  std::string_view name;
  std::int64_t channels, side;
  std::int64_t classes;
  std::int64_t samples;
};

constexpr KnownImages kKnown[] = {{"fashion_mnist", 1, 28, 10, 60'000},
                                  {"cifar10", 3, 32, 10, 50'000},
                                  {"cifar100", 3, 32, 100, 50'000}};

AssumedSamples tokens(const config::DataConfig& config) {
  AssumedSamples samples;
  auto& spec = samples.spec;
  spec.shape = spec.target_shape = {config.sequence};
  spec.dtype = torch::kInt64;
  spec.num_classes = config.classes > 0 ? config.classes : kWords;
  return samples;
}

AssumedSamples images(std::int64_t channels, std::int64_t side, std::int64_t classes) {
  AssumedSamples samples;
  samples.spec.shape = {channels, side, side};
  samples.spec.num_classes = classes;
  return samples;
}

}  // namespace

std::optional<AssumedSamples> assumed_samples(const config::DataConfig& config) {
  for (const auto& known : kKnown) {
    if (known.name != config.name) continue;
    const auto side = config.resize > 0 ? config.resize : known.side;
    auto samples = images(known.channels, side, known.classes);
    const auto limit = config.train_samples;
    samples.train_samples = limit > 0 ? std::min(limit, known.samples) : known.samples;
    return samples;
  }
  if (config.name == "tokens" || config.name == "text") return tokens(config);
  const bool has_images = config.name == "image_folder" || config.name == "webdataset";
  if (!has_images || config.resize == 0) return std::nullopt;
  auto samples = images(3, config.resize, kClassesOfImages);
  samples.train_samples = config.train_samples;
  return samples;
}

}  // namespace lockstep::data
