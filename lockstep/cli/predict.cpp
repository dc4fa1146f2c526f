// lockstep predict RUN [FILE]...: what a trained model says of images or of its own
// data.
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/cli/command.h"
#include "lockstep/cli/detail/inference.h"

namespace lockstep::cli {
namespace {

int run_predict(const Arguments& arguments, Context& context) {
  InferenceCall call{.command = "predict", .words = {"--predict"}};
  for (const auto& file : arguments.repeated()) {
    std::error_code ignored;
    if (!std::filesystem::exists(file, ignored)) {
      throw Error(Fault::config, "predict: there is no file '", file, "'");
    }
    call.words.insert(call.words.end(), {"--file", file});
  }
  return status_of(run_inference(call, arguments, context).end);
}

}  // namespace

Command predict_command() {
  return {.name = "predict",
          .summary = "Predict with a trained model: a JSON line for each sample.",
          .usage = "lockstep predict RUN [FILE]... [options] [section.key=value]...",
          .details =
              "  lockstep predict runs/0001 cat.jpg dog.png\n"
              "  lockstep predict runs/0001 --weights best > predictions.jsonl\n\n"
              "Images are resized to the size that the model was trained with. Without "
              "files, the\n"
              "evaluation samples are predicted, in their order. A line of a "
              "classifier has\n"
              "its class and the probability of each; of several labels the "
              "probabilities; of\n"
              "other tasks the outputs.\n",
          .operands = {inference_run(),
                       {.name = "FILE",
                        .help = "Images (JPEG, PNG).",
                        .required = false,
                        .completes = Completes::file,
                        .repeats = true}},
          .options = inference_options(),
          .takes_overrides = true,
          .run = run_predict};
}

}  // namespace lockstep::cli
