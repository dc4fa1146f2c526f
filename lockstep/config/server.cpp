#include "lockstep/config/server.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/str.h"
#include "lockstep/base/text.h"
#include "lockstep/config/detail/loading.h"
#include "lockstep/config/detail/reference.h"

namespace lockstep::config {
namespace {

constexpr std::int64_t kLargestServerFile = 1 << 20;

constexpr std::string_view kServerOpening = R"(# Server reference

Every knob of `lockstep serve`. This page is generated from the declarations in
`lockstep/config/server.h`; do not edit it, run

    build/bin/lockstep serve --reference > docs/reference/server.md

They stand in a file: `lockstep serve --config server.yaml`. A key on the command line
(`http.port=9000`) wins over the file. How values are written is said in
[config.md](config.md).
)";

}  // namespace

LoadedServer load_server(const std::filesystem::path& file,
                         std::span<const Override> overrides) {
  LoadedServer loaded;
  detail::Loading loading(loaded.sources, detail::knobs_of(loaded.config));
  if (!file.empty()) {
    detail::apply_text(loading, file.string(), files::read(file, kLargestServerFile));
  }
  for (const auto& [key, value] : overrides) {
    detail::apply_override(loading, {key, value},
                           {Origin::override_, str(key, "=", value)});
  }
  loading.problems.throw_if_any();
  return loaded;
}

bool is_loopback(std::string_view address) {
  if (address == "localhost" || address == "::1") return true;
  const auto parts = text::split(address, '.');
  if (parts.size() != 4 || parts[0] != "127") return false;
  return std::all_of(parts.begin(), parts.end(), [](const std::string& part) {
    const auto number = text::to_integer(part);
    return number && *number >= 0 && *number <= 255;
  });
}

void validate(const LoadedServer& loaded, bool insecure_local) {
  const auto& http = loaded.config.http;
  if (http.certificate.empty() != http.key.empty()) {
    throw Error(Fault::config,
                "http.certificate and http.key belong together; set both or none");
  }
  if (is_loopback(http.address)) return;
  if (insecure_local) {
    throw Error(Fault::config,
                "--insecure-local: without tokens the server listens on "
                "a loopback address only, not on http.address=",
                http.address);
  }
  if (http.certificate.empty() && !http.behind_proxy) {
    throw Error(Fault::config, "http.address=", http.address,
                " can be reached by others; set http.certificate and http.key, or "
                "http.behind_proxy=true if a proxy in front ends TLS");
  }
}

std::string server_reference_markdown() {
  ServerConfig config;
  return std::string(kServerOpening) +
         detail::sections_markdown(detail::knobs_of(config), {.affects = false});
}

}  // namespace lockstep::config
