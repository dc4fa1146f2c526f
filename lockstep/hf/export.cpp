#include "lockstep/hf/export.h"

#include <algorithm>
#include <array>
#include <span>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/hf/tensors.h"
#include "lockstep/tokenizer/files.h"
#include "lockstep/tokenizer/tokenizer.h"

namespace lockstep::hf {
namespace {

constexpr std::array<std::string_view, 8> kTokenizerFiles = {
    "vocab.json",          "merges.txt",
    "tokenizer.json",      "tokenizer_config.json",
    "added_tokens.json",   "special_tokens_map.json",
    "chat_template.jinja", "tokenizer.model"};

// Of GPT-2's own vocabulary, in which the last token ends a text, and begins one.
constexpr std::int64_t kGpt2Vocabulary = 50257;

// A tensor of the model, wherever it is kept.
struct Stored {
  std::string dtype;
  storage::Shape shape;
};

const storage::TensorRecord& find_record(const Export& job, const std::string& name) {
  const auto found = job.sources.find(name);
  if (found == job.sources.end()) {
    throw Error(Fault::config, "checkpoint export: the checkpoint has no '", name,
                "', which a gpt has; --format safetensors exports what is there");
  }
  return job.reader.tensor(found->second);
}

Stored find_tensor(const Export& job, const std::string& name) {
  if (job.adapted != nullptr) return {"F32", job.adapted->shape(name)};
  const auto& record = find_record(job, name);
  return {record.dtype, record.shape};
}

// Rows that only fill the embedding up have no token.
std::int64_t find_vocabulary(const Export& job, std::int64_t rows) {
  const auto& config = job.config;
  if (config.model.pad_vocabulary == 1) return rows;
  const auto vocabulary =
      config.data.name == "text"
          ? static_cast<std::int64_t>(
                tokenizer::Tokenizer::load(config.data.text.tokenizer).size())
          : config.data.classes;
  const auto multiple = config.model.pad_vocabulary;
  const auto padded = (vocabulary + multiple - 1) / multiple * multiple;
  // Weights under adapters may have no such rows.
  if (vocabulary > 0 && (padded == rows || vocabulary == rows)) return vocabulary;
  throw Error(Fault::config, "checkpoint export: ", kEmbedding, " has ", rows,
              " rows, but a vocabulary of ", vocabulary,
              " with model.pad_vocabulary=", multiple, " gives ", padded,
              "; the config of the checkpoint is not that of its weights");
}

// A folder may have a tokenizer only, or that of another kind of model.
std::optional<Gpt2> gpt2_in(const Path& folder) {
  try {
    return read_gpt2(folder);
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::optional<std::int64_t> end_of_text(const Path& tokenizer,
                                        std::int64_t vocabulary) {
  if (!tokenizer.empty()) {
    const auto words = tokenizer::Tokenizer::load(tokenizer);
    const auto token = words.end_of_text();
    if (token && *token < vocabulary) return *token;
    return std::nullopt;
  }
  return vocabulary == kGpt2Vocabulary ? std::optional(kGpt2Vocabulary - 1)
                                       : std::nullopt;
}

// The tokens that begin and end a text are the tokenizer's to say.
void take_tokens(const Path& folder, Gpt2& model) {
  const auto its = folder.empty() ? std::nullopt : gpt2_in(folder);
  if (!its) {
    model.first_token = model.last_token = end_of_text(folder, model.vocabulary);
    return;
  }
  if (its->vocabulary != model.vocabulary) {
    throw Error(Fault::config, "checkpoint export: the model has ", model.vocabulary,
                " tokens, but ", (folder / kConfigName).string(),
                " has vocab_size=", its->vocabulary,
                "; name the folder of its own tokenizer (--tokenizer FOLDER)");
  }
  const auto known = [&](std::optional<std::int64_t> token) {
    return token && *token >= 0 && *token < model.vocabulary ? token : std::nullopt;
  };
  model.first_token = known(its->first_token);
  model.last_token = known(its->last_token);
}

Gpt2 describe_model(const Export& job) {
  const auto embedding = find_tensor(job, std::string(kEmbedding));
  const auto positions = find_tensor(job, "wpe.weight");
  if (embedding.shape.size() != 2 || positions.shape.size() != 2) {
    throw Error(Fault::config, "checkpoint export: ", kEmbedding,
                " and wpe.weight are not matrices; this is not a gpt of ours");
  }
  const auto dropout = job.config.model.dropout;
  Gpt2 model{.vocabulary = find_vocabulary(job, embedding.shape[0]),
             .context = positions.shape[0],
             .hidden = embedding.shape[1],
             .layers = job.config.model.layers,
             .heads = job.config.model.heads,
             .embedding_dropout = dropout,
             .attention_dropout = dropout,
             .residual_dropout = dropout};
  take_tokens(job.tokenizer, model);
  return model;
}

void check_shape(const Stored& has, const ModelTensor& wanted) {
  auto shape = has.shape;
  if (wanted.name == kEmbedding) shape[0] = wanted.shape[0];
  if (shape == wanted.shape) return;
  throw Error(Fault::config, "checkpoint export: '", wanted.name, "' has the shape ",
              storage::to_text(has.shape), " instead of ",
              storage::to_text(wanted.shape), "; this is not a gpt of ours");
}

void give_adapted(const Export& job, const ModelTensor& wanted,
                  const storage::Give& give) {
  auto numbers = job.adapted->read(wanted.name);
  numbers.resize(
      static_cast<std::size_t>(storage::num_elements(wanted.shape).value_or(0)));
  const auto bytes = std::as_bytes(std::span(numbers));
  if (!is_transposed(wanted.name)) return give(bytes);
  std::vector<std::byte> turned(bytes.size());
  transpose({bytes, wanted.shape[0], wanted.shape[1], sizeof(float)}, turned);
  give(turned);
}

// Gives the first elements of a tensor, in the layout of the file.
void give_tensor(const Export& job, const ModelTensor& wanted,
                 const storage::Give& give) {
  if (job.adapted != nullptr) return give_adapted(job, wanted, give);
  const auto& tensor = find_record(job, wanted.name);
  const auto total = storage::num_elements(wanted.shape).value_or(0);
  const auto width = storage::num_bytes(tensor.dtype, 1).value_or(0);
  const bool at_once = is_transposed(wanted.name) || !tensor.order.empty();
  const auto step = std::max<std::int64_t>(1, at_once ? total : 1 << 20);
  std::vector<std::byte> bytes;
  for (std::int64_t at = 0; at < total; at += step) {
    const auto count = std::min(step, total - at);
    bytes.resize(static_cast<std::size_t>(count * width));
    job.reader.read(tensor.name, {at, count, {}}, bytes);
    if (is_transposed(wanted.name)) {
      std::vector<std::byte> turned(bytes.size());
      transpose({bytes, wanted.shape[0], wanted.shape[1], width}, turned);
      bytes.swap(turned);
    }
    give(bytes);
  }
}

}  // namespace

std::vector<std::string> copy_tokenizer(const Path& from, const Path& to) {
  std::vector<std::string> copied;
  std::error_code ignored;
  if (std::filesystem::is_regular_file(from, ignored)) {
    tokenizer::save(tokenizer::Tokenizer::load(from), to);
  }
  for (const auto name : kTokenizerFiles) {
    std::error_code error;
    if (std::filesystem::exists(to / name, error)) {
      copied.emplace_back(name);
      continue;
    }
    if (!std::filesystem::exists(from / name, error)) continue;
    std::filesystem::copy_file(from / name, to / name, error);
    if (error) files::fail("copy", from / name, error.value());
    copied.emplace_back(name);
  }
  return copied;
}

Exported export_gpt2(const Export& job, const Path& folder) {
  const auto model = describe_model(job);
  std::map<std::string, ModelTensor> by_name;
  Exported exported;
  for (const auto& tensor : tensors_of(model)) {
    const auto record = find_tensor(job, tensor.name);
    check_shape(record, tensor);
    const auto name = str(kPrefix, tensor.name);
    by_name.emplace(name, tensor);
    exported.tensors.push_back({.name = name,
                                .dtype = record.dtype,
                                .shape = other_layout(tensor.name, tensor.shape)});
  }
  if (job.adapted == nullptr && by_name.size() != job.sources.size()) {
    throw Error(Fault::config, "checkpoint export: the checkpoint has ",
                job.sources.size(), " tensors, a gpt of ", model.layers, " blocks has ",
                by_name.size(), "; --format safetensors exports what is there");
  }
  std::sort(exported.tensors.begin(), exported.tensors.end(), storage::comes_before);
  storage::place(exported.tensors);
  storage::write_safetensors(folder / "model.safetensors", exported.tensors,
                             [&](const auto& entry, const auto& give) {
                               give_tensor(job, by_name.at(entry.name), give);
                             });
  const auto dtype = find_tensor(job, std::string(kEmbedding)).dtype;
  files::write_atomically(folder / "generation_config.json",
                          generation_config_json(model));
  if (!job.tokenizer.empty()) {
    exported.tokenizer_files = copy_tokenizer(job.tokenizer, folder);
    if (job.config.data.name == "text" && !exported.tokenizer_files.empty()) {
      write_chat_template(job.config.data.text, folder);
    }
  }
  // It makes a folder a model, so it comes last.
  files::write_atomically(folder / kConfigName, config_json(model, dtype));
  return exported;
}

}  // namespace lockstep::hf
