// The chat template among the files of a tokenizer: a member of tokenizer_config.json,
// or a file of its own, which newer versions of transformers write and prefer.
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/json_problem.h"
#include "lockstep/hf/export.h"
#include "lockstep/tokenizer/chat_template.h"

namespace lockstep::hf {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kTokenizerConfig = "tokenizer_config.json";
constexpr std::string_view kJinjaFile = "chat_template.jinja";
constexpr const char* kTemplate = "chat_template";
constexpr std::int64_t kLargestBytes = 16 << 20;

Json read_tokenizer_config(const Path& folder) {
  const auto file = folder / kTokenizerConfig;
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) {
    return {{"tokenizer_class", "GPT2Tokenizer"}};
  }
  try {
    auto json = Json::parse(files::read(file, kLargestBytes));
    if (json.is_object()) return json;
  } catch (const Json::exception& error) {
    throw Error(Fault::io, file.string(), ": ", json_problem(error),
                "; copy it again from where the tokenizer is from");
  }
  throw Error(Fault::io, file.string(),
              ": it is not a JSON object; copy it again from ",
              "where the tokenizer is from");
}

// Returns the text of the template; "" if there is none, nothing if there are several.
std::optional<std::string> jinja_in(const Path& folder) {
  const auto file = folder / kJinjaFile;
  std::error_code ignored;
  if (std::filesystem::exists(file, ignored)) return files::read(file, kLargestBytes);
  const auto json = read_tokenizer_config(folder);
  const auto found = json.find(kTemplate);
  if (found == json.end() || found->is_null()) return "";
  if (!found->is_string()) return std::nullopt;
  return found->get<std::string>();
}

}  // namespace

void write_chat_template(const config::TextData& text, const Path& folder) {
  const bool is_asked_for = text.chat_template != config::TextData{}.chat_template;
  if (!is_asked_for && jinja_in(folder) != "") return;
  auto json = read_tokenizer_config(folder);
  json[kTemplate] = tokenizer::to_jinja(text.chat_template);
  files::write_atomically(folder / kTokenizerConfig, json.dump(2) + "\n");
  std::error_code error;
  std::filesystem::remove(folder / kJinjaFile, error);
  if (error) files::fail("remove", folder / kJinjaFile, error.value());
}

std::optional<std::string> read_chat_template(const Path& folder) {
  const auto jinja = jinja_in(folder);
  if (jinja == "") return config::TextData{}.chat_template;
  return jinja ? tokenizer::from_jinja(*jinja) : std::nullopt;
}

}  // namespace lockstep::hf
