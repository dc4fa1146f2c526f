#include "lockstep/storage/torch_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include <fcntl.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/text.h"
#include "lockstep/storage/detail/input_file.h"
#include "lockstep/storage/detail/pickle.h"
#include "lockstep/storage/zip.h"

namespace lockstep::storage {
namespace {

using Kind = PickleValue::Kind;
constexpr std::int64_t kPickleLimit = 64 << 20;
constexpr std::string_view kPickleName = "/data.pkl";

bool has_tensors(const PickleValue& value) {
  return std::any_of(value.pairs.begin(), value.pairs.end(), [](const auto& pair) {
    return pair.second->kind == Kind::tensor;
  });
}

// Returns the dict itself, or the one that it holds under a usual name.
const PickleValue* state_dict_in(const PickleValue& top) {
  if (top.kind != Kind::dict) return nullptr;
  if (has_tensors(top)) return &top;
  for (const std::string_view name :
       {"state_dict", "model_state_dict", "model", "module"}) {
    for (const auto& [key, value] : top.pairs) {
      if (key->kind == Kind::text && key->text == name && has_tensors(*value))
        return value;
    }
  }
  return nullptr;
}

// Returns the place of element `index` of the row-major order in the storage.
std::int64_t element_of(const TorchTensor& tensor, std::int64_t index) {
  auto at = tensor.offset;
  for (auto i = tensor.shape.size(); i-- > 0;) {
    at += index % tensor.shape[i] * tensor.strides[i];
    index /= tensor.shape[i];
  }
  return at;
}

}  // namespace

bool is_row_major(const TorchTensor& tensor) {
  const auto strides = strides_of(tensor.shape, {});
  for (std::size_t i = 0; i < strides.size(); ++i) {
    if (tensor.shape[i] > 1 && tensor.strides[i] != strides[i]) return false;
  }
  return true;
}

struct TorchFile::Impl {
  explicit Impl(const Path& path) : file(path) {}

  void parse();
  void take(const PickleValue& key, const PickleValue& value,
            std::set<std::string>& seen);

  InputFile file;
  std::vector<TorchTensor> tensors;
  std::vector<std::string> left_out;
};

void TorchFile::Impl::parse() {
  const auto place = file.path().string();
  const auto records = read_zip(file);
  const auto pickle_record = std::find_if(
      records.begin(), records.end(),
      [](const auto& record) { return record.first.ends_with(kPickleName); });
  if (pickle_record == records.end() || pickle_record->second.size > kPickleLimit) {
    throw Error(Fault::io, place, ": it has no data.pkl, or one over ", kPickleLimit,
                " bytes; it is not a file of torch.save()");
  }
  const auto prefix =
      pickle_record->first.substr(0, pickle_record->first.size() - kPickleName.size());
  const auto order = records.find(prefix + "/byteorder");
  if (order != records.end() && order->second.size < 16 &&
      file.text(order->second.begin, order->second.size) != "little") {
    throw Error(Fault::io, place, ": its numbers are big-endian");
  }
  const auto pickle = read_pickle(
      file.text(pickle_record->second.begin, pickle_record->second.size),
      [&](const std::string& key, TorchTensor& tensor) {
        const auto found = records.find(prefix + "/data/" + key);
        if (found == records.end()) return false;
        tensor.storage_begin = found->second.begin;
        tensor.storage_bytes = found->second.size;
        return true;
      },
      place);
  const auto* dict = state_dict_in(*pickle.top);
  if (dict == nullptr) {
    throw Error(Fault::io, place,
                ": there is no state dict in it; save one with "
                "torch.save(model.state_dict(), ...)");
  }
  std::set<std::string> seen;
  for (const auto& [key, value] : dict->pairs) take(*key, *value, seen);
}

void TorchFile::Impl::take(const PickleValue& key, const PickleValue& value,
                           std::set<std::string>& seen) {
  const auto place = file.path().string();
  if (key.kind != Kind::text || key.text.empty() ||
      text::first_invalid_utf8(key.text)) {
    throw Error(Fault::io, place, ": a key of the state dict is no name");
  }
  if (!seen.insert(key.text).second) {
    throw Error(Fault::io, place, ": '", key.text, "' comes twice");
  }
  if (value.kind != Kind::tensor) return left_out.push_back(key.text);
  tensors.push_back(*value.tensor);
  tensors.back().name = key.text;
}

bool is_torch_file(const Path& path) {
  const files::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<unsigned char, 9> begin{};
  const auto count = file ? ::pread(file.get(), begin.data(), begin.size(), 0) : 0;
  if (count < 2) return false;
  // A safetensors file begins with the length of its header, which may be any of these
  // bytes, and then comes the header.
  const bool short_length =
      begin[4] == 0 && begin[5] == 0 && begin[6] == 0 && begin[7] == 0;
  if (count == static_cast<ssize_t>(begin.size()) && short_length && begin[8] == '{')
    return false;
  constexpr unsigned char kProtocol = 0x80, kNewestProtocol = 5;
  return (begin[0] == 'P' && begin[1] == 'K') ||
         (begin[0] == kProtocol && begin[1] <= kNewestProtocol);
}

TorchFile::TorchFile(const Path& path) : impl_(std::make_unique<Impl>(path)) {
  impl_->parse();
}

TorchFile::~TorchFile() = default;
TorchFile::TorchFile(TorchFile&&) noexcept = default;

const std::vector<TorchTensor>& TorchFile::tensors() const noexcept {
  return impl_->tensors;
}

const std::vector<std::string>& TorchFile::left_out() const noexcept {
  return impl_->left_out;
}

void TorchFile::read(const TorchTensor& tensor, std::int64_t begin,
                     std::span<std::byte> out) const {
  if (out.empty()) return;
  const auto width = num_bytes(tensor.dtype, 1).value_or(0);
  LOCKSTEP_CHECK(width > 0, tensor.name, " ", tensor.dtype);
  const auto count = static_cast<std::int64_t>(out.size()) / width;
  LOCKSTEP_CHECK(width * count == static_cast<std::int64_t>(out.size()), tensor.name);
  const auto read_elements = [&](std::int64_t first, std::span<std::byte> into) {
    impl_->file.read(tensor.storage_begin + first * width, into);
  };
  if (is_row_major(tensor)) return read_elements(tensor.offset + begin, out);
  std::int64_t low = INT64_MAX, high = 0;
  for (auto i = begin; i < begin + count; ++i) {
    low = std::min(low, element_of(tensor, i));
    high = std::max(high, element_of(tensor, i) + 1);
  }
  std::vector<std::byte> stretch(static_cast<std::size_t>((high - low) * width));
  read_elements(low, stretch);
  for (auto i = begin; i < begin + count; ++i) {
    const auto from = static_cast<std::size_t>((element_of(tensor, i) - low) * width);
    std::memcpy(out.data() + (i - begin) * width, stretch.data() + from,
                static_cast<std::size_t>(width));
  }
}

}  // namespace lockstep::storage
