#include "lockstep/launcher/detail/process_state.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"

namespace lockstep::launcher {

// "4711 (name, which may hold anything) S ..."
char process_state(pid_t pid, const std::filesystem::path& proc) {
  constexpr std::int64_t kLimitBytes = 64 << 10;
  try {
    const auto stat = files::read(proc / std::to_string(pid) / "stat", kLimitBytes);
    const auto name_end = stat.rfind(')');
    if (name_end == std::string::npos || name_end + 2 >= stat.size()) return 'X';
    return stat[name_end + 2];
  } catch (const Error&) {
    return 'X';
  }
}

}  // namespace lockstep::launcher
