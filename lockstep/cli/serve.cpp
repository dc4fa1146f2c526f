// lockstep serve: trainings over HTTP.
#include "lockstep/server/serve.h"

#include <ostream>

#include "lockstep/base/error.h"
#include "lockstep/cli/command.h"
#include "lockstep/cli/detail/output.h"

namespace lockstep::cli {
namespace {

int serve_jobs(const Arguments& arguments, Context& context) {
  if (arguments.has("--reference")) {
    context.out << config::server_reference_markdown();
    return kExitOk;
  }
  const auto load = [file = arguments.value("--config").value_or(""),
                     overrides = arguments.overrides()] {
    return config::load_server(file, overrides);
  };
  server::ServeOptions options;
  options.loaded = load();
  options.insecure_local = arguments.has("--insecure-local");
  options.reload = load;
  options.on_ready = [&context](const std::string& url) {
    context.out << url << std::endl;
  };
  return server::serve(options, caller_of(context));
}

}  // namespace

Command serve_command() {
  return {
      .name = "serve",
      .summary = "Serve trainings over HTTP: a queue, GPUs, tokens, metrics.",
      .usage = "lockstep serve [--config server.yaml] [section.key=value]...",
      .details =
          "  lockstep token create --role admin --user me > token\n"
          "  lockstep serve\n"
          "  lockstep submit recipe.yaml --server http://127.0.0.1:8477 --token-file "
          "token\n\n"
          "Prints its address when it is ready. Jobs are processes of their own: they "
          "go "
          "on\nwhen the server ends, and the next one finds them. SIGHUP reads "
          "certificates,\nlimits and quotas again. docs/service.md has the rest.\n",
      .options = {{.name = "--config",
                   .value = "FILE",
                   .help = "server.yaml (docs/reference/server.md).",
                   .completes = Completes::file},
                  {.name = "--insecure-local",
                   .help = "No tokens: everybody on this machine may do everything; "
                           "loopback only."},
                  {.name = "--reference",
                   .help = "Print every knob of the server and exit."}},
      .takes_overrides = true,
      .run = serve_jobs};
}

}  // namespace lockstep::cli
