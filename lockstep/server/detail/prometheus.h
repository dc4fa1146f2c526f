#pragma once

#include <string>

#include "lockstep/service/service.h"

namespace lockstep::server {

// Returns the numbers of the server and of the jobs that `who` may see, in Prometheus's
// text format.
std::string prometheus_text(service::Service& service, const service::Identity& who);

}  // namespace lockstep::server
