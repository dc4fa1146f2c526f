#include "lockstep/data/checked.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/detail/numbers.h"

namespace lockstep::data {
namespace {

using config::PartKind;
using config::TaskName;
using detail::is_whole;

// The checks of a target; places are those of spec().tensors().
struct Rule {
  PartKind kind = PartKind::classification;
  std::size_t target = kTarget;
  std::optional<std::size_t> mask = {};
  std::optional<std::size_t> weight = {};
  bool looks_at_values = true;
};

std::optional<std::size_t> find_tensor(const std::vector<FieldSpec>& specs,
                                       const std::string& name) {
  for (auto i = kTarget; i < specs.size(); ++i) {
    if (specs[i].name == name) return i;
  }
  return std::nullopt;
}

// Returns the kind that task::make_task() chooses.
PartKind kind_of(TaskName name, const FieldSpec& target) {
  switch (name) {
    case TaskName::multi_label:
      return PartKind::multi_label;
    case TaskName::regression:
      return PartKind::regression;
    case TaskName::automatic:
      return is_whole(target.dtype) ? PartKind::classification : PartKind::regression;
    default:
      return PartKind::classification;
  }
}

// Returns whether a value of this target could be one that the task can not learn from.
bool can_be_wrong(PartKind kind, const FieldSpec& target) {
  if (kind == PartKind::multi_label) return target.dtype != torch::kBool;
  if (kind == PartKind::regression) return !is_whole(target.dtype);
  // The loader checks where the number of classes is known.
  return is_whole(target.dtype) && target.num_classes == 0;
}

// Returns nothing if there is nothing to check.
std::optional<Rule> rule_for(const std::vector<FieldSpec>& specs, std::size_t target,
                             PartKind kind) {
  const auto& spec = specs[target];
  Rule rule{.kind = kind,
            .target = target,
            .weight = find_tensor(specs, spec.name + "_weight"),
            .looks_at_values = can_be_wrong(kind, spec)};
  // The loader makes the mask where the length varies.
  if (!spec.varies) rule.mask = find_tensor(specs, spec.name + "_mask");
  if (rule.mask && specs[*rule.mask].varies) return std::nullopt;
  if (rule.weight && specs[*rule.weight].varies) rule.weight.reset();
  if (!rule.looks_at_values && !rule.weight) return std::nullopt;
  return rule;
}

std::vector<Rule> rules_for(const std::vector<FieldSpec>& specs,
                            const config::TaskConfig& task) {
  std::vector<Rule> rules;
  const auto add = [&](std::optional<std::size_t> target, PartKind kind) {
    if (!target) return;  // the task reports it
    if (const auto rule = rule_for(specs, *target, kind)) rules.push_back(*rule);
  };
  const bool has_parts = task.name == TaskName::multi_task ||
                         (task.name == TaskName::automatic && !task.parts.empty());
  if (has_parts) {
    for (const auto& [name, kind] : task.parts) add(find_tensor(specs, name), kind);
  } else {
    add(kTarget, kind_of(task.name, specs[kTarget]));
  }
  return rules;
}

class Checked : public Dataset {
 public:
  Checked(std::shared_ptr<const Dataset> dataset, SampleSpec spec,
          std::vector<Rule> rules)
      : dataset_(std::move(dataset)),
        spec_(std::move(spec)),
        specs_(spec_.tensors()),
        rules_(std::move(rules)) {}

  std::int64_t size() const noexcept override { return dataset_->size(); }
  const SampleSpec& spec() const noexcept override { return spec_; }
  std::int64_t class_of(std::int64_t index) const override {
    return dataset_->class_of(index);
  }
  std::int64_t length_of(std::int64_t index) const override {
    return dataset_->length_of(index);
  }

  void read_sample(const Visit& visit, const SampleBuffer& room) const override {
    dataset_->read_sample(visit, room);
    for (const auto& rule : rules_) {
      if (rule.looks_at_values) check_values(rule, visit, room);
      if (rule.weight) check_weights(rule, room, num_targets(rule.target, room));
    }
  }

 private:
  using Bytes = std::span<const std::byte>;

  static Bytes bytes_of(std::size_t tensor, const SampleBuffer& room) {
    return tensor == kTarget ? room.target_bytes : room.fields[tensor - kFirstField];
  }

  // Clamps the length: the loader refuses one that can not be.
  std::size_t num_targets(std::size_t tensor, const SampleBuffer& room) const {
    const auto& spec = specs_[tensor];
    const auto all = static_cast<std::size_t>(spec.num_elements());
    if (!spec.varies || all == 0 || room.lengths.empty()) return all;
    const auto longest = spec.shape[0];
    const auto length = std::clamp<std::int64_t>(room.lengths[tensor], 0, longest);
    return all / static_cast<std::size_t>(longest) * static_cast<std::size_t>(length);
  }

  struct TargetRange {
    std::size_t first, last;
    std::size_t count;  // of all targets of the sample
  };

  // Returns whether one of the targets [first, last) counts. An entry of a mask is that
  // of all targets below it.
  bool any_counts(const Rule& rule, const SampleBuffer& room,
                  const TargetRange& range) const {
    const auto& [first, last, count] = range;
    if (!rule.mask) return first < last;
    const auto& mask = specs_[*rule.mask];
    const auto entries = static_cast<std::size_t>(mask.num_elements());
    if (entries == 0 || count % entries != 0) return false;  // the task refuses it
    for (auto i = first; i < last; ++i) {
      if (detail::is_set(bytes_of(*rule.mask, room), mask.dtype, i / (count / entries)))
        return true;
    }
    return false;
  }

  void check_values(const Rule& rule, const Visit& visit,
                    const SampleBuffer& room) const {
    const auto count = num_targets(rule.target, room);
    const auto& spec = specs_[rule.target];
    const auto& ignored = spec_.ignore_index;
    const auto is_wrong = [&](double value) {
      if (rule.kind == PartKind::regression) return !std::isfinite(value);
      if (rule.kind == PartKind::multi_label) {
        return !std::isnan(value) && value != -1 && !(value >= 0 && value <= 1);
      }
      return value < 0 && !(ignored && value == static_cast<double>(*ignored));
    };
    detail::with_type(spec.dtype, [&]<typename T>(const T*) {
      const auto values = detail::numbers_in<T>(bytes_of(rule.target, room));
      for (std::size_t i = 0; i < std::min(count, values.size()); ++i) {
        const auto value = static_cast<double>(values[i]);
        if (is_wrong(value) && any_counts(rule, room, {i, i + 1, count})) {
          refuse(rule, visit, value);
        }
      }
    });
  }

  [[noreturn]] void refuse(const Rule& rule, const Visit& visit, double value) const {
    const auto& name = specs_[rule.target].name;
    if (rule.kind == PartKind::regression) {
      throw Error(Fault::io, "its '", name, "' is ", value,
                  ", which nothing can be learned from; a field '", name,
                  "_mask' says which targets are missing (0)");
    }
    if (rule.kind == PartKind::multi_label) {
      throw Error(Fault::io, "its '", name, "' has the label ", value,
                  "; labels are 0 to 1, -1 where they are uncertain and NaN where they "
                  "are missing");
    }
    const auto label = static_cast<std::int64_t>(value);
    throw Error(Fault::config, "data: sample ", visit.index, " has the label ", label,
                name == kTargetName ? "" : " in '" + name + "'",
                ", but classes count from 0; if such targets are not to count, set "
                "task.ignore_index=",
                label, ", else repair them");
  }

  void check_weights(const Rule& rule, const SampleBuffer& room,
                     std::size_t count) const {
    const auto& spec = specs_[*rule.weight];
    const auto entries = static_cast<std::size_t>(spec.num_elements());
    if (entries == 0 || count % entries != 0) return;  // the task refuses it
    const auto below = count / entries;                // targets of each
    detail::with_type(spec.dtype, [&]<typename T>(const T*) {
      const auto weights = detail::numbers_in<T>(bytes_of(*rule.weight, room));
      for (std::size_t i = 0; i < entries; ++i) {
        const auto weight = static_cast<double>(weights[i]);
        if (std::isfinite(weight) && weight >= 0) continue;
        if (!any_counts(rule, room, {i * below, (i + 1) * below, count})) continue;
        throw Error(Fault::io, "its '", spec.name, "' is ", weight,
                    "; weights are at least 0 and finite");
      }
    });
  }

  static constexpr std::string_view kTargetName = "target";

  std::shared_ptr<const Dataset> dataset_;
  const SampleSpec spec_;
  const std::vector<FieldSpec> specs_;  // input, target, fields
  const std::vector<Rule> rules_;
};

}  // namespace

std::shared_ptr<const Dataset> checked(std::shared_ptr<const Dataset> dataset,
                                       const config::TaskConfig& task) {
  auto spec = dataset->spec();
  if (!task.ignore_index.is_auto()) spec.ignore_index = task.ignore_index.value();
  auto rules = rules_for(spec.tensors(), task);
  if (rules.empty() && spec.ignore_index == dataset->spec().ignore_index) {
    return dataset;
  }
  return std::make_shared<Checked>(std::move(dataset), std::move(spec),
                                   std::move(rules));
}

}  // namespace lockstep::data
