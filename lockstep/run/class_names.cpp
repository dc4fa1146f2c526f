#include "lockstep/run/class_names.h"

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"

namespace lockstep::run {

using Json = nlohmann::ordered_json;

void write_class_names(const RunDirectory& run, const std::vector<std::string>& names) {
  if (names.empty()) return;
  const auto text = Json(names).dump(2, ' ', false, Json::error_handler_t::replace);
  files::write_atomically(run.classes(), text + "\n");
}

std::vector<std::string> read_class_names(const RunDirectory& run) {
  constexpr std::int64_t kLimit = 16 << 20;
  try {
    return Json::parse(files::read(run.classes(), kLimit))
        .get<std::vector<std::string>>();
  } catch (const Error&) {
    return {};
  } catch (const Json::exception&) {
    return {};
  }
}

}  // namespace lockstep::run
