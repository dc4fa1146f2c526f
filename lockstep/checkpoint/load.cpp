#include "lockstep/checkpoint/load.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/in_parallel.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/hf/tensors.h"
#include "lockstep/hf/weights.h"
#include "lockstep/storage/torch_file.h"
#include "lockstep/storage/weights_file.h"

namespace lockstep::checkpoint {
namespace {

// Collects the differences, the first few of each kind by name.
class Differences {
 public:
  void add(const std::string& kind, const std::string& name) {
    kinds_[kind].push_back(name);
  }
  void throw_if_any(const std::string& place) const {
    if (kinds_.empty()) return;
    std::string text;
    for (const auto& [kind, names] : kinds_) {
      constexpr std::size_t kShown = 20;
      auto some = names;
      some.resize(std::min(some.size(), kShown));
      text += str("\n  ", kind, " (", names.size(), "): ", text::join(some, ", "),
                  names.size() > kShown ? ", ..." : "");
    }
    throw Error(Fault::config, place,
                ": the checkpoint does not fit this model; it is of another model, "
                "optimizer or precision.mode (checkpoint.allow_missing and "
                "checkpoint.ignore take patterns of names):",
                text);
  }

 private:
  std::map<std::string, std::vector<std::string>> kinds_;
};

struct Has {
  std::string dtype;
  storage::Shape shape;
};

// The bits of a number that are kept, by the name of a dtype that can become another.
struct Precision {
  torch::Dtype dtype = torch::kFloat32;
  int bits = 0, exponent = 0;
};

std::optional<Precision> precision_of(const std::string& dtype) {
  if (dtype == "F64") return Precision{torch::kFloat64, 53, 11};
  if (dtype == "F32") return Precision{torch::kFloat32, 24, 8};
  if (dtype == "F16") return Precision{torch::kFloat16, 11, 5};
  if (dtype == "BF16") return Precision{torch::kBFloat16, 8, 8};
  return std::nullopt;
}

bool narrows(const std::string& from, const std::string& to) {
  const auto before = precision_of(from), after = precision_of(to);
  return before && after &&
         (after->bits < before->bits || after->exponent < before->exponent);
}

// Selects whether numbers of another dtype are taken.
enum class Dtypes { same, converted };

// A source may lack the rows that only fill the embedding up.
bool lacks_padding(const Expected& one, const storage::Shape& shape,
                   const LoadRules& rules) {
  const auto multiple = rules.pad_vocabulary;
  if (one.name != hf::kEmbedding || multiple == 1 || shape.size() != 2) return false;
  const auto padded = (shape[0] + multiple - 1) / multiple * multiple;
  return shape[0] == rules.vocabulary && one.shape == storage::Shape{padded, shape[1]};
}

// What is expected of a source, and how strictly.
struct Expectation {
  const std::vector<Expected>& expected;
  const LoadRules& rules;
  Dtypes dtypes = Dtypes::same;
};

void compare(const std::map<std::string, Has>& has, const std::string& place,
             const Expectation& expectation) {
  const auto& [expected, rules, dtypes] = expectation;
  Differences differences;
  std::map<std::string, bool> wanted;
  for (const auto& one : expected) {
    wanted[one.name] = true;
    const auto found = has.find(one.name);
    if (text::matches_any(rules.ignore, one.name)) continue;
    if (found == has.end()) {
      if (!text::matches_any(rules.allow_missing, one.name))
        differences.add("missing", one.name);
      continue;
    }
    const auto& shape = found->second.shape;
    if (shape != one.shape && !lacks_padding(one, shape, rules)) {
      differences.add("other shape", str(one.name, " ", storage::to_text(shape),
                                         " instead of ", storage::to_text(one.shape)));
    } else if (found->second.dtype != one.dtype &&
               !(dtypes == Dtypes::converted && precision_of(one.dtype) &&
                 precision_of(found->second.dtype))) {
      differences.add("other dtype", str(one.name, " ", found->second.dtype,
                                         " instead of ", one.dtype));
    }
  }
  for (const auto& [name, tensor] : has) {
    if (!wanted.contains(name) && !text::matches_any(rules.ignore, name)) {
      differences.add("unknown here", name);
    }
  }
  differences.throw_if_any(place);
}

std::span<std::byte> bytes_of(const torch::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

// A model that begins with a NaN computes nothing else, and the loss would be blamed on
// the learning rate. Infinities are left: masks have them.
void check_no_nan(const torch::Tensor& tensor, const std::string& name,
                  const std::string& place) {
  if (!tensor.is_floating_point()) return;
  const auto bad = tensor.isnan().sum().item<std::int64_t>();
  if (bad == 0) return;
  throw Error(Fault::config, place, ": ", bad, " of ", tensor.numel(), " elements of '",
              name,
              "' are NaN; training cannot begin with them: name other weights, or "
              "leave the tensor out by checkpoint.ignore");
}

// The weights that a model begins with, by its names.
struct WeightSource {
  std::map<std::string, Has> has;
  std::function<void(const std::string& name, std::span<std::byte> out)> read;
};

WeightSource open_folder(const std::filesystem::path& folder, const LoadRules& rules) {
  const auto weights = std::make_shared<hf::Weights>(folder);
  weights->check({rules.allow_missing, rules.ignore});
  WeightSource source;
  std::map<std::string, std::size_t> indices;
  for (std::size_t i = 0; i < weights->tensors().size(); ++i) {
    const auto& [name, dtype, shape] = weights->tensors()[i];
    source.has[name] = {dtype, shape};
    indices[name] = i;
  }
  source.read = [weights, indices](const std::string& name, std::span<std::byte> out) {
    weights->read(indices.at(name), out);
  };
  return source;
}

WeightSource open_weights(const std::filesystem::path& path, const LoadRules& rules) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return open_folder(path, rules);
  if (storage::is_torch_file(path)) {
    throw Error(Fault::config, "model.weights: '", path.string(),
                "' is a file of PyTorch; make one of it that a recipe can load: "
                "lockstep checkpoint import ",
                path.string(), " --to ",
                std::filesystem::path(path).replace_extension(".safetensors").string());
  }
  const auto file = std::make_shared<storage::WeightsFile>(path);
  WeightSource source;
  std::map<std::string, std::size_t> indices;
  for (std::size_t i = 0; i < file->tensors().size(); ++i) {
    const auto& entry = file->tensors()[i];
    source.has[entry.name] = {entry.dtype, entry.shape};
    indices[entry.name] = i;
  }
  source.read = [file, indices](const std::string& name, std::span<std::byte> out) {
    std::size_t at = 0;
    file->read(indices.at(name), [&](std::span<const std::byte> piece) {
      std::memcpy(out.data() + at, piece.data(), piece.size());
      at += piece.size();
    });
  };
  return source;
}

// A tensor with more rows than its source has zeros in the rest; compare() has allowed
// it.
torch::Tensor with_all_rows(const torch::Tensor& host, const torch::Tensor& tensor) {
  if (tensor.sizes() == host.sizes()) return host;
  auto all = torch::zeros(tensor.sizes(), host.options());
  all.narrow(0, 0, host.size(0)).copy_(host);
  return all;
}

// Cuts a piece into parts that several threads can share.
void cut(const Piece& piece, Pieces& parts) {
  constexpr std::int64_t kBytes = 32 << 20;
  const auto most = std::max<std::int64_t>(1, kBytes / piece.data.element_size());
  for (std::int64_t at = 0; at < piece.data.numel(); at += most) {
    auto part = piece;
    part.begin += at;
    part.data = piece.data.narrow(0, at, std::min(most, piece.data.numel() - at));
    parts.push_back(std::move(part));
  }
}

}  // namespace

void check(const storage::Manifest& manifest, const std::vector<Expected>& expected,
           const LoadRules& rules) {
  std::map<std::string, Has> has;
  for (const auto& tensor : manifest.tensors) {
    has[tensor.name] = {tensor.dtype, tensor.shape};
  }
  compare(has, str("checkpoint of step ", manifest.step), {expected, rules});
}

void load(const storage::Reader& reader, const Pieces& pieces, const LoadRules& rules) {
  Pieces parts;
  for (const auto& piece : pieces) {
    if (piece.data.numel() == 0 || text::matches_any(rules.ignore, piece.name))
      continue;
    const auto* stored = reader.manifest().find(piece.name);
    if (stored == nullptr) continue;  // check() allows it
    // With another order, a part may need all of the tensor.
    if (stored->order == storage::normal(piece.order)) {
      cut(piece, parts);
    } else {
      parts.push_back(piece);
    }
  }
  constexpr std::size_t kThreads = 4;  // for the disk: hashing is one's that reads
  in_parallel(parts.size(), kThreads, [&](std::size_t i) {
    const torch::NoGradGuard no_grad;  // of this thread
    const auto& part = parts[i];
    const bool here = part.data.device().is_cpu();
    auto host = here ? part.data : torch::empty_like(part.data, torch::kCPU);
    reader.read(part.name,
                {.begin = part.begin, .count = part.data.numel(), .order = part.order},
                bytes_of(host));
    if (text::starts_with(part.name, "model.")) {
      check_no_nan(host, part.name, reader.path().string());
    }
    if (!here) part.data.copy_(host);
  });
}

void load_weights(const std::filesystem::path& path, const LoadTarget& target,
                  const LoadRules& rules) {
  const torch::NoGradGuard no_grad;
  const auto source = open_weights(path, rules);
  std::vector<Expected> expected;
  const auto state = state_of(target.model);
  for (const auto& [name, tensor] : state) {
    expected.push_back({name, dtype_name(tensor.scalar_type()), tensor.sizes().vec()});
  }
  compare(source.has, path.string(), {expected, rules, Dtypes::converted});
  std::map<std::string, int> rounded;
  for (const auto& [name, tensor] : state) {
    const auto found = source.has.find(name);
    if (found == source.has.end() || text::matches_any(rules.ignore, name)) continue;
    const auto& [dtype, shape] = found->second;
    const auto own = dtype_name(tensor.scalar_type());
    if (narrows(dtype, own)) rounded[dtype + " to " + own] += 1;
    const auto saved = precision_of(dtype);
    const auto host = torch::empty(shape, saved ? saved->dtype : tensor.scalar_type());
    source.read(name, bytes_of(host));
    check_no_nan(host, name, str("model.weights: ", path.string()));
    target.set(tensor, with_all_rows(host, tensor));
  }
  for (const auto& [how, count] : rounded) {
    log::warning("checkpoint", fmt::format("{}: {} tensors were rounded from {}, which "
                                           "precision.mode computes with",
                                           path.string(), count, how));
  }
}

}  // namespace lockstep::checkpoint
