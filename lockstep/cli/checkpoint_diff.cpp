#include <algorithm>
#include <ostream>
#include <set>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/detail/checkpoint.h"
#include "lockstep/cli/detail/json_line.h"
#include "lockstep/cli/detail/output.h"
#include "lockstep/cli/detail/parity.h"

namespace lockstep::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Line {
  std::string name;
  std::string
      what;  // "only in A", or of another dtype or shape; "": the numbers differ
  std::string dtype;
  TensorDifference difference;
};

struct Result {
  std::vector<Line> lines;  // of tensors that differ
  std::size_t compared = 0;
  std::vector<std::string> state;  // keys of the state that differ
};

std::string kind_of(const storage::TensorRecord& tensor) {
  return str(tensor.dtype, " ", storage::to_text(tensor.shape));
}

// Returns nothing where both have the same.
std::optional<Line> compare(const storage::Reader& a, const storage::Reader& b,
                            const std::string& name) {
  const auto* in_a = a.manifest().find(name);
  const auto* in_b = b.manifest().find(name);
  if (in_a == nullptr || in_b == nullptr) {
    return Line{.name = name,
                .what = in_a == nullptr ? "only in the second" : "only in the first"};
  }
  if (kind_of(*in_a) != kind_of(*in_b)) {
    return Line{.name = name, .what = str(kind_of(*in_a), " and ", kind_of(*in_b))};
  }
  const auto difference = tensor_difference(a, b, name);
  if (difference.elements == 0) return std::nullopt;
  return Line{.name = name, .what = "", .dtype = in_a->dtype, .difference = difference};
}

std::vector<std::string> state_difference(const std::string& a, const std::string& b) {
  const auto in_a = Json::parse(a), in_b = Json::parse(b);
  std::set<std::string> keys;
  for (const auto* json : {&in_a, &in_b}) {
    for (const auto& [key, value] : json->items()) keys.insert(key);
  }
  std::vector<std::string> different;
  for (const auto& key : keys) {
    if (!in_a.contains(key) || !in_b.contains(key) || in_a[key] != in_b[key]) {
      different.push_back(key);
    }
  }
  return different;
}

Result compared(const storage::Reader& a, const storage::Reader& b) {
  std::set<std::string> names;
  for (const auto* reader : {&a, &b}) {
    for (const auto& tensor : reader->manifest().tensors) names.insert(tensor.name);
  }
  Result result;
  for (const auto& name : names) {
    auto line = compare(a, b, name);
    if (!line || line->what.empty()) ++result.compared;
    if (line) result.lines.push_back(std::move(*line));
  }
  result.state = state_difference(a.manifest().state, b.manifest().state);
  return result;
}

void print_json(const Result& result, Context& context) {
  Json json = {{"same", result.lines.empty()},
               {"compared", result.compared},
               {"state", result.state},
               {"tensors", Json::array()}};
  for (const auto& line : result.lines) {
    Json item = {{"name", line.name}};
    if (!line.what.empty()) {
      item["what"] = line.what;
    } else {
      item["elements"] = line.difference.elements;
      item["absolute"] = line.difference.absolute;
      item["relative"] = line.difference.relative;
    }
    json["tensors"].push_back(std::move(item));
  }
  context.out << json_line(json);
}

void print_text(const Result& result, Context& context) {
  std::vector<std::vector<std::string>> rows{
      {"TENSOR", "DTYPE", "DIFFERENT", "MAX ABS", "RELATIVE"}};
  for (const auto& line : result.lines) {
    if (!line.what.empty()) {
      context.out << printable(str(line.name, ": ", line.what)) << "\n";
      continue;
    }
    rows.push_back({line.name, line.dtype, str(line.difference.elements),
                    fmt::format("{:.3g}", line.difference.absolute),
                    fmt::format("{:.3g}", line.difference.relative)});
  }
  if (rows.size() > 1) context.out << printable(text::table(rows, {2, 3, 4}));
  if (!result.state.empty()) {
    context.out << printable(str("state: ", text::join(result.state, ", "), " differ"))
                << "\n";
  }
  context.out << fmt::format("{} tensors differ, {} were compared\n",
                             result.lines.size(), result.compared);
}

}  // namespace

int diff_checkpoints(const Arguments& arguments, Context& context) {
  if (!arguments.operand("WHERE") || !arguments.operand("OTHER")) {
    throw Error(Fault::config, "checkpoint diff: name two places to compare");
  }
  const auto open = [&](const char* operand) {
    const auto place = checkpoint_place(arguments, context, arguments.operand(operand));
    return storage::Reader(
        place.single ? *place.single
                     : one_checkpoint(place, {arguments.value("--step")}, context));
  };
  const auto first = open("WHERE"), second = open("OTHER");
  const auto result = compared(first, second);
  if (arguments.has("--json")) {
    print_json(result, context);
  } else {
    print_text(result, context);
  }
  return result.lines.empty() ? kExitOk : kExitDiffers;
}

}  // namespace lockstep::cli
