// lockstep gpus: the GPUs on a line each, or the best free ones of them.
#include <algorithm>
#include <ostream>

#include "lockstep/base/error.h"
#include "lockstep/base/units.h"
#include "lockstep/cli/command.h"
#include "lockstep/cli/detail/hardware_text.h"
#include "lockstep/cli/detail/measure.h"
#include "lockstep/cli/detail/output.h"
#include "lockstep/cli/detail/run_view.h"
#include "lockstep/hardware/choose_gpus.h"
#include "lockstep/hardware/json.h"

namespace lockstep::cli {
namespace {

hardware::GpuWish wish_of(const Arguments& arguments) {
  hardware::GpuWish wish{.only_free = arguments.has("--free"), .count = {}};
  if (const auto given = arguments.value("--min-memory")) {
    const auto bytes = units::parse_bytes(*given);
    if (!bytes || *bytes < 0) {
      throw Error(Fault::config, "--min-memory: '", *given,
                  "' is not an amount of memory; write 20GB or 20GiB");
    }
    wish.min_memory_bytes = *bytes;
  }
  if (const auto count = arguments.number("--count", 1)) {
    constexpr long long kMost = 1 << 20;
    wish.count = static_cast<int>(std::min(*count, kMost));
  }
  return wish;
}

struct MissingGpus {
  const hardware::Machine& machine;
  const hardware::GpuChoice& choice;
  int wanted;
};

void say_fewer(Context& context, const MissingGpus& shortage) {
  const auto& [machine, choice, wanted] = shortage;
  const auto what = str("requested ", wanted, wanted == 1 ? " GPU" : " GPUs",
                        ", found ", choice.chosen.size());
  if (choice.chosen.empty()) {
    print_error(context, what);
  } else {
    context.err << "lockstep: " << toned("warning:", Tone::yellow, context.color_err)
                << " " << what << "\n";
  }
  if (machine.gpus.empty()) {
    context.err << "  there is no GPU: " << printable(why_no_gpu(machine)) << "\n";
  }
  for (const auto& [index, reason] : choice.rejected) {
    context.err << "  GPU " << index << ": " << printable(reason) << "\n";
  }
  context.err << printable(unusable_lines(machine));
}

int list(const hardware::Machine& machine, Context& context) {
  if (machine.gpus.empty()) {
    context.err << "no GPU: " << printable(why_no_gpu(machine)) << "\n";
  }
  context.err << printable(unusable_lines(machine));
  context.out << printable(gpu_table(machine));
  return kExitOk;
}

// Options of one action say nothing to the other.
void refuse(const Arguments& arguments, std::initializer_list<const char*> options,
            const char* remedy) {
  for (const auto* option : options) {
    if (arguments.has(option)) throw Error(Fault::config, option, ": ", remedy);
  }
}

int gpus(const Arguments& arguments, Context& context) {
  if (arguments.operand("ACTION")) {
    refuse(arguments,
           {"--free", "--min-memory", "--count", "--uuid", "--export", "--from"},
           "all visible GPUs are tested; choose with CUDA_VISIBLE_DEVICES");
    return test_gpus(arguments, context);
  }
  refuse(arguments, {"--json"},
         "is of `lockstep gpus test`; `lockstep hardware --json` has the GPUs");
  refuse(arguments, {"--time-limit"}, "is of `lockstep gpus test`; add test");
  const auto wish = wish_of(arguments);
  const auto from = arguments.value("--from");
  const auto machine =
      from ? hardware::load(*from) : hardware::inspect(default_run_dir(context));
  const bool chooses = wish.only_free || wish.min_memory_bytes > 0 || wish.count ||
                       arguments.has("--export") || arguments.has("--uuid");
  if (!chooses) return list(machine, context);
  const auto choice = hardware::choose_gpus(machine, wish);
  const auto value =
      hardware::visible_devices(machine, choice.chosen, arguments.has("--uuid"));
  const int wanted = wish.count.value_or(1);
  const bool enough = choice.chosen.size() >= static_cast<std::size_t>(wanted);
  if (!enough) say_fewer(context, {machine, choice, wanted});
  // An empty value would hide every GPU from a script that evaluates the line.
  const bool good = enough || (!choice.chosen.empty() && !arguments.has("--strict"));
  if (!good) return kExitEnvironment;
  if (arguments.has("--export")) context.out << "export CUDA_VISIBLE_DEVICES=";
  context.out << value << "\n";
  return kExitOk;
}

}  // namespace

Command gpus_command() {
  return {
      .name = "gpus",
      .summary = "List the GPUs, choose the best free ones, or test them.",
      .usage =
          "lockstep gpus [--free] [--min-memory 20GB] [--count N] [--export]\n"
          "       lockstep gpus test [--json] [--time-limit S]",
      .details =
          "Without options: a line for each GPU. With one: the value of "
          "CUDA_VISIBLE_DEVICES\nfor the best GPUs, by free memory, then how busy "
          "they are, then the links between\nthem. An example:\n\n"
          "  eval \"$(lockstep gpus --free --min-memory 20GB --count 4 --export)\"\n\n"
          "test: products of matrices with a known answer, patterns in half of the "
          "free memory,\nthe same bits twice, and sums over NCCL, each in a process "
          "of its own with a time\nlimit. Exit status: 0 all passed, 1 not all.\n",
      .operands = {{.name = "ACTION",
                    .help = "test: check that every GPU computes correctly.",
                    .required = false,
                    .choices = {"test"}}},
      .options = {{.name = "--free",
                   .help = "Only idle GPUs, on which no process computes."},
                  {.name = "--min-memory",
                   .value = "SIZE",
                   .help = "Only those with this much free memory."},
                  {.name = "--count",
                   .value = "N",
                   .help = "How many; fewer, with a warning, if there are fewer; "
                           "status 3 if there is none."},
                  {.name = "--strict",
                   .help = "Fewer than --count, or none to test, ends with status 3."},
                  {.name = "--uuid", .help = "Print UUIDs instead of numbers."},
                  {.name = "--export",
                   .help = "Print an export line for a shell to evaluate."},
                  {.name = "--from",
                   .value = "FILE",
                   .help =
                       "Choose on a machine described by `lockstep hardware --json`.",
                   .completes = Completes::file},
                  {.name = "--json", .help = "test: print one JSON object."},
                  {.name = "--time-limit",
                   .value = "S",
                   .help = "test: timeout of each part in seconds (default: 120)."}},
      .run = gpus};
}

}  // namespace lockstep::cli
