#pragma once

#include "lockstep/service/sqlite.h"

namespace lockstep::service {

// Brings the layout of the database to a version, as one transaction. Throws
// Fault::config if it has a later one.
void migrate(Database& database, int to);

}  // namespace lockstep::service
