#include "lockstep/cli/detail/run_view.h"
#include "lockstep/config/load.h"

namespace lockstep::cli {

std::string default_run_dir(const Context& context) {
  return config::defaults({}, context.environment).config.run.dir;
}

std::string short_time(const std::string& iso) {
  if (iso.size() < 19) return iso.empty() ? "-" : iso;
  return iso.substr(0, 10) + " " + iso.substr(11, 8);
}

}  // namespace lockstep::cli
