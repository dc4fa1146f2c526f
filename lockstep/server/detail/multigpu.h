#pragma once

#include <string>

#include "lockstep/server/detail/route.h"

namespace lockstep::server {

// Returns the settings that a user has kept, over the defaults.
Json gpu_settings(service::Service& service, const service::Identity& who);

// Keeps those of the body, beside the ones that were kept before.
void keep_gpu_settings(service::Service& service, const Call& call);

// Returns what a TrainingRequest says that nobody here knows ("training_config.x"): it
// is taken all the same, as other servers do, and its sender is told.
Json ignored_keys(const Json& request);

// Returns the job that a TrainingRequest asks for. `type` is dataparallel, distributed,
// or "" for what the body says.
service::Submission training_of(service::Service& service, const Call& call,
                                std::string type);

}  // namespace lockstep::server
