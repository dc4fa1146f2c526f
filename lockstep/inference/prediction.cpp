#include "lockstep/inference/prediction.h"

#include "lockstep/base/error.h"

namespace lockstep::inference {
namespace {

std::vector<double> row_of(const torch::Tensor& rows, std::int64_t i) {
  const auto row = rows[i].reshape({-1});
  const auto* values = row.data_ptr<double>();
  return {values, values + row.numel()};
}

torch::Tensor on_host(const torch::Tensor& tensor) {
  return tensor.to(torch::kCPU, torch::kFloat64).contiguous();
}

}  // namespace

std::vector<SamplePrediction> predictions_of(const task::Task& task,
                                             const Named& outputs) {
  const auto name = task.name();
  if (name == "language_model") {
    throw Error(
        Fault::config,
        "predict: the run has trained a language model, which says something of "
        "each token; `lockstep generate` continues texts by it, and `lockstep "
        "eval` measures it");
  }
  const auto& first = outputs.begin()->tensor;
  std::vector<SamplePrediction> predictions(static_cast<std::size_t>(first.size(0)));
  const bool is_class = name == "classification" && first.dim() == 2;
  const bool is_label = name == "multi_label" && first.dim() == 2;
  if (is_class || is_label) {
    const auto scores = on_host(first);
    const auto shares = is_class ? torch::softmax(scores, 1) : torch::sigmoid(scores);
    const auto best = scores.argmax(1);
    for (std::size_t i = 0; i < predictions.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      predictions[i].probabilities = row_of(shares, at);
      if (is_class) predictions[i].class_index = best[at].item<std::int64_t>();
    }
    return predictions;
  }
  for (const auto& [output, tensor] : outputs) {
    const auto values = on_host(tensor);
    for (std::size_t i = 0; i < predictions.size(); ++i) {
      predictions[i].outputs.emplace_back(output,
                                          row_of(values, static_cast<std::int64_t>(i)));
    }
  }
  return predictions;
}

}  // namespace lockstep::inference
