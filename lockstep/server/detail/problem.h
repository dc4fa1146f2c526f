#pragma once

#include <exception>
#include <string_view>

#include "lockstep/server/http.h"
#include "lockstep/service/refusal.h"

namespace lockstep::server {

int status_of(service::Refused kind);

// Returns an answer as RFC 9457 has it (application/problem+json), with an id of its
// own.
Response problem(int status, std::string_view detail);

// Returns status 500 for a defect of ours: what went wrong is for the log, by the id
// that the client gets.
Response internal(const std::exception& error);

}  // namespace lockstep::server
