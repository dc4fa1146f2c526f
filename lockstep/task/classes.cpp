#include "lockstep/task/detail/classes.h"

#include "lockstep/base/error.h"

namespace lockstep::task::detail {

ClassTargets class_targets(const Named& batch, const Fields& fields) {
  auto targets = batch.at(fields.target);
  const bool soft = targets.is_floating_point();
  if (!soft) targets = targets.to(torch::kInt64);
  const auto shape = targets.sizes().slice(0, targets.dim() - (soft ? 1 : 0));
  auto counted = counted_in(batch, fields, shape);
  if (shape.size() > 1) {
    targets = soft ? targets.flatten(0, 1) : targets.flatten();
    if (counted.mask.defined()) counted.mask = counted.mask.flatten();
    if (counted.weights.defined()) counted.weights = counted.weights.flatten();
  }
  return {targets, counted};
}

torch::Tensor class_scores(const Named& outputs, const Fields& fields) {
  const auto& logits = outputs.at(fields.output);
  if (logits.dim() == 3) return logits.flatten(0, 1);
  if (logits.dim() == 2) return logits;
  throw Error(Fault::config, "task: output '", fields.output, "' has shape ",
              logits.sizes(),
              "; classes need (batch, classes) or (batch, length, classes)");
}

Answers class_answers(const Named& outputs, const Named& batch,
                      const ClassFields& where) {
  const auto& [fields, ignore_index] = where;
  const auto logits = class_scores(outputs, fields).detach();
  const auto right = class_targets(batch, fields);
  const auto valid = valid_classes(right.targets, ignore_index, right.counted.mask);
  auto answers = right.soft() ? right.targets.argmax(1) : right.targets;
  if (valid.defined()) answers = answers.masked_fill(valid.bitwise_not(), 0);
  return {logits, answers, valid};
}

ClassLoss::ClassLoss(const ClassLossOptions& options)
    : OneLoss(options.name, options.fields, options.per_sample),
      options_(options.loss),
      num_classes_(options.num_classes),
      class_weights_(options_.class_weights) {}

CrossEntropyOptions ClassLoss::options_for(const Pass& pass,
                                           const torch::Device& device) const {
  auto options = options_;
  options.class_weights = pass.training ? class_weights_.on(device) : torch::Tensor();
  if (!pass.training) options.label_smoothing = 0;
  return options;
}

// More scores than classes are those of a padded vocabulary. Targets that do not count
// may be of any class, and a data set may have counted them, too.
void ClassLoss::check_width(std::int64_t own, const ClassTargets& right) const {
  const bool all_count = !options_.ignore_index && !right.counted.mask.defined();
  const auto wanted = right.soft() ? right.targets.size(1) : num_classes_;
  const bool fits = right.soft() ? own == wanted : own >= wanted || !all_count;
  if (fits) return;
  throw Error(Fault::config, "task: the model outputs ", own, " classes as '",
              where().output, "', but target '", where().target, "' has ", wanted,
              "; give the model's last layer as many");
}

// As many rows in another order, (T, B, classes) for instance, would be learnt in
// silence.
void ClassLoss::check_rows(const Named& outputs, const Named& batch) const {
  const auto& scores = outputs.at(where().output);
  const auto& targets = batch.at(where().target);
  const auto rows = scores.sizes().slice(0, scores.dim() - 1);
  const auto wanted =
      targets.sizes().slice(0, targets.dim() - (targets.is_floating_point() ? 1 : 0));
  const bool fits = c10::multiply_integers(rows) == c10::multiply_integers(wanted) &&
                    (rows.size() != wanted.size() || rows == wanted);
  if (fits) return;
  throw Error(Fault::config, "task: output '", where().output, "' has shape ",
              scores.sizes(), ", but target '", where().target, "' has ",
              targets.sizes(), "; classes need a row of scores for each target");
}

Sums ClassLoss::sums(const Named& outputs, const Named& batch, const Pass& pass) const {
  const auto logits = class_scores(outputs, where());
  check_rows(outputs, batch);
  const auto right = class_targets(batch, where());
  check_width(logits.size(1), right);
  return Sums{cross_entropy(logits.to(pass.dtype),
                            right.soft() ? right.targets.to(pass.dtype) : right.targets,
                            options_for(pass, logits.device()), right.counted)};
}

torch::Tensor ClassLoss::plain_targets(const Named& batch) const {
  const auto& [smoothing, gamma, class_weights, ignore_index] = options_;
  const auto right = class_targets(batch, where());
  if (right.soft() || right.counted.weights.defined() || smoothing != 0 || gamma != 0 ||
      class_weights.defined()) {
    return {};
  }
  const auto valid = valid_classes(right.targets, ignore_index, right.counted.mask);
  return valid.defined() ? right.targets.masked_fill(valid.bitwise_not(), -1)
                         : right.targets;
}

Sums ClassLoss::weights(const Named& batch, const Pass& pass) const {
  const auto right = class_targets(batch, where());
  return Sums{cross_entropy_weight(
      right.targets, options_for(pass, right.targets.device()), right.counted)};
}

}  // namespace lockstep::task::detail
