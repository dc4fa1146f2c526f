// lockstep report RUN [RUN...]: one page about a run, or about several.
#include "lockstep/report/report.h"

#include <ostream>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/cli/command.h"
#include "lockstep/cli/detail/output.h"
#include "lockstep/cli/detail/run_view.h"

namespace lockstep::cli {
namespace {

int report(const Arguments& arguments, Context& context) {
  const auto directory = arguments.value("--dir").value_or(default_run_dir(context));
  std::vector<run::RunDirectory> runs;
  for (const auto& name : arguments.repeated()) {
    runs.push_back(jobs::find_run("report", name, directory));
  }
  if (runs.empty()) runs.push_back(jobs::find_run("report", std::nullopt, directory));
  const auto page = report::report_html(runs);
  const auto target = arguments.value("--output");
  if (target == "-") {
    context.out << page;
    return kExitOk;
  }
  const auto path = target ? files::Path(*target) : runs.front().path() / "report.html";
  files::write_atomically(path, page);
  context.out << path.string() << "\n";
  return kExitOk;
}

}  // namespace

Command report_command() {
  return {
      .name = "report",
      .summary = "Write one HTML page about a run, or about several.",
      .usage = "lockstep report [RUN]... [--output FILE]",
      .details =
          "Curves, plan, config, numbers of the machine and events; several runs are "
          "laid over\neach other, with what differs in their configs. The page needs "
          "no other file.\n",
      .operands = {{.name = "RUN",
                    .help = "An id or a path; without it, the newest run.",
                    .required = false,
                    .completes = Completes::directory,
                    .repeats = true}},
      .options = {{.name = "--output",
                   .shorthand = "-o",
                   .value = "FILE",
                   .help = "Where the page goes (default: report.html of the first "
                           "run); -: standard output.",
                   .completes = Completes::file},
                  {.name = "--dir",
                   .value = "DIR",
                   .help = "The directory that holds the runs (default: "
                           "LOCKSTEP_RUN_DIR, else runs).",
                   .completes = Completes::directory}},
      .run = report};
}

}  // namespace lockstep::cli
