#include <map>

#include "lockstep/base/error.h"
#include "lockstep/storage/detail/pickle.h"

namespace lockstep::storage {
namespace {

using Kind = PickleValue::Kind;

constexpr std::string_view kTorch = "torch.";

using Names = std::map<std::string, std::string, std::less<>>;

const Names& storage_classes() {
  static const Names kClasses = {
      {"FloatStorage", "F32"},       {"DoubleStorage", "F64"},
      {"HalfStorage", "F16"},        {"LongStorage", "I64"},
      {"IntStorage", "I32"},         {"ShortStorage", "I16"},
      {"CharStorage", "I8"},         {"ByteStorage", "U8"},
      {"BoolStorage", "BOOL"},       {"BFloat16Storage", "BF16"},
      {"ComplexFloatStorage", "C64"}};
  return kClasses;
}

// Returns the dtype of a class of storages, or of a dtype's name.
std::string dtype_of(const std::string& name) {
  static const Names kDtypes = {{"float32", "F32"},
                                {"float64", "F64"},
                                {"float16", "F16"},
                                {"bfloat16", "BF16"},
                                {"int64", "I64"},
                                {"int32", "I32"},
                                {"int16", "I16"},
                                {"int8", "I8"},
                                {"uint8", "U8"},
                                {"uint16", "U16"},
                                {"uint32", "U32"},
                                {"uint64", "U64"},
                                {"bool", "BOOL"},
                                {"complex64", "C64"},
                                {"float8_e5m2", "F8_E5M2"},
                                {"float8_e4m3fn", "F8_E4M3"}};
  if (name.starts_with(kTorch)) {
    for (const auto* names : {&storage_classes(), &kDtypes}) {
      const auto found = names->find(std::string_view(name).substr(kTorch.size()));
      if (found != names->end()) return found->second;
    }
  }
  throw Error(Fault::io, "a tensor of ", name, " has no place in a safetensors file");
}

std::vector<std::int64_t> integers_of(const PickleValue& value) {
  std::vector<std::int64_t> result;
  if (value.kind != Kind::sequence || value.items.size() > kMostTensorDimensions) {
    throw Error(Fault::io, "the size of a tensor is torn");
  }
  for (const auto* item : value.items) {
    if (item->kind != Kind::integer || item->integer < 0) {
      throw Error(Fault::io, "the size of a tensor is torn");
    }
    result.push_back(item->integer);
  }
  return result;
}

// Checks that the last element that it reaches is in its storage.
void check_extent(const TorchTensor& tensor) {
  const auto count = num_elements(tensor.shape);
  const auto bytes = count ? num_bytes(tensor.dtype, *count) : std::nullopt;
  if (!bytes || tensor.strides.size() != tensor.shape.size()) {
    throw Error(Fault::io, "a tensor of shape ", to_text(tensor.shape),
                " is impossible");
  }
  if (*count == 0) return;
  std::int64_t last = tensor.offset;
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    std::int64_t reach = 0;
    if (__builtin_mul_overflow(tensor.shape[i] - 1, tensor.strides[i], &reach) ||
        __builtin_add_overflow(last, reach, &last)) {
      throw Error(Fault::io, "a tensor of shape ", to_text(tensor.shape),
                  " is impossible");
    }
  }
  const auto width = *num_bytes(tensor.dtype, 1);
  if (last >= tensor.storage_bytes / width || *bytes > tensor.storage_bytes) {
    throw Error(Fault::io, "a tensor of shape ", to_text(tensor.shape),
                " is larger than its storage of ", tensor.storage_bytes,
                " bytes; save it as .contiguous()");
  }
}

}  // namespace

std::optional<std::string> storage_class(std::string_view dtype) {
  for (const auto& [name, its_dtype] : storage_classes()) {
    if (its_dtype == dtype) return name;
  }
  return std::nullopt;
}

TorchTensor rebuilt_tensor(const std::string& function, const PickleValue& arguments,
                           const FindStorage& find) {
  const bool third = function.ends_with("_v3");
  const auto& items = arguments.items;
  if (items.size() < (third ? 7U : 4U) || items[0]->kind != Kind::storage ||
      items[1]->kind != Kind::integer || items[1]->integer < 0 ||
      (third && items[6]->kind != Kind::name)) {
    throw Error(Fault::io, "a tensor is torn");
  }
  TorchTensor tensor;
  tensor.dtype = dtype_of(third ? items[6]->text : items[0]->global);
  tensor.offset = items[1]->integer;
  tensor.shape = integers_of(*items[2]);
  tensor.strides = integers_of(*items[3]);
  if (!find(items[0]->text, tensor)) {
    throw Error(Fault::io, "storage '", items[0]->text, "' is not in the file");
  }
  check_extent(tensor);
  return tensor;
}

}  // namespace lockstep::storage
