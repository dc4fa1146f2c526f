#pragma once

#include <string>

#include "lockstep/config/config.h"
#include "lockstep/models/model.h"

namespace lockstep::train {

// Returns why the passes that the gpt writes out can not be used, as a clause; "" if
// they can. `is_cuda`: the device of the run is a GPU.
std::string obstacle_to_own_passes(const config::Config& config,
                                   const models::Shape& shape, bool is_cuda);

// Returns the part of it that no other choice of knobs for the run changes: what the
// build lacks, or the shape of the samples.
std::string obstacle_in_model(const config::Config& config, const models::Shape& shape);

// Returns the model's section with model.own_backward decided; what was set stays.
// `tells`: says so in the log, once, where the gpt trains on a GPU.
struct PassSite {
  const models::Shape& shape;
  bool is_cuda = false;
  bool tells = false;
};
config::ModelConfig with_passes(const config::Config& config, const PassSite& site);

// Throws Fault::config where a model's own passes were asked for and other knobs can
// not be had with them.
void check_own_passes(const config::Config& config, models::Model& model);

}  // namespace lockstep::train
