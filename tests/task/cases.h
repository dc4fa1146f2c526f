#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/task/classification.h"
#include "lockstep/task/language_model.h"
#include "lockstep/task/multi_label.h"
#include "lockstep/task/multi_task.h"
#include "lockstep/task/regression.h"

// A task of each kind, with what makes targets count differently, and a batch for it.
namespace lockstep::task {

inline constexpr std::int64_t kRows = 12, kLength = 5, kNumClasses = 4, kNumLabels = 3;

struct TaskCase {
  std::string name;
  std::shared_ptr<Task> task;
  Named outputs, batch;
};

inline torch::Tensor some_classes(at::IntArrayRef shape) {
  return torch::randint(kNumClasses, shape, torch::kInt64);
}

inline torch::Tensor some_mask(at::IntArrayRef shape) {
  return torch::rand(shape).gt(0.3);
}

// 0 and 1, every fourth uncertain and some missing.
inline torch::Tensor some_labels(at::IntArrayRef shape) {
  auto labels = torch::randint(2, shape).to(torch::kFloat32);
  labels.masked_fill_(torch::rand(shape).gt(0.75), -1);
  return labels.masked_fill_(torch::rand(shape).gt(0.8), std::nan(""));
}

inline std::vector<TaskCase> class_cases() {
  const auto weights = torch::tensor({1.0F, 5.0F, 0.0F, 0.25F});
  const auto logits = torch::randn({kRows, kNumClasses});
  const auto targets = some_classes({kRows});
  std::vector<TaskCase> cases;
  const auto add = [&](const std::string& name, ClassificationOptions options) {
    options.num_classes = kNumClasses;
    cases.push_back({name,
                     make_classification(options),
                     {{"output", logits}},
                     {{"target", targets},
                      {"mask", some_mask({kRows})},
                      {"weight", torch::rand({kRows})}}});
  };
  add("plain", {});
  add("weights_of_classes", {.loss = {.class_weights = weights}});
  add("smoothing", {.loss = {.label_smoothing = 0.1, .class_weights = weights}});
  add("focal", {.loss = {.focal_gamma = 2, .class_weights = weights}});
  add("ignored", {.loss = {.ignore_index = 2}});
  add("ignored_with_weights", {.loss = {.class_weights = weights, .ignore_index = 1}});
  add("masked", {.fields = {.mask = "mask"}});
  add("weighted", {.fields = {.mask = "mask", .weight = "weight"},
                   .loss = {.class_weights = weights}});
  const auto shares = torch::rand({kRows, kNumClasses}).softmax(1);
  cases.push_back({"shares",
                   make_classification({.loss = {.class_weights = weights}}),
                   {{"output", logits}},
                   {{"target", shares}}});
  return cases;
}

inline std::vector<TaskCase> other_cases() {
  const auto tokens = some_classes({kRows, kLength});
  const auto span = some_mask({kRows, kLength});
  const auto labels = torch::randn({kRows, kNumLabels});
  const auto numbers = torch::randn({kRows, 2});
  const auto positive = torch::tensor({1.0F, 3.0F, 0.5F});
  return {
      {"tokens",
       make_language_model({.fields = {.mask = "span"},
                            .loss = {.ignore_index = 0},
                            .vocabulary = kNumClasses,
                            .per_sample = kLength}),
       {{"output", torch::randn({kRows, kLength, kNumClasses})}},
       {{"target", tokens}, {"span", span}}},
      {"labels",
       make_multi_label({.loss = {.positive_weights = positive},
                         .num_labels = kNumLabels,
                         .per_sample = kNumLabels}),
       {{"output", labels}},
       {{"target", some_labels({kRows, kNumLabels})}}},
      {"labels_focal",
       make_multi_label({.loss = {.focal_gamma = 1.5},
                         .num_labels = kNumLabels,
                         .per_sample = kNumLabels}),
       {{"output", labels}},
       {{"target", some_labels({kRows, kNumLabels})}}},
      {"labels_weighted",
       make_multi_label({.fields = {.weight = "weight"},
                         .loss = {.uncertain = config::Uncertain::one},
                         .num_labels = kNumLabels,
                         .per_sample = kNumLabels}),
       {{"output", labels}},
       {{"target", some_labels({kRows, kNumLabels})},
        {"weight", torch::rand({kRows})}}},
      {"numbers",
       make_regression({.num_values = 2, .per_sample = 2}),
       {{"output", numbers}},
       {{"target", torch::randn({kRows, 2})}}},
      {"numbers_masked",
       make_regression({.fields = {.mask = "mask", .weight = "weight"},
                        .loss = {.kind = config::Criterion::huber, .huber_delta = 0.5},
                        .num_values = 2,
                        .per_sample = 2}),
       {{"output", numbers}},
       {{"target", torch::randn({kRows, 2})},
        {"mask", some_mask({kRows, 2})},
        {"weight", torch::rand({kRows})}}},
  };
}

inline TaskCase multi_case() {
  const auto part = [](const std::string& name) {
    return Fields{.output = name, .target = name};
  };
  auto task =
      make_multi_task({.parts = {{"vqa",
                                  make_classification({.fields = part("vqa"),
                                                       .loss = {.ignore_index = 3},
                                                       .num_classes = kNumClasses}),
                                  1.0},
                                 {"findings",
                                  make_multi_label({.fields = part("findings"),
                                                    .num_labels = kNumLabels,
                                                    .per_sample = kNumLabels}),
                                  0.5, 2.0}},
                       .ramp_steps = 10});
  return {
      "several",
      std::move(task),
      {{"vqa", torch::randn({kRows, kNumClasses})},
       {"findings", torch::randn({kRows, kNumLabels})}},
      {{"vqa", some_classes({kRows})}, {"findings", some_labels({kRows, kNumLabels})}}};
}

inline std::vector<TaskCase> task_cases() {
  torch::manual_seed(11);
  auto cases = class_cases();
  for (auto& one : other_cases()) cases.push_back(std::move(one));
  cases.push_back(multi_case());
  return cases;
}

}  // namespace lockstep::task
