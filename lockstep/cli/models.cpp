// lockstep models ...: the models that recipes name.
#include "lockstep/cli/detail/models.h"

#include <ostream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/base/units.h"
#include "lockstep/cli/command.h"
#include "lockstep/cli/detail/json_line.h"
#include "lockstep/cli/detail/output.h"
#include "lockstep/config/load.h"
#include "lockstep/hf/model_folders.h"
#include "lockstep/jobs/settle_model.h"

namespace lockstep::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kDetails =
    "  hf download openai-community/gpt2 --local-dir gpt2\n"
    "  lockstep models add gpt2 gpt2\n"
    "  lockstep train recipe.yaml model.weights=gpt2\n\n"
    "list  the models, with their sizes\n"
    "show  one of them: its sizes and its files\n"
    "add   copies a folder of Hugging Face (config.json, weights, tokenizer), or links "
    "to it\n"
    "make  trains gpt2-tiny, a small model to try things with, in some minutes from "
    "texts\n      (--corpus; scripts/get_kjv.sh fetches some)\n\n"
    "They are in models.dir (LOCKSTEP_MODELS_DIR), else in ~/.local/share/lockstep/"
    "models.\n";

std::filesystem::path directory_of(const Arguments& arguments, const Context& context) {
  if (const auto named = arguments.value("--dir")) return *named;
  const auto config = config::defaults({}, context.environment).config;
  return jobs::models_directory(config.models, caller_of(context));
}

Json json_of(const hf::ModelFolder& folder) {
  Json json = {{"name", folder.name},
               {"path", folder.path.string()},
               {"bytes", folder.bytes},
               {"files", folder.files}};
  if (!folder.model) {
    json["problem"] = folder.problem;
    return json;
  }
  const auto& model = *folder.model;
  json["model_type"] = "gpt2";
  json["parameters"] = hf::num_parameters(model);
  json["layers"] = model.layers;
  json["heads"] = model.heads;
  json["hidden"] = model.hidden;
  json["context"] = model.context;
  json["vocabulary"] = model.vocabulary;
  return json;
}

std::vector<std::string> row_of(const hf::ModelFolder& folder) {
  if (!folder.model) return {folder.name, "not usable", "-", "-", "-", "-", "-", "-"};
  const auto& model = *folder.model;
  return {folder.name,
          "gpt2",
          text::with_commas(hf::num_parameters(model)),
          str(model.layers),
          str(model.heads),
          str(model.hidden),
          str(model.context),
          str(model.vocabulary)};
}

int list(const Arguments& arguments, Context& context) {
  const auto directory = directory_of(arguments, context);
  const auto folders = hf::list_models(directory);
  if (arguments.has("--json")) {
    Json json = {{"dir", directory.string()}, {"models", Json::array()}};
    for (const auto& folder : folders) json["models"].push_back(json_of(folder));
    context.out << json_line(json);
    return kExitOk;
  }
  if (folders.empty()) {
    context.err << "no models in '" << printable(directory.string())
                << "'; `lockstep models add NAME FOLDER` adds one\n";
    return kExitOk;
  }
  std::vector<std::vector<std::string>> rows{
      {"NAME", "TYPE", "PARAMETERS", "LAYERS", "HEADS", "HIDDEN", "CONTEXT", "TOKENS"}};
  for (const auto& folder : folders) {
    rows.push_back(row_of(folder));
    if (folder.model) continue;
    context.err << printable(str(folder.name, ": ", folder.problem)) << "\n";
  }
  context.out << printable(text::table(rows, {2, 3, 4, 5, 6, 7}));
  return kExitOk;
}

void print(const hf::ModelFolder& folder, Context& context) {
  context.out << printable(fmt::format("{}: {}\n", folder.name, folder.path.string()));
  if (!folder.model) {
    throw Error(Fault::config, "models: '", folder.name,
                "' is not usable: ", folder.problem);
  }
  const auto& model = *folder.model;
  context.out << printable(fmt::format(
      "  gpt2, {} parameters: {} blocks, {} heads, width {}, {} positions, {} tokens\n"
      "  dropout: embd_pdrop={}, attn_pdrop={}, resid_pdrop={}\n"
      "  {} in {}\n",
      text::with_commas(hf::num_parameters(model)), model.layers, model.heads,
      model.hidden, model.context, model.vocabulary, model.embedding_dropout,
      model.attention_dropout, model.residual_dropout,
      units::format_bytes(folder.bytes), text::join(folder.files, ", ")));
}

int models(const Arguments& arguments, Context& context) {
  const auto action = arguments.operand("ACTION").value_or("");
  const auto name = arguments.operand("NAME");
  const auto from = arguments.operand("FOLDER");
  if (action == "list" && !name) return list(arguments, context);
  const bool adds = action == "add", makes = action == "make";
  if (action == "list" || !name || adds != from.has_value()) {
    throw Error(Fault::config, "models ", action, ": ",
                adds               ? "name a model and its folder"
                : action != "list" ? "name one model, and nothing else"
                                   : "takes no name; `lockstep models show NAME` does");
  }
  const auto directory = directory_of(arguments, context);
  const auto adding = arguments.has("--link") ? hf::Adding::link : hf::Adding::copy;
  const auto folder = adds    ? hf::add_model(directory, {*name, *from, adding})
                      : makes ? make_model(arguments, context, directory)
                              : hf::find_model(directory, *name);
  if (arguments.has("--json")) {
    context.out << json_line(json_of(folder));
    return kExitOk;
  }
  print(folder, context);
  return kExitOk;
}

}  // namespace

Command models_command() {
  return {.name = "models",
          .summary =
              "List, show, add and make models whose weights recipes can begin with.",
          .usage =
              "lockstep models list [options]\n"
              "       lockstep models show NAME [options]\n"
              "       lockstep models add NAME FOLDER [options]\n"
              "       lockstep models make gpt2-tiny [options]",
          .details = kDetails,
          .operands = {{.name = "ACTION",
                        .help = "The action.",
                        .choices = {"list", "show", "add", "make"}},
                       {.name = "NAME",
                        .help = "The name that recipes give to model.weights.",
                        .required = false},
                       {.name = "FOLDER",
                        .help = "add: the folder of the model.",
                        .required = false,
                        .completes = Completes::directory}},
          .options = {{.name = "--dir",
                       .value = "DIR",
                       .help = "The folder of the models, instead of models.dir.",
                       .completes = Completes::directory},
                      {.name = "--corpus",
                       .value = "FOLDER",
                       .help = "make: the folder of train.txt and val.txt (default: "
                               "data/kjv).",
                       .completes = Completes::directory},
                      {.name = "--link",
                       .help = "add: a link to the folder instead of a copy."},
                      {.name = "--json", .help = "One JSON object."}},
          .run = models};
}

}  // namespace lockstep::cli
