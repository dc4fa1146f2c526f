#include "lockstep/data/detail/npy.h"

#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include <zlib.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/storage/zip.h"

namespace lockstep::data::detail {
namespace {

using Bytes = std::span<const std::byte>;

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::string_view kSaveAgain = "; numpy.save() it again";

// An array, where it lies. `owner` keeps the bytes.
struct Place {
  std::shared_ptr<const void> owner;
  Bytes bytes;
  std::string where;  // "a.npz: 'x'", for errors
};

template <typename... Parts>
[[noreturn]] void refuse(const Place& place, const Parts&... parts) {
  throw Error(Fault::io, "data: '", place.where, "' ", parts...);
}

torch::Dtype dtype_of(const Place& place, std::string_view descr) {
  using Row = std::pair<std::string_view, torch::Dtype>;
  constexpr std::array kTypes{
      Row{"b1", torch::kBool},
      Row{"i1", torch::kInt8},
      Row{"i2", torch::kInt16},
      Row{"i4", torch::kInt32},
      Row{"i8", torch::kInt64},
      Row{"u1", torch::kUInt8},
      Row{"u2", c10::ScalarType::UInt16},
      Row{"u4", c10::ScalarType::UInt32},
      Row{"f2", torch::kFloat16},
      Row{"f4", torch::kFloat32},
      Row{"f8", torch::kFloat64},
  };
  if (descr.size() == 3 && descr[0] != '>') {
    for (const auto& [name, dtype] : kTypes) {
      if (descr.substr(1) == name) return dtype;
    }
  }
  refuse(place, "has the dtype '", std::string(descr),
         "'; little-endian numbers and bool are read: numpy.save(file, "
         "x.astype('float32')), or another dtype that fits");
}

// Returns the text behind `key` in the header, which is a literal of Python:
// {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
std::string_view behind(const Place& place, std::string_view header,
                        std::string_view key) {
  const auto at = header.find(str("'", key, "':"));
  if (at == std::string_view::npos) {
    refuse(place, "has no '", std::string(key), "' in its header", kSaveAgain);
  }
  return text::trim(header.substr(at + key.size() + 3));
}

std::vector<std::int64_t> shape_of(const Place& place, std::string_view header) {
  const auto rest = behind(place, header, "shape");
  const auto end = rest.find(')');
  if (!rest.starts_with('(') || end == std::string_view::npos) {
    refuse(place, "has no shape in its header", kSaveAgain);
  }
  std::vector<std::int64_t> shape;
  std::int64_t elements = 1;
  for (const auto& word : text::split(rest.substr(1, end - 1), ',')) {
    if (text::trim(word).empty()) continue;
    const auto size = text::to_integer(text::trim(word));
    const auto most = std::numeric_limits<std::int64_t>::max() / 16;
    if (!size || *size < 0 || (*size > 0 && elements > most / *size)) {
      refuse(place, "has the shape ", std::string(rest.substr(0, end + 1)), kSaveAgain);
    }
    elements *= std::max<std::int64_t>(*size, 1);
    shape.push_back(*size);
  }
  return shape;
}

// Returns the header and the place of the first value.
std::pair<std::string_view, std::size_t> header_of(const Place& place) {
  const std::string_view all(reinterpret_cast<const char*>(place.bytes.data()),
                             place.bytes.size());
  if (all.size() < 10 || !all.starts_with(kMagic)) {
    refuse(place, "is not a file of numpy.save(); check its name");
  }
  const auto byte = [&](std::size_t at) {
    return static_cast<std::size_t>(static_cast<unsigned char>(all[at]));
  };
  const bool is_first = byte(6) == 1;  // version 1 has two bytes for the length
  if (!is_first && all.size() < 12) refuse(place, "is truncated", kSaveAgain);
  const auto length =
      byte(8) + (byte(9) << 8) + (is_first ? 0 : (byte(10) << 16) + (byte(11) << 24));
  const std::size_t begin = is_first ? 10 : 12;
  if (length > all.size() - begin) refuse(place, "is truncated", kSaveAgain);
  return {all.substr(begin, length), begin + length};
}

torch::Tensor tensor_of(const Place& place) {
  const auto [header, begin] = header_of(place);
  const auto descr = behind(place, header, "descr");
  const auto quote = descr.find('\'', 1);
  if (!descr.starts_with('\'') || quote == std::string_view::npos) {
    refuse(place, "holds records, not one kind of number; numpy.save() each field");
  }
  const auto dtype = dtype_of(place, descr.substr(1, quote - 1));
  if (behind(place, header, "fortran_order").starts_with("True")) {
    refuse(place,
           "lies in Fortran's order; numpy.save(file, numpy.ascontiguousarray(x))");
  }
  const auto shape = shape_of(place, header);
  std::size_t wanted = c10::elementSize(dtype);
  for (const auto size : shape) wanted *= static_cast<std::size_t>(size);
  const auto there = place.bytes.size() - begin;
  if (there < wanted) {
    refuse(place, "is truncated: its values take ", wanted, " bytes, ", there,
           " are there; copy it again");
  }
  auto* values = const_cast<std::byte*>(place.bytes.data() + begin);  // never written
  if (reinterpret_cast<std::uintptr_t>(values) % c10::elementSize(dtype) != 0) {
    auto copy = torch::empty(shape, dtype);
    std::memcpy(copy.data_ptr(), values, wanted);
    return copy;
  }
  return torch::from_blob(
      values, shape, [owner = place.owner](void*) {}, dtype);
}

// Returns the bytes of a record that is compressed.
std::shared_ptr<std::vector<std::byte>> inflated(const Place& packed,
                                                 const storage::ZipRecord& record) {
  // A header may promise anything; deflate makes at most 1032 bytes of one.
  constexpr std::int64_t kMostRatio = 1032;
  if (record.full < 0 || record.full / kMostRatio > record.size + 1) {
    refuse(packed, "says that it has ", record.full, " bytes, which ", record.size,
           " cannot hold; copy it again");
  }
  auto bytes =
      std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(record.full));
  z_stream stream{};
  if (::inflateInit2(&stream, -MAX_WBITS) != Z_OK) {
    throw Error(Fault::internal, "zlib: inflateInit2");
  }
  constexpr std::size_t kPiece = 1 << 30;  // zlib counts in 32 bits
  std::size_t in = 0, out = 0;
  int status = Z_OK;
  while (status == Z_OK) {
    const auto take = std::min(kPiece, packed.bytes.size() - in);
    const auto room = std::min(kPiece, bytes->size() - out);
    stream.next_in =
        reinterpret_cast<Bytef*>(const_cast<std::byte*>(packed.bytes.data() + in));
    stream.avail_in = static_cast<uInt>(take);
    stream.next_out = reinterpret_cast<Bytef*>(bytes->data() + out);
    stream.avail_out = static_cast<uInt>(room);
    status = ::inflate(&stream, Z_NO_FLUSH);
    in += take - stream.avail_in;
    out += room - stream.avail_out;
  }
  ::inflateEnd(&stream);
  const auto sum = ::crc32_z(0, reinterpret_cast<const Bytef*>(bytes->data()), out);
  if (status != Z_STREAM_END || out != bytes->size() || sum != record.crc32) {
    refuse(packed, "is damaged: it cannot be decompressed; copy it again");
  }
  return bytes;
}

}  // namespace

torch::Tensor read_npy(const std::string& path) {
  auto file = std::make_shared<MappedFile>(path);
  const auto bytes = file->bytes();
  return tensor_of({std::move(file), bytes, path});
}

std::vector<StoredArray> read_npz_arrays(const std::string& path) {
  const auto file = std::make_shared<MappedFile>(path);
  std::vector<StoredArray> arrays;
  const auto there = static_cast<std::int64_t>(file->bytes().size());
  for (const auto& [key, record] : storage::read_npz(path)) {
    if (record.begin + record.size > there) {
      throw Error(Fault::io, "data: '", path, "' changes while it is read");
    }
    auto name = key;
    if (name.ends_with(".npy")) name.resize(name.size() - 4);
    Place place{file,
                file->bytes().subspan(static_cast<std::size_t>(record.begin),
                                      static_cast<std::size_t>(record.size)),
                path + "': '" + name};
    if (record.is_deflated) {
      const auto bytes = inflated(place, record);
      place.owner = bytes;
      place.bytes = *bytes;
    }
    arrays.push_back({std::move(name), tensor_of(place)});
  }
  if (arrays.empty()) {
    throw Error(Fault::io, "data: '", path, "' holds no arrays");
  }
  return arrays;
}

}  // namespace lockstep::data::detail
