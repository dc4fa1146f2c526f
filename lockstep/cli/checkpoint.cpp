// lockstep checkpoint ACTION ...: looks after the checkpoints of runs.
#include "lockstep/cli/detail/checkpoint.h"

#include "lockstep/base/error.h"
#include "lockstep/cli/command.h"

namespace lockstep::cli {
namespace {

constexpr const char* kDetails =
    "  lockstep checkpoint list\n"
    "  lockstep checkpoint inspect 0007 --step best\n"
    "  lockstep checkpoint diff runs/a/checkpoints/step_10 runs/b/checkpoints/step_10\n"
    "  lockstep checkpoint export 0007 --to model.safetensors --ema\n"
    "  lockstep checkpoint export 0007 --to my-gpt2 --format hf\n"
    "  lockstep checkpoint export 0007 --to model.ts --format torchscript\n"
    "  lockstep checkpoint import resnet.pt --to resnet.safetensors\n"
    "  lockstep checkpoint prune 0007 --keep-last 2 --keep-best 1 --dry-run\n\n"
    "list     the checkpoints; good: every byte has been verified, by verify,\n"
    "         prune, export or a resume, and no file has changed since\n"
    "inspect  the tensors of one, where they are, and the state beside them\n"
    "verify   reads every byte; status 1 if something is damaged\n"
    "diff     which tensors of two differ and by how much; status 8 if any do\n"
    "export   the weights in one file (safetensors, pt), or a directory (hf), which\n"
    "         transformers loads if the model is a gpt; or the model itself as a\n"
    "         program (torchscript), which torch.jit.load reads\n"
    "import   a safetensors file, or a state dict of PyTorch (.pt, .bin), of which\n"
    "         nothing is executed, as a safetensors file that a recipe can load\n"
    "prune    removes checkpoints that no --keep option keeps, never the newest valid "
    "one;\n"
    "         what it keeps is verified first, and damaged ones do not count\n\n"
    "Where one is needed, the newest valid checkpoint of the run is used.\n";

std::vector<Option> checkpoint_options() {
  return {{.name = "--dir",
           .value = "DIR",
           .help = "The directory that holds the runs (default: LOCKSTEP_RUN_DIR, else "
                   "runs).",
           .completes = Completes::directory},
          {.name = "--step",
           .value = "N",
           .help = "inspect, verify, diff, export: the step (a number, best or last).",
           .choices = {"best", "last"},
           .free_text = true},
          {.name = "--to",
           .value = "PATH",
           .help = "export, import: what to write.",
           .completes = Completes::file},
          {.name = "--format",
           .value = "FORMAT",
           .help = "export: safetensors (a file), pt (a file for torch.load), hf (a "
                   "directory; a gpt as transformers loads it) or torchscript (a "
                   "program for torch.jit.load; ONNX is made of it, docs/weights.md).",
           .choices = {"safetensors", "pt", "hf", "torchscript"}},
          {.name = "--ema", .help = "export: the averaged weights (EMA)."},
          {.name = "--tokenizer",
           .value = "FOLDER",
           .help = "export hf: where the files of the tokenizer are (default: where "
                   "model.weights is).",
           .completes = Completes::directory},
          {.name = "--strip",
           .value = "PREFIX",
           .help = "import: strip this prefix from names, for example module."},
          {.name = "--keep-last", .value = "N", .help = "prune: keep the N newest."},
          {.name = "--keep-best",
           .value = "N",
           .help = "prune: keep the N best by metric."},
          {.name = "--keep-every",
           .value = "N",
           .help = "prune: keep those whose step is a multiple of N."},
          {.name = "--dry-run", .help = "prune: dry run: print what would be removed."},
          {.name = "--json",
           .help = "list, inspect, verify, diff, prune: one JSON object."}};
}

int checkpoint(const Arguments& arguments, Context& context) {
  const auto action = arguments.operand("ACTION").value_or("");
  if (arguments.operand("OTHER") && action != "diff") {
    throw Error(Fault::config, "checkpoint ", action, ": takes one place, '",
                *arguments.operand("OTHER"), "' is one too many");
  }
  if (action == "list") return list_checkpoints(arguments, context);
  if (action == "inspect") return inspect_checkpoint(arguments, context);
  if (action == "verify") return verify_checkpoints(arguments, context);
  if (action == "diff") return diff_checkpoints(arguments, context);
  if (action == "export") return export_checkpoint(arguments, context);
  if (action == "import") return import_weights(arguments, context);
  return prune_checkpoints(arguments, context);
}

}  // namespace

Command checkpoint_command() {
  return {.name = "checkpoint",
          .summary = "List, check, compare, convert and remove checkpoints.",
          .usage =
              "lockstep checkpoint list|inspect|verify|prune [WHERE] [options]\n"
              "       lockstep checkpoint diff WHERE OTHER [options]\n"
              "       lockstep checkpoint export [WHERE] --to PATH [options]\n"
              "       lockstep checkpoint import FILE --to PATH [options]",
          .details = kDetails,
          .operands = {{.name = "ACTION",
                        .help = "The action.",
                        .choices = {"list", "inspect", "verify", "diff", "export",
                                    "import", "prune"}},
                       {.name = "WHERE",
                        .help = "A run's id or path, a directory of checkpoints or one "
                                "of them (default: the newest run); for import a file.",
                        .required = false,
                        .completes = Completes::directory},
                       {.name = "OTHER",
                        .help = "diff: what to compare with.",
                        .required = false,
                        .completes = Completes::directory}},
          .options = checkpoint_options(),
          .run = checkpoint};
}

}  // namespace lockstep::cli
