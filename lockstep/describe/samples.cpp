#include "lockstep/describe/detail/samples.h"

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/assumed.h"
#include "lockstep/data/open.h"

namespace lockstep::describe::detail {

DescribedSamples samples_of(const config::Config& config) {
  try {
    auto parts = data::open_splits(config);
    const auto spec = parts.train->spec();
    const auto size = parts.train->size();
    return {spec, size, "", std::move(parts)};
  } catch (const Error& error) {
    const auto assumed = data::assumed_samples(config.data);
    if (error.fault() != Fault::io || !assumed) throw;
    return {assumed->spec, assumed->train_samples, error.what(), {}};
  }
}

}  // namespace lockstep::describe::detail
