#include "lockstep/hf/adapted.h"

#include <functional>
#include <map>
#include <span>

#include "lockstep/base/error.h"
#include "lockstep/hf/base_digest.h"
#include "lockstep/hf/weights.h"
#include "lockstep/storage/numbers.h"
#include "lockstep/storage/weights_file.h"

namespace lockstep::hf {
namespace {

using Bytes = std::vector<std::byte>;

struct StoredTensor {
  std::string dtype;
  storage::Shape shape;
  std::function<Bytes()> read;
};

std::size_t bytes_of(const std::string& dtype, const storage::Shape& shape) {
  const auto elements = storage::num_elements(shape).value_or(0);
  return static_cast<std::size_t>(storage::num_bytes(dtype, elements).value_or(0));
}

std::vector<float> numbers_of(const StoredTensor& stored, const std::string& name) {
  const auto elements = storage::num_elements(stored.shape).value_or(0);
  std::vector<double> numbers(static_cast<std::size_t>(elements));
  const bool is_float = stored.dtype[0] == 'F' || stored.dtype == "BF16";
  if (!is_float || !storage::to_numbers(stored.dtype, stored.read(), numbers)) {
    throw Error(Fault::config, "checkpoint export: '", name, "' has dtype ",
                stored.dtype, "; adapters are added to floating-point numbers");
  }
  return {numbers.begin(), numbers.end()};
}

}  // namespace

struct AdaptedWeights::Impl {
  std::map<std::string, StoredTensor> base, adapters;
  double scale = 1;
  // What the functions above read from.
  std::shared_ptr<Weights> folder;
  std::shared_ptr<storage::WeightsFile> file;

  void take_folder(const Path& path) {
    folder = std::make_shared<Weights>(path);
    for (std::size_t i = 0; i < folder->tensors().size(); ++i) {
      const auto& [name, dtype, shape] = folder->tensors()[i];
      base[name] = {dtype, shape, [this, i, size = bytes_of(dtype, shape)] {
                      Bytes bytes(size);
                      folder->read(i, bytes);
                      return bytes;
                    }};
    }
  }

  void take_file(const Path& path) {
    file = std::make_shared<storage::WeightsFile>(path);
    for (std::size_t i = 0; i < file->tensors().size(); ++i) {
      const auto& entry = file->tensors()[i];
      base[entry.name] = {entry.dtype, entry.shape, [this, i] {
                            Bytes bytes;
                            file->read(i, [&](std::span<const std::byte> piece) {
                              bytes.insert(bytes.end(), piece.begin(), piece.end());
                            });
                            return bytes;
                          }};
    }
  }

  void take_adapters(const storage::Reader& reader,
                     const std::map<std::string, std::string>& sources) {
    for (const auto& [name, source] : sources) {
      const auto& record = reader.tensor(source);
      adapters[name] = {
          record.dtype, record.shape,
          [&reader, source = source, size = bytes_of(record.dtype, record.shape)] {
            Bytes bytes(size);
            reader.read(source, bytes);
            return bytes;
          }};
    }
  }
};

AdaptedWeights::AdaptedWeights(const config::Config& config,
                               const storage::Reader& reader,
                               const std::map<std::string, std::string>& sources)
    : impl_(std::make_unique<Impl>()) {
  impl_->take_adapters(reader, sources);
  const Path path = config.model.weights;
  std::error_code ignored;
  if (path.empty()) {
    impl_->base = impl_->adapters;  // such a run has saved all of its weights
  } else if (!std::filesystem::exists(path, ignored)) {
    throw Error(
        Fault::config,
        "checkpoint export: the checkpoint holds adapters, and the weights that "
        "they belong to, '",
        path.string(), "', are not there; put them back");
  } else if (std::filesystem::is_directory(path)) {
    impl_->take_folder(path);
  } else {
    impl_->take_file(path);
  }
  check_base("checkpoint export: ", reader.manifest(), config);
  impl_->scale = config.lora.alpha / static_cast<double>(config.lora.rank);
}

AdaptedWeights::~AdaptedWeights() = default;
AdaptedWeights::AdaptedWeights(AdaptedWeights&&) noexcept = default;

storage::Shape AdaptedWeights::shape(const std::string& name) const {
  const auto found = impl_->base.find(name);
  if (found != impl_->base.end()) return found->second.shape;
  throw Error(Fault::config,
              "checkpoint export: the weights under the adapters have no '", name,
              "', which a gpt has");
}

std::vector<float> AdaptedWeights::read(const std::string& name) const {
  const auto layer_shape = shape(name);
  auto numbers = numbers_of(impl_->base.at(name), name);
  constexpr std::string_view kWeight = "weight";
  if (!name.ends_with(kWeight)) return numbers;
  const auto layer = name.substr(0, name.size() - kWeight.size());
  const auto a = impl_->adapters.find(layer + "lora_A");
  const auto b = impl_->adapters.find(layer + "lora_B");
  if (a == impl_->adapters.end() || b == impl_->adapters.end()) return numbers;
  const auto first = numbers_of(a->second, a->first);
  const auto second = numbers_of(b->second, b->first);
  const auto rows = static_cast<std::size_t>(layer_shape.at(0));
  const auto columns = static_cast<std::size_t>(layer_shape.at(1));
  const auto rank = first.size() / columns;
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t r = 0; r < rank; ++r) {
      const auto factor =
          static_cast<float>(impl_->scale * double{second[row * rank + r]});
      for (std::size_t column = 0; column < columns; ++column) {
        numbers[row * columns + column] += factor * first[r * columns + column];
      }
    }
  }
  return numbers;
}

}  // namespace lockstep::hf
