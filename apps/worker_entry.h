#pragma once

#include <filesystem>

#include "lockstep/config/load.h"

// What the program lockstep_worker and its library liblockstep_worker.so agree on.
namespace lockstep {

// The program reads recipes for the library: distributions ship yaml-cpp's archive
// without position-independent code, which a program can link in and a shared library
// can not.
using ConfigLoader = config::Loaded (*)(const std::filesystem::path&);

using WorkerMain = int (*)(int argc, char** argv, ConfigLoader load);

}  // namespace lockstep
