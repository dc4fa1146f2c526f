#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "lockstep/base/str.h"
#include "tests/support/support.h"

namespace lockstep::test {

using Json = nlohmann::json;

inline std::string fake_uuid(int gpu) {
  const char digit = "0123456789abcdef"[gpu & 15];
  return str("GPU-", std::string(8, digit), "-1111-2222-3333-", std::string(12, digit));
}

inline std::string fake_pci(int gpu) {
  return str("00000000:", "0123456789ABCDEF"[gpu & 15], "B:00.0");
}

// A GPU about which everything is known.
inline Json fake_gpu(int number, const std::string& name = "Example H200") {
  return {
      {"name", name},
      {"uuid", fake_uuid(number)},
      {"pci", fake_pci(number)},
      {"memory", {{"total", 80'000'000'000}, {"used", 0}, {"reserved", 500'000'000}}},
      {"compute", {9, 0}},
      {"utilization", {0, 0}},
      {"temperature", 35},
      {"slowdown", 87},
      {"power_mw", 75'500},
      {"power_limit_mw", 700'000},
      {"energy_mj", 123'456'000},
      {"clocks", {1980, 1980, 3201}},
      {"max_clocks", {1980, 1980, 3201}},
      {"throttle", 0},
      {"bus_width", 5120},
      {"persistence", 1},
      {"compute_mode", 0},
      {"ecc", {1, 3, 0}},
      {"remapped", {0, 0, 0, 0}},
      {"pcie", {4, 16, 5, 16}},
      {"pcie_replays", 2},
      {"processes", Json::array()},
      {"attributes",
       {{"1", 1024},
        {"8", 49152},
        {"16", 132},
        {"37", 5120},
        {"38", 52428800},
        {"39", 2048},
        {"81", 233472},
        {"97", 232448}}}};
}

// A root directory with stand-ins for NVIDIA's libraries that show `gpus`.
class FakeMachine {
 public:
  explicit FakeMachine(Json state, const std::string& library = FAKE_NVML) {
    const auto lib = root() / "usr/lib";
    std::filesystem::create_directories(lib);
    // Copies, not links: a library that is loaded twice is loaded once.
    std::filesystem::copy_file(library, lib / "libnvidia-ml.so.1");
    std::filesystem::copy_file(FAKE_CUDA, lib / "libcuda.so.1");
    set(std::move(state));
    environment({});
  }

  const Path& root() const { return directory_.path(); }

  void set(const Json& state) const {
    // By rename, so that the file is another one and its reader sees that.
    write_file(root() / "usr/lib/gpus.new", state.dump());
    std::filesystem::rename(root() / "usr/lib/gpus.new", root() / "usr/lib/gpus.json");
  }

  void environment(const std::vector<std::string>& variables) const {
    std::string block;
    for (const auto& variable : variables) block += variable + '\0';
    write_file(root() / "proc/self/environ", block);
  }

  void file(const std::string& path, const std::string& content) const {
    write_file(root() / path, content);
  }

 private:
  files::TemporaryDirectory directory_;
};

inline Json fake_gpus(int count, const std::string& name = "Example H200") {
  Json state{{"gpus", Json::array()}, {"cuda_order", Json::array()}};
  for (int i = 0; i < count; ++i) {
    state["gpus"].push_back(fake_gpu(i, name));
    state["cuda_order"].push_back(fake_uuid(i));
  }
  return state;
}

}  // namespace lockstep::test
