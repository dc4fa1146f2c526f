// lockstep_worker: finds LibTorch, loads it, then liblockstep_worker.so beside this
// program, and hands over to its lockstep_worker_main().
//
// A program that links LibTorch dies in the dynamic loader when it is not there; this
// one does not, so a missing or wrong LibTorch is one clear line.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <signal.h>
#if __has_include(<cpuid.h>)
#include <cpuid.h>
#endif

#include "apps/worker_entry.h"

#include "lockstep/base/memory.h"
#include "lockstep/base/terminal.h"
#include "lockstep/run/rank_environment.h"

namespace {

namespace fs = std::filesystem;

constexpr char kVersion[] = "2.11.0";
constexpr char kRemedy[] =
    "; set LOCKSTEP_LIBTORCH to the folder of LibTorch 2.11.0 (it has lib/ and "
    "include/)";

constexpr char kFetchRemedy[] =
    "; run scripts/get_libtorch.sh, which fetches it, or set LOCKSTEP_LIBTORCH to the "
    "folder of LibTorch 2.11.0 (it has lib/ and include/)";
constexpr char kCudaRemedy[] =
    "; this is the CUDA build: use one without CUDA here, or set LOCKSTEP_LIBTORCH to "
    "a "
    "LibTorch 2.11.0 with all its CUDA libraries";

constexpr char kHelp[] =
    "lockstep_worker: one rank of a training run. `lockstep train RECIPE` starts it, "
    "or\n"
    "another launcher does after `lockstep train RECIPE --prepare`.\n\n"
    "usage:\n"
    "  lockstep_worker --run-dir DIR       train what DIR/config.yaml says\n"
    "      [--trace DIR2]                  and write every step's gradients and "
    "weights\n"
    "                                      to DIR2, which is made if need be\n"
    "      [--trace-batches]               its batches, too\n"
    "      [--inject rank=R,scale=S]       with a wrong gradient on one rank\n"
    "  lockstep_worker --describe RECIPE   print what its model takes, as JSON\n"
    "  lockstep_worker --selftest          try every collective with the other ranks\n"
    "      [--cuda] [--seconds N]          on GPUs; again and again\n"
    "  lockstep_worker --measure PART      measure or test a part of this machine\n"
    "  lockstep_worker --version [--json]  print what it is made of\n"
    "  lockstep_worker --help              print this\n";

struct LoadError : std::runtime_error {
  explicit LoadError(const std::string& what, const std::string& remedy = kRemedy)
      : std::runtime_error(what + remedy) {}
};

// Some virtual machines show the AMX flags with an empty tile palette (CPUID leaf
// 0x1D); oneDNN believes the flags, and bf16 dies of an illegal instruction.
void avoid_broken_amx() {
#if __has_include(<cpuid.h>)
  constexpr unsigned kAmxTile = 1U << 24;  // leaf 7, EDX
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kAmxTile) == 0) return;
  if (__get_cpuid_count(0x1D, 1, &a, &b, &c, &d) != 0 && b != 0) return;
  constexpr int kKeepTheUsersChoice = 0;
  setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16", kKeepTheUsersChoice);
#endif
}

// The dynamic loader dies of SIGBUS on a truncated library, so its segments are checked
// against the size of the file first.
void check_whole(const fs::path& library) {
  std::ifstream file(library, std::ios::binary);
  ElfW(Ehdr) header{};
  file.read(reinterpret_cast<char*>(&header), sizeof header);
  const bool is_elf =
      file && std::string(reinterpret_cast<char*>(header.e_ident), 4) == ELFMAG;
  if (!is_elf) throw LoadError(library.string() + " is not a shared library");
  std::vector<ElfW(Phdr)> segments(header.e_phnum);
  file.seekg(static_cast<std::streamoff>(header.e_phoff));
  file.read(reinterpret_cast<char*>(segments.data()),
            static_cast<std::streamsize>(segments.size() * sizeof(ElfW(Phdr))));
  const auto size = fs::file_size(library);
  for (const auto& segment : segments) {
    if (!file || segment.p_offset + segment.p_filesz > size) {
      throw LoadError(library.string() + " is truncated");
    }
  }
}

// Libraries are loaded globally, as by Python: LibTorch's libraries find each other's
// symbols, and the kernels that a library registers are found by all.
void* open_library(const fs::path& library, int visibility,
                   const char* remedy = kRemedy) {
  check_whole(library);
  void* handle = dlopen(library.c_str(), RTLD_NOW | visibility);
  if (handle == nullptr) throw LoadError(dlerror(), remedy);
  return handle;
}

bool has_torch(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / "libtorch_cpu.so", ignored);
}

fs::path folder_of_this_program() {
  return fs::read_symlink("/proc/self/exe").parent_path();
}

// Where LibTorch lies on a machine that did not build this program: in its bundle, or
// where scripts/setup.sh and get_libtorch.sh put it. One for GPUs is taken first.
std::vector<fs::path> places_of_torch() {
  std::vector<fs::path> places = {folder_of_this_program().parent_path() / "libtorch",
                                  fs::path(LOCKSTEP_TORCH_LIB).parent_path()};
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  fs::path folder;
  if (cache != nullptr && *cache != '\0') {
    folder = cache;
  } else if (home != nullptr && *home != '\0') {
    folder = fs::path(home) / ".cache";
  }
  if (folder.empty()) return places;
  const std::string name = std::string("libtorch-") + kVersion;
  places.push_back(folder / "lockstep" / (name + "-gpu") / "torch");
  places.push_back(folder / "lockstep" / name / "torch");
  return places;
}

// Returns the folder that the system's search (LD_LIBRARY_PATH, ld.so.conf) finds.
fs::path torch_on_search_path() {
  void* handle = dlopen("libc10.so", RTLD_NOW | RTLD_GLOBAL);
  const link_map* map = nullptr;
  if (handle == nullptr || dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0) {
    throw LoadError(
        std::string("LibTorch was not found: LOCKSTEP_LIBTORCH is not set and ") +
            LOCKSTEP_TORCH_LIB + " has no libtorch_cpu.so",
        kFetchRemedy);
  }
  return fs::absolute(map->l_name).parent_path();
}

// Returns LibTorch's lib/ folder: the one that the user names, else the first that is
// there, else the system's.
fs::path torch_folder() {
  const char* named = std::getenv("LOCKSTEP_LIBTORCH");
  if (named != nullptr && *named != '\0') {
    const fs::path root = fs::absolute(named);
    if (has_torch(root / "lib")) return root / "lib";
    if (has_torch(root)) return root;
    throw LoadError("LOCKSTEP_LIBTORCH=" + std::string(named) +
                    " has no lib/libtorch_cpu.so");
  }
  for (const auto& place : places_of_torch()) {
    if (has_torch(place / "lib")) return place / "lib";
  }
  return torch_on_search_path();
}

// A wheel has version.py, an archive build-version; none is not an error, since only
// the libraries need to be here.
void check_version(const fs::path& root) {
  for (const char* name : {"version.py", "build-version"}) {
    std::ifstream file(root / name);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    std::smatch found;
    if (!std::regex_search(text, found, std::regex(R"((\d+\.\d+\.\d+)[\w+.]*)")))
      continue;
    if (found[1] == kVersion) return;
    throw LoadError("LibTorch in " + root.string() + " is version " + found[0].str());
  }
}

lockstep::WorkerMain load_worker() {
  const fs::path torch = torch_folder();
  check_version(torch.parent_path());
  setenv("LOCKSTEP_LIBTORCH_FOUND", torch.parent_path().c_str(), 1);  // for `doctor`
  open_library(torch / "libc10.so", RTLD_GLOBAL);
  open_library(torch / "libtorch_cpu.so", RTLD_GLOBAL);
  if (LOCKSTEP_WITH_CUDA) {
    open_library(torch / "libc10_cuda.so", RTLD_GLOBAL, kCudaRemedy);
    open_library(torch / "libtorch_cuda.so", RTLD_GLOBAL, kCudaRemedy);
  }
  const fs::path library = folder_of_this_program() / "liblockstep_worker.so";
  if (!fs::exists(library)) {
    throw LoadError(library.string() + " is missing",
                    "; keep it beside lockstep_worker");
  }
  void* worker = open_library(library, RTLD_LOCAL);
  void* main = dlsym(worker, "lockstep_worker_main");
  if (main == nullptr) throw LoadError(dlerror());
  return reinterpret_cast<lockstep::WorkerMain>(main);
}

bool asks_for_help(int argc, char** argv) {
  return std::any_of(argv + std::min(argc, 1), argv + argc, [](std::string_view word) {
    return word == "--help" || word == "-h";
  });
}

// Returns the value of --run-dir, or "".
std::string run_directory(int argc, char** argv) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::string_view(argv[i]) == "--run-dir") return argv[i + 1];
  }
  return "";
}

lockstep::config::Loaded load_config(const fs::path& path) {
  if (!path.empty()) return lockstep::config::load(path, {}, {});
  const auto variables = lockstep::run::process_variables();
  return lockstep::config::defaults({}, {variables.begin(), variables.end()});
}

}  // namespace

int main(int argc, char** argv) {
  lockstep::terminal::open_standard_streams();
  if (asks_for_help(argc, argv)) {  // before LibTorch, which may be what is missing
    std::cout << kHelp;
    return lockstep::kExitOk;
  }
  ::signal(SIGPIPE, SIG_IGN);  // a reader of our output that goes away ends no training
  ::signal(SIGXFSZ, SIG_IGN);  // nor does ulimit -f: it is an error of a write
  lockstep::keep_freed_memory();
  avoid_broken_amx();
  // Ranks say themselves what went wrong; c10d's warnings come with stack traces.
  setenv("TORCH_CPP_LOG_LEVEL", "ERROR", 0);
  lockstep::WorkerMain worker = nullptr;
  try {
    worker = load_worker();
  } catch (const std::exception& error) {
    return lockstep::report(run_directory(argc, argv), lockstep::Fault::hardware,
                            error.what());
  }
  return worker(argc, argv, &load_config);
}
