#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/server/detail/route.h"

// What is looked at in a request before a route answers it. Those that find something
// wrong throw Refusal, where nothing else is said.
namespace lockstep::server {

Json parse_body(const std::string& body, int most_levels);

// The paths that some have a second spelling of: /api/v1/multigpu/..., and what a run
// shows below its job, which has the same id.
void take_other_spelling(std::vector<std::string>& segments);

// Returns the token that comes with a request; "" if there is none.
std::string secret_of(const Request& request);

// Returns the answer to a request that a web page makes, for a server that lets in
// everybody who reaches it (--insecure-local); nothing for any other. A browser on this
// machine reaches it for any page that it shows, and says so by an Origin; or the name
// of the page leads here, and then Host is that name.
std::optional<Response> refuse_web_page(const Request& request);

// Every parameter has to be one of the route, and as its schema says.
void check_query(const Route& route, const Call& call);

}  // namespace lockstep::server
