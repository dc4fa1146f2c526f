#include "apps/worker_infer.h"

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>

#include <nlohmann/json.hpp>

#include "lockstep/base/text.h"
#include "lockstep/data/image_files.h"
#include "lockstep/inference/trained.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

struct InferenceRequest {
  std::string recipe;
  bool predicts = false;  // else it evaluates
  std::vector<std::string> files;
  std::string script;  // where the model is written as a program; "": nowhere
};

InferenceRequest parse_inference(const std::vector<std::string>& words) {
  InferenceRequest request;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--recipe" && i + 1 < words.size()) {
      request.recipe = words[++i];
    } else if (words[i] == "--predict") {
      request.predicts = true;
    } else if (words[i] == "--file" && i + 1 < words.size()) {
      request.files.push_back(words[++i]);
    } else if (words[i] == "--script" && i + 1 < words.size()) {
      request.script = words[++i];
    } else {
      throw Error(Fault::config, "lockstep_worker: unknown argument '", words[i], "'");
    }
  }
  return request;
}

void put_line(const Json& json) {
  const auto line = json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  if (std::fwrite(line.data(), 1, line.size(), stdout) == line.size()) return;
  if (errno == EPIPE) return;  // the reader has seen enough
  throw Error(Fault::io, "cannot write to standard output: ", std::strerror(errno));
}

// JSON has no NaN.
Json json_of(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

Json json_of(const task::Means& means) {
  Json json{{"samples", means.count}, {"loss", json_of(means.loss)}};
  for (const auto& value : means.values) json[value.name] = json_of(value.value);
  return json;
}

void add_to(Json& line, const inference::SamplePrediction& prediction,
            const std::vector<std::string>& class_names) {
  if (prediction.class_index) {
    const auto at = static_cast<std::size_t>(*prediction.class_index);
    line["class"] =
        at < class_names.size() ? Json(class_names[at]) : Json(*prediction.class_index);
    line["probability"] = json_of(prediction.probabilities.at(at));
  }
  if (!prediction.probabilities.empty()) {
    auto list = Json::array();
    for (const double value : prediction.probabilities) list.push_back(json_of(value));
    line["probabilities"] = std::move(list);
  }
  for (const auto& [name, values] : prediction.outputs) {
    auto list = Json::array();
    for (const double value : values) list.push_back(json_of(value));
    line[name] = std::move(list);
  }
}

void predict(inference::Trained& trained, const InferenceRequest& request) {
  const auto& names = trained.eval_data().spec().class_names;
  if (request.files.empty()) {
    trained.predict(trained.eval_data(), [&](auto index, const auto& prediction) {
      Json line{{"index", index}};
      add_to(line, prediction, names);
      put_line(line);
    });
    return;
  }
  const auto images = data::open_image_files(request.files, trained.eval_data().spec());
  trained.predict(*images, [&](auto index, const auto& prediction) {
    Json line{{"file", request.files[static_cast<std::size_t>(index)]}};
    add_to(line, prediction, names);
    put_line(line);
  });
}

}  // namespace

int run_inference(const std::vector<std::string>& words, ConfigLoader load) {
  const auto request = parse_inference(words);
  inference::Trained trained(load(request.recipe).config);
  if (!request.script.empty()) {
    put_line(Json::parse(trained.write_script(request.script)));
  } else if (request.predicts) {
    predict(trained, request);
  } else {
    put_line(json_of(trained.evaluate()));
  }
  if (std::fflush(stdout) == 0 || errno == EPIPE) return kExitOk;
  throw Error(Fault::io, "cannot write to standard output: ", std::strerror(errno));
}

}  // namespace lockstep
