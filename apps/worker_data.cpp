#include "apps/worker_data.h"

#include <algorithm>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/subset.h"
#include "lockstep/train/build.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// So many samples of each part are read, at even distances.
constexpr std::int64_t kRead = 16;

// Returns the number of samples that were read.
std::int64_t read_some(const std::shared_ptr<const data::Dataset>& samples) {
  std::vector<std::int64_t> indices;
  const auto size = samples->size();
  const auto count = std::min(size, kRead);
  for (std::int64_t i = 0; i < count; ++i) indices.push_back(i * size / count);
  const auto some = data::subset(samples, std::move(indices));
  data::Loader loader(
      *some,
      {.batch = std::max<std::int64_t>(1, count), .shuffle = false, .epochs = 1});
  while (loader.next() != nullptr) {
  }
  return count;
}

Json json_of(const data::FieldSpec& field) {
  Json json{{"name", field.name}, {"shape", field.shape}};
  json["dtype"] = c10::getDtypeNames(field.dtype).first;
  if (field.varies) json["varies"] = true;
  return json;
}

}  // namespace

int run_check_data(const std::vector<std::string>& words, ConfigLoader load) {
  if (words.size() != 2 || words[0] != "--recipe") {
    throw Error(Fault::config, "lockstep_worker: --check-data takes --recipe RECIPE");
  }
  auto config = load(words[1]).config;
  config.train.overfit_batches = 0;  // all of the data is looked at
  const auto shared = train::open_shared(config);
  const auto task = train::build_task(config, *shared->train_data, {});
  const auto& spec = shared->train_data->spec();
  Json json{{"train", shared->train_data->size()}, {"eval", shared->eval_data->size()}};
  json["read"] = read_some(shared->train_data) + read_some(shared->eval_data);
  json["tensors"] = Json::array();
  for (const auto& field : spec.tensors()) json["tensors"].push_back(json_of(field));
  json["classes"] = spec.num_classes;
  json["class_names"] = spec.class_names;
  json["primary"] = task->primary().name;
  const auto line = json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  const bool written = std::fwrite(line.data(), 1, line.size(), stdout) == line.size();
  if (written && std::fflush(stdout) == 0) return kExitOk;
  throw Error(Fault::io, "cannot write to standard output");
}

}  // namespace lockstep
