#pragma once

#include <string>
#include <vector>

#include "lockstep/server/detail/route.h"

// What is looked at in a request before a route answers it. Each throws Refusal.
namespace lockstep::server {

Json parse_body(const std::string& body, int most_levels);

// The paths that some have a second spelling of: /api/v1/multigpu/..., and what a run
// shows below its job, which has the same id.
void take_other_spelling(std::vector<std::string>& segments);

// Returns the token that comes with a request; "" if there is none.
std::string secret_of(const Request& request);

// Every parameter has to be one of the route, and as its schema says.
void check_query(const Route& route, const Call& call);

}  // namespace lockstep::server
