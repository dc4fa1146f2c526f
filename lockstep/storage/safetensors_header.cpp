// The strict reader of the JSON in front of a safetensors file.
#include <algorithm>
#include <limits>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/storage/detail/json_sax.h"
#include "lockstep/storage/safetensors.h"

namespace lockstep::storage {
namespace {

constexpr std::string_view kMetadata = "__metadata__";
constexpr std::size_t kMostDimensions = 64;  // as PyTorch's tensors have at most

// {"name": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, "__metadata__": {}}
class HeaderSax : public StrictSax {
 public:
  SafetensorsHeader header;

  bool start_object(std::size_t) override {
    if (depth_ == 0 && !started_) {
      started_ = true;
      depth_ = 1;
      return true;
    }
    if (depth_ != 1) return refuse("an object");
    depth_ = 2;
    fields_.clear();
    entry_ = {};
    entry_.name = name_;
    return true;
  }

  bool key(std::string& word) override {
    if (depth_ == 1) return new_name(word);
    if (in_metadata()) {
      key_ = word;
      return header.metadata.count(key_) == 0 || twice(key_);
    }
    if (word != "dtype" && word != "shape" && word != "data_offsets") {
      problem = "'" + name_ + "' has a field '" + word + "' that the format has not";
      return false;
    }
    key_ = word;
    return fields_.insert(word).second || twice(word);
  }

  bool string(std::string& text) override {
    if (depth_ != 2 || in_array_) return refuse("a text");
    if (in_metadata()) {
      header.metadata.emplace(key_, text);
      return true;
    }
    if (key_ != "dtype") return refuse("a text");
    if (!bits_of(text)) {
      problem = "'" + name_ + "' has the dtype '" + text + "' that the format has not";
      return false;
    }
    entry_.dtype = text;
    return true;
  }

  bool start_array(std::size_t) override {
    if (depth_ != 2 || in_array_ || in_metadata() || key_ == "dtype") {
      return refuse("an array");
    }
    in_array_ = true;
    offsets_ = 0;
    return true;
  }

  bool number_unsigned(std::uint64_t number) override {
    if (!in_array_) return refuse("a number");
    if (number > std::numeric_limits<std::int64_t>::max()) {
      problem = "'" + name_ + "' has a number that is too large";
      return false;
    }
    const auto value = static_cast<std::int64_t>(number);
    if (key_ == "shape") {
      entry_.shape.push_back(value);
      return entry_.shape.size() <= kMostDimensions || refuse("a 65th dimension");
    }
    if (offsets_ == 2) return refuse("a third offset");
    (offsets_++ == 0 ? entry_.begin : entry_.end) = value;
    return true;
  }

  bool end_array() override {
    in_array_ = false;
    return key_ != "data_offsets" || offsets_ == 2 || refuse("a single offset");
  }

  bool end_object() override {
    if (--depth_ != 1) return true;
    if (in_metadata()) return true;
    if (fields_.size() != 3) {
      problem = "'" + name_ + "' has no dtype, shape or data_offsets";
      return false;
    }
    header.entries.push_back(std::move(entry_));
    return true;
  }

 private:
  bool in_metadata() const { return name_ == kMetadata; }

  bool new_name(const std::string& name) {
    name_ = name;
    return names_.insert(name).second || twice(name);
  }

  bool twice(const std::string& name) {
    problem = "'" + name + "' comes twice";
    return false;
  }

  int depth_ = 0;
  bool started_ = false;
  bool in_array_ = false;
  int offsets_ = 0;
  std::string name_, key_;
  std::set<std::string> names_, fields_;
  SafetensorsEntry entry_;
};

[[noreturn]] void refuse(const std::string& place, const std::string& why) {
  throw Error(Fault::io, place, ": ", why, "; it is not a complete safetensors file");
}

void check_entry(const SafetensorsEntry& entry, std::int64_t expected_begin,
                 const std::string& place) {
  const auto count = num_elements(entry.shape);
  const auto bytes = count ? num_bytes(entry.dtype, *count) : std::nullopt;
  if (!bytes) {
    refuse(place, str("the shape ", to_text(entry.shape), " of '", entry.name,
                      "' is impossible"));
  }
  if (entry.begin != expected_begin) {
    refuse(place, str("'", entry.name, "' begins at byte ", entry.begin,
                      entry.begin > expected_begin ? " behind a hole that begins at "
                                                   : ", inside a tensor that ends at ",
                      expected_begin));
  }
  if (entry.end < entry.begin || entry.end - entry.begin != *bytes) {
    refuse(place,
           str("'", entry.name, "' lies at ", entry.begin, " to ", entry.end, ", but ",
               entry.dtype, " ", to_text(entry.shape), " has ", *bytes, " bytes"));
  }
}

std::int64_t header_length(std::string_view head, std::int64_t file_bytes,
                           const std::string& place) {
  constexpr std::size_t kLengthBytes = 8;
  if (head.size() < kLengthBytes) refuse(place, str("it has ", head.size(), " bytes"));
  std::uint64_t length = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;) {
    length = length << 8 | static_cast<unsigned char>(head[i]);
  }
  if (length > static_cast<std::uint64_t>(kHeaderLimit)) {
    refuse(place, str("its header would have ", length, " bytes, the limit is ",
                      kHeaderLimit));
  }
  if (static_cast<std::int64_t>(length) > file_bytes - 8 ||
      length > head.size() - kLengthBytes) {
    refuse(place, str("its header should have ", length, " bytes, the file has ",
                      file_bytes, " in all"));
  }
  return static_cast<std::int64_t>(length);
}

}  // namespace

SafetensorsHeader parse_safetensors(std::string_view head, std::int64_t file_bytes,
                                    const std::string& place) {
  const auto length = header_length(head, file_bytes, place);
  const auto json = head.substr(8, static_cast<std::size_t>(length));
  if (json.empty() || json.front() != '{') refuse(place, "its header is no object");
  HeaderSax sax;
  if (!nlohmann::json::sax_parse(json, &sax)) refuse(place, sax.problem);
  auto header = std::move(sax.header);
  header.data_begin = 8 + length;
  // Empty tensors share their place with a neighbour, and come before it.
  std::sort(header.entries.begin(), header.entries.end(),
            [](const auto& a, const auto& b) {
              return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
            });
  std::int64_t at = 0;
  for (const auto& entry : header.entries) {
    check_entry(entry, at, place);
    at = entry.end;
  }
  if (at != file_bytes - header.data_begin) {
    refuse(place,
           str("its tensors end at byte ", at, " of ", file_bytes - header.data_begin));
  }
  return header;
}

}  // namespace lockstep::storage
