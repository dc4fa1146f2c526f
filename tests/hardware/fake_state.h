#pragma once

#include <cstring>
#include <fstream>
#include <string>

#include <dlfcn.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

// What the stand-ins for NVIDIA's libraries say: the file gpus.json beside them, read
// again when it has changed. tests/hardware/fake_machine.h writes such files.
// Unnamed: each copy of a library has its own.
namespace fake {
namespace {

using Json = nlohmann::json;

constexpr int kNotSupported = 3;
constexpr int kTooSmall = 7;

[[maybe_unused]] std::string state_file() {
  Dl_info info{};
  ::dladdr(reinterpret_cast<const void*>(&state_file), &info);
  const std::string library = info.dli_fname;
  return library.substr(0, library.rfind('/')) + "/gpus.json";
}

[[maybe_unused]] const Json& state() {
  static Json json;
  static std::string version;
  struct stat now {};
  const auto file = state_file();
  ::stat(file.c_str(), &now);
  const auto seen = std::to_string(now.st_mtim.tv_sec) + "." +
                    std::to_string(now.st_mtim.tv_nsec) + "." +
                    std::to_string(now.st_ino);
  if (seen != version) {
    std::ifstream in(file);
    json = Json::parse(in, nullptr, false);
    if (!json.is_object()) json = {{"gpus", Json::array()}};
    version = seen;
  }
  return json;
}

[[maybe_unused]] int copy(const std::string& from, char* to, unsigned size) {
  if (from.size() >= size) return kTooSmall;
  std::memcpy(to, from.c_str(), from.size() + 1);
  return 0;
}

}  // namespace
}  // namespace fake
