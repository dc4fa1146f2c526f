#include "lockstep/task/language_model.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/task/class_metrics.h"
#include "lockstep/task/detail/classes.h"

namespace lockstep::task {
namespace {

using config::EvalMetric;

// Leaves out those that are always there.
MetricChoice others(MetricChoice measured) {
  std::erase_if(measured.metrics, [](EvalMetric name) {
    return name == EvalMetric::perplexity || name == EvalMetric::bits_per_byte;
  });
  return measured;
}

class LanguageModel : public detail::ClassLoss {
 public:
  explicit LanguageModel(const LanguageModelOptions& options)
      : ClassLoss({.name = "language_model",
                   .fields = options.fields,
                   .loss = options.loss,
                   .num_classes = options.vocabulary,
                   .per_sample = options.per_sample}),
        options_(options) {}

  std::vector<std::string> fields() const override {
    auto names = ClassLoss::fields();
    if (!options_.bytes.empty()) names.push_back(options_.bytes);
    return names;
  }

  MetricSet metrics() const override {
    MetricList list;
    list.push_back(make_perplexity());
    if (!options_.bytes.empty()) list.push_back(make_bits_per_byte());
    list.push_back(make_accuracy());
    const auto rest = others(options_.measured);
    for (auto& one : make_class_metrics(rest, options_.vocabulary)) {
      list.push_back(std::move(one));
    }
    MetricSet set;
    set.add(std::move(list),
            [fields = where(), ignored = ignore_index(), bytes = options_.bytes](
                const Named& outputs, const Named& batch) {
              auto answers = detail::class_answers(outputs, batch, {fields, ignored});
              if (!bytes.empty()) answers.bytes = batch.at(bytes).flatten();
              return answers;
            });
    return set;
  }

 private:
  LanguageModelOptions options_;
};

void check_bytes(const LanguageModelOptions& options) {
  const auto& names = options.measured.metrics;
  const bool wanted =
      std::find(names.begin(), names.end(), EvalMetric::bits_per_byte) != names.end();
  if (!wanted || !options.bytes.empty()) return;
  throw Error(Fault::config,
              "eval.metrics: bits_per_byte has to know the bytes of each "
              "token, but the data set has no field '",
              options.fields.target, "_bytes'; add it, or leave bits_per_byte out");
}

}  // namespace

std::shared_ptr<Task> make_language_model(const LanguageModelOptions& options) {
  check_bytes(options);
  auto task = std::make_shared<LanguageModel>(options);
  task->choose_primary(options.measured.primary, "perplexity");
  return task;
}

}  // namespace lockstep::task
