#pragma once

#include <string>
#include <vector>

#include "lockstep/server/detail/route.h"

namespace lockstep::server {

// Returns the OpenAPI 3.1 document of these routes.
std::string openapi_of(const std::vector<Route>& routes, const Json& components);

}  // namespace lockstep::server
