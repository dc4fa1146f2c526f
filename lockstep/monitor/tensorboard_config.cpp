// A run's config as TensorBoard shows it: a page of text, and a row of its table of
// hyperparameters.
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/monitor/detail/tensorboard.h"
#include "lockstep/run/knobs.h"

namespace lockstep::monitor::detail {
namespace {

// Fields of TensorBoard's messages: summary.proto, tensor.proto, hparams/*.proto.
constexpr int kValue = 1, kTag = 1, kTensor = 8, kMetadata = 9;
constexpr int kPluginData = 1, kPluginName = 1, kContent = 2;
constexpr int kVersion = 1, kExperiment = 2, kSessionStart = 3, kSessionEnd = 4;

Message value_of(const std::string& tag, std::string_view plugin,
                 std::string_view content) {
  return Message().text(kTag, tag).message(
      kMetadata,
      Message().message(kPluginData,
                        Message().text(kPluginName, plugin).text(kContent, content)));
}

Message hparams_value(const std::string& tag, int field, const Message& data) {
  const auto content = Message().varint(kVersion, 0).message(field, data).bytes();
  return Message().message(kValue, value_of(tag, "hparams", content));
}

std::string config_text(const run::RunDirectory& run) {
  constexpr std::int64_t kLargest = 1 << 20;
  try {
    return files::read(run.config(), kLargest);
  } catch (const Error&) {
    return "";
  }
}

// Returns google.protobuf.Value and the type that HParamInfo has for it.
struct TypedValue {
  Message value;
  std::uint64_t type = 0;
};

TypedValue typed(const std::string& text) {
  constexpr int kNumber = 2, kString = 3, kBool = 4;
  constexpr std::uint64_t kTypeString = 1, kTypeBool = 2, kTypeFloat = 3;
  if (text == "true" || text == "false") {
    return {Message().varint(kBool, text == "true" ? 1 : 0), kTypeBool};
  }
  if (const auto number = text::to_double(text)) {
    return {Message().real(kNumber, *number), kTypeFloat};
  }
  return {Message().text(kString, text), kTypeString};
}

}  // namespace

std::map<std::string, std::string> chosen_knobs(const std::string& config_yaml) {
  std::string chosen;
  bool has_sources = false;
  for (const auto& part : text::split(config_yaml, '\n')) {
    const std::string line(part);
    const auto comment = line.rfind(" # ");
    const auto source = comment == std::string::npos ? "" : line.substr(comment + 3);
    has_sources |= !source.empty();
    const bool is_section = !line.empty() && line[0] != ' ';
    const bool is_chosen = source.starts_with("recipe") ||
                           source.starts_with("override") ||
                           source.starts_with("environment");
    if (is_section || is_chosen) chosen += line + "\n";
  }
  return run::parse_knobs(has_sources ? chosen : config_yaml);
}

Message config_page(const run::RunDirectory& run) {
  constexpr std::uint64_t kDtString = 7;
  constexpr int kDtype = 1, kShape = 2, kStrings = 8, kDimension = 2, kSize = 1;
  std::string page;
  // Four blanks make it a block of code.
  for (const auto& line : text::split(config_text(run), '\n')) {
    page += "    " + std::string(line) + "\n";
  }
  auto value = value_of("config/text_summary", "text", "");
  value.message(
      kTensor,
      Message()
          .varint(kDtype, kDtString)
          .message(kShape, Message().message(kDimension, Message().varint(kSize, 1)))
          .text(kStrings, page));
  return Message().message(kValue, value);
}

Message hparams_experiment(const run::RunDirectory& run, const std::string& primary) {
  constexpr int kInfos = 4, kMetrics = 5, kName = 1, kType = 4, kMetricTag = 2;
  Message experiment;
  for (const auto& [key, text] : chosen_knobs(config_text(run))) {
    experiment.message(kInfos,
                       Message().text(kName, key).varint(kType, typed(text).type));
  }
  std::vector<std::string> tags{"train/loss", "eval/loss"};
  if (primary != "loss") tags.push_back("eval/" + primary);
  for (const auto& tag : tags) {
    experiment.message(kMetrics,
                       Message().message(kName, Message().text(kMetricTag, tag)));
  }
  return hparams_value("_hparams_/experiment", kExperiment, experiment);
}

Message hparams_start(const run::RunDirectory& run, double time) {
  constexpr int kHparams = 1, kKey = 1, kEntry = 2, kGroup = 4, kStarted = 5;
  Message start;
  for (const auto& [key, text] : chosen_knobs(config_text(run))) {
    start.message(kHparams,
                  Message().text(kKey, key).message(kEntry, typed(text).value));
  }
  start.text(kGroup, run.path().filename().string()).real(kStarted, time);
  return hparams_value("_hparams_/session_start_info", kSessionStart, start);
}

Message hparams_end(bool is_ok, double time) {
  constexpr int kStatus = 1, kEnded = 2;
  constexpr std::uint64_t kSuccess = 1, kFailure = 2;
  return hparams_value(
      "_hparams_/session_end_info", kSessionEnd,
      Message().varint(kStatus, is_ok ? kSuccess : kFailure).real(kEnded, time));
}

}  // namespace lockstep::monitor::detail
