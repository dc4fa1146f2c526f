#pragma once

#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "lockstep/base/files.h"
#include "lockstep/base/str.h"
#include "lockstep/hf/gpt2.h"
#include "lockstep/hf/tensors.h"
#include "lockstep/storage/safetensors.h"
#include "tests/support/support.h"

// A folder of Hugging Face with a tiny GPT-2, made without LibTorch.
namespace lockstep::test {

inline hf::Gpt2 tiny_gpt2() {
  return {.vocabulary = 11,
          .context = 6,
          .hidden = 8,
          .layers = 2,
          .heads = 2,
          .embedding_dropout = 0.1,
          .attention_dropout = 0.1,
          .residual_dropout = 0.1};
}

// A tensor as it is in the file.
struct FileTensor {
  std::string name;
  storage::Shape shape;
  float first = 0;  // of its elements, which count up by 1
};

class Gpt2Folder {
 public:
  explicit Gpt2Folder(hf::Gpt2 model = tiny_gpt2(), bool prefixed = true)
      : model_(model) {
    float first = 0;
    for (const auto& tensor : hf::tensors_of(model_)) {
      tensors_.push_back({(prefixed ? std::string(hf::kPrefix) : "") + tensor.name,
                          hf::other_layout(tensor.name, tensor.shape), first});
      first += 1000;
    }
    write();
  }

  const hf::Gpt2& model() const { return model_; }
  std::vector<FileTensor>& tensors() { return tensors_; }
  FileTensor& tensor(const std::string& name) {
    for (auto& one : tensors_) {
      if (one.name == name) return one;
    }
    throw Error(Fault::internal, name);
  }

  Path path() const { return directory_.path(); }
  Path path(const std::string& name) const { return directory_.path() / name; }

  // config.json with one field changed; `value` is JSON.
  void write_config(const std::string& field = "", const std::string& value = "") {
    auto text = hf::config_json(model_, "F32");
    if (!field.empty()) {
      const auto at = text.find("\"" + field + "\":");
      const auto end = text.find('\n', at);
      const auto row = str("\"", field, "\": ", value);
      if (at == std::string::npos) {
        text.insert(text.find('{') + 1, row + ",");
      } else {
        text.replace(at, end - at, text[end - 1] == ',' ? row + "," : row);
      }
    }
    test::write_file(path("config.json"), text);
  }

  void write() {
    write_config();
    write_shard("model.safetensors", tensors_);
  }

  void write_shard(const std::string& name, std::vector<FileTensor> tensors) const {
    std::vector<storage::SafetensorsEntry> entries;
    std::map<std::string, float> first;
    for (const auto& tensor : tensors) {
      entries.push_back({.name = tensor.name, .dtype = "F32", .shape = tensor.shape});
      first[tensor.name] = tensor.first;
    }
    storage::place(entries);
    storage::write_safetensors(
        path(name), entries, [&](const auto& entry, const storage::Give& give) {
          std::vector<float> values(
              static_cast<std::size_t>(*storage::num_elements(entry.shape)));
          for (std::size_t i = 0; i < values.size(); ++i) {
            values[i] = first.at(entry.name) + static_cast<float>(i);
          }
          give(std::as_bytes(std::span(values)));
        });
  }

  // Two shards and their index instead of one file.
  void write_shards() {
    std::filesystem::remove(path("model.safetensors"));
    const auto half =
        tensors_.begin() + static_cast<std::ptrdiff_t>(tensors_.size() / 2);
    const std::vector<FileTensor> first(tensors_.begin(), half);
    const std::vector<FileTensor> second(half, tensors_.end());
    write_shard("model-00001-of-00002.safetensors", first);
    write_shard("model-00002-of-00002.safetensors", second);
    std::string map;
    for (const auto& tensor : tensors_) {
      const bool in_first = &tensor < &*half;
      map += str(map.empty() ? "" : ", ", "\"", tensor.name, "\": \"model-0000",
                 in_first ? 1 : 2, "-of-00002.safetensors\"");
    }
    test::write_file(
        path("model.safetensors.index.json"),
        "{\"metadata\": {\"total_size\": 1}, \"weight_map\": {" + map + "}}");
  }

 private:
  hf::Gpt2 model_;
  std::vector<FileTensor> tensors_;
  files::TemporaryDirectory directory_;
};

}  // namespace lockstep::test
