// lockstep_worker: one rank. The program of this name loads LibTorch and then calls
// lockstep_worker_main() here; see apps/lockstep_worker.cpp.
//
//   lockstep_worker --run-dir DIR      trains what DIR/config.yaml says
//     [--trace DIR2 [--trace-batches] [--inject rank=R,scale=S]]
//                                      and writes what it computed to DIR2 (parity)
//   lockstep_worker --describe RECIPE  says what its model takes, for the planner
//   lockstep_worker --version [--json] says what it is made of
//   lockstep_worker --selftest [--cuda] [--seconds N]
//                                      tries every collective with the other ranks
//   lockstep_worker --generate [options]
//                                      continues texts by a trained model
//   lockstep_worker --infer [options]  evaluates a trained model, or predicts with it
//   lockstep_worker --check-data --recipe RECIPE
//                                      looks at the data of a recipe
//   lockstep_worker --measure PART [options]
//                                      measures or tests a part of this machine
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/worker_data.h"
#include "apps/worker_entry.h"
#include "apps/worker_generate.h"
#include "apps/worker_infer.h"
#include "apps/worker_measure.h"
#include "apps/worker_selftest.h"
#include "apps/worker_train.h"
#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <torch/torch.h>
#include <torch/version.h>

#include "lockstep/base/error.h"
#include "lockstep/base/instruction_sets.h"
#include "lockstep/base/library_error.h"
#include "lockstep/base/text.h"
#include "lockstep/config/load.h"
#include "lockstep/describe/describe.h"
#include "lockstep/kernels/cuda.h"
#include "lockstep/run/field.h"
#include "lockstep/run/run_directory.h"
#include "lockstep/train/stop.h"

namespace lockstep {
namespace {

struct Arguments {
  std::string run_dir;
  std::string recipe;  // to describe
  bool version = false;
  bool json = false;
  bool selftest = false;
  std::optional<run::TraceRequest> trace;
  SelftestOptions selftest_options;
};

std::chrono::seconds seconds_of(std::string_view text) {
  const auto number = text::to_integer(text);
  if (!number || *number < 0 || *number > 1'000'000) {
    throw Error(Fault::config, "lockstep_worker: --seconds '", text,
                "' is not a number of seconds");
  }
  return std::chrono::seconds(*number);
}

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--version") {
      arguments.version = true;
    } else if (word == "--json") {
      arguments.json = true;
    } else if (word == "--selftest") {
      arguments.selftest = true;
    } else if (word == "--cuda" && arguments.selftest) {
      arguments.selftest_options.cuda = true;
    } else if (word == "--seconds" && arguments.selftest && i + 1 < argc) {
      arguments.selftest_options.repeat = seconds_of(argv[++i]);
    } else if (word == "--run-dir" && i + 1 < argc) {
      arguments.run_dir = argv[++i];
    } else if (word == "--describe" && i + 1 < argc) {
      arguments.recipe = argv[++i];
    } else if (word == "--trace" && i + 1 < argc) {
      arguments.trace.emplace().directory = argv[++i];
    } else if (word == "--trace-batches" && arguments.trace) {
      arguments.trace->batches = true;
    } else if (word == "--inject" && arguments.trace && i + 1 < argc) {
      arguments.trace->injection = run::parse_injection(argv[++i]);
    } else {
      throw Error(Fault::config, "lockstep_worker: unknown argument '", word,
                  "'; it is started by `lockstep train`, or with --run-dir DIR");
    }
  }
  const bool asks =
      arguments.version || arguments.selftest || !arguments.recipe.empty();
  if (!asks && arguments.run_dir.empty()) {
    throw Error(Fault::config,
                "lockstep_worker: --run-dir DIR is missing; start it with "
                "`lockstep train RECIPE`");
  }
  return arguments;
}

// Returns the version of a loaded library by a function of C, such as
// ncclGetVersion(int*); "none" where it is not loaded.
std::string version_by(const char* function, int major_factor) {
  void* symbol = ::dlsym(RTLD_DEFAULT, function);
  int version = 0;
  if (symbol == nullptr || reinterpret_cast<int (*)(int*)>(symbol)(&version) != 0) {
    return "none";
  }
  const int minor_factor = major_factor / 100;
  return fmt::format("{}.{}.{}", version / major_factor,
                     version % major_factor / minor_factor, version % minor_factor);
}

void print(const std::string& text) {
  const auto written = std::fwrite(text.data(), 1, text.size(), stdout);
  if ((written < text.size() || std::fflush(stdout) != 0) && errno != EPIPE) {
    throw Error(Fault::io, "cannot write to standard output: ", std::strerror(errno));
  }
}

void print_version(bool json) {
  const std::vector<run::NamedValue> fields{
      {"lockstep", std::string(LOCKSTEP_VERSION)},
      {"libtorch", std::string(TORCH_VERSION)},
      {"libtorch_path", std::string(std::getenv("LOCKSTEP_LIBTORCH_FOUND") != nullptr
                                        ? std::getenv("LOCKSTEP_LIBTORCH_FOUND")
                                        : "")},
      {"cuda", version_by("cudaRuntimeGetVersion", 1000)},
      {"nccl", version_by("ncclGetVersion", 10000)},
      {"cuda_available", torch::cuda::is_available()},
      {"cudnn", torch::cuda::cudnn_is_available()
                    ? std::to_string(at::detail::getCUDAHooks().versionCuDNN())
                    : std::string("none")},
      {"gpus", static_cast<std::int64_t>(
                   torch::cuda::is_available() ? torch::cuda::device_count() : 0)},
      {"kernels", kernels::cuda_available()},
  };
  if (json) {
    return print(run::to_json_line(fields) + "\n");
  }
  print(str("lockstep_worker ", LOCKSTEP_VERSION, " with LibTorch ", TORCH_VERSION,
            "\n"));
}

constexpr std::string_view kSmaller =
    "; lower batch.micro, batch.eval, data.prefetch or the size of the model";

int run_worker(int argc, char** argv, ConfigLoader load) {
  std::string run_dir;
  try {
    if (argc > 1 && std::string_view(argv[1]) == "--measure") {
      return run_measure({argv + 2, argv + argc}, load);
    }
    if (argc > 1 && std::string_view(argv[1]) == "--generate") {
      return run_generate({argv + 2, argv + argc}, load);
    }
    if (argc > 1 && std::string_view(argv[1]) == "--infer") {
      return run_inference({argv + 2, argv + argc}, load);
    }
    if (argc > 1 && std::string_view(argv[1]) == "--check-data") {
      return run_check_data({argv + 2, argv + argc}, load);
    }
    const auto arguments = parse(argc, argv);
    if (arguments.version) {
      print_version(arguments.json);
      return kExitOk;
    }
    if (!arguments.recipe.empty()) {
      print(run::to_json(describe::describe_model(load(arguments.recipe).config)));
      return kExitOk;
    }
    if (arguments.selftest) {
      return run_selftest(arguments.selftest_options, load({}).config);
    }
    run_dir = arguments.run_dir;
    // It lives until the process ends: a signal at the end finds a run that is over.
    static const train::StopRequest stop;
    return run_training({run::RunDirectory::open(run_dir), arguments.trace}, load,
                        stop);
  } catch (const Error& error) {
    return report(run_dir, error.fault(), error.what());
  } catch (const c10::OutOfMemoryError& error) {
    return report(
        run_dir, Fault::hardware,
        str("train: out of memory: ", error.what_without_backtrace(), kSmaller));
  } catch (const c10::Error& error) {
    const std::string_view text = error.what_without_backtrace();
    // The CPU's allocator throws no type of its own.
    if (text.find("can't allocate memory") != std::string_view::npos) {
      return report(run_dir, Fault::hardware,
                    str("train: out of memory: ", text, kSmaller));
    }
    return report(run_dir, Fault::internal, str("libtorch: ", text));
  } catch (const std::bad_alloc&) {
    return report(run_dir, Fault::hardware, str("train: out of memory", kSmaller));
  } catch (const std::exception& error) {
    return report(run_dir, Fault::internal, str("internal: ", without_frames(error)));
  }
}

}  // namespace
}  // namespace lockstep

extern "C" int lockstep_worker_main(int argc, char** argv,
                                    lockstep::ConfigLoader load) {
  lockstep::leave_out_unusable_instructions();
  const int status = lockstep::run_worker(argc, argv, load);
  if (status == lockstep::kExitOk) return status;
  // A collective that was given up may still have threads that wait for a peer, and
  // the end of the process would wait with them.
  std::fflush(nullptr);
  ::_exit(status);
}
