#pragma once

#include <vector>

#include "lockstep/config/config.h"

namespace lockstep::task::detail {

// Returns whether a task of this kind has the metric, or can be trained by the
// criterion.
bool fits(config::EvalMetric metric, config::PartKind kind) noexcept;
bool fits(config::Criterion criterion, config::PartKind kind) noexcept;

// Returns whether its criterion is cross-entropy, of classes or tokens.
bool has_classes(config::PartKind kind) noexcept;

// Throws Fault::config for a knob of section `task`, or a metric, that none of these
// kinds uses: it would have no effect.
void check_used(const config::Config& config,
                const std::vector<config::PartKind>& kinds);

}  // namespace lockstep::task::detail
