#include "lockstep/describe/detail/samples.h"

#include "lockstep/base/error.h"
#include "lockstep/data/assumed.h"
#include "lockstep/data/open.h"

namespace lockstep::describe::detail {

DescribedSamples samples_of(const config::Config& config) {
  try {
    const auto parts = data::open_splits(config);
    return {parts.train->spec(), parts.train->size(), ""};
  } catch (const Error& error) {
    const auto assumed = data::assumed_samples(config.data);
    if (error.fault() != Fault::io || !assumed) throw;
    return {assumed->spec, assumed->train_samples, error.what()};
  }
}

}  // namespace lockstep::describe::detail
