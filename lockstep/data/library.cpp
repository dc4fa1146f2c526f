#include "lockstep/data/detail/library.h"

#include <dlfcn.h>

#include "lockstep/base/error.h"

namespace lockstep::data::detail {

Library::Library(const char* file, const std::string& remedy)
    : handle_(::dlopen(file, RTLD_NOW | RTLD_LOCAL)), file_(file) {
  if (handle_ != nullptr) return;
  throw Error(Fault::hardware, "data: ", ::dlerror(), "; ", remedy);
}

void* Library::symbol(const char* name) const {
  void* found = ::dlsym(handle_, name);
  if (found != nullptr) return found;
  throw Error(Fault::hardware, "data: ", file_, " has no ", name,
              "; it is of another version: install the system's own");
}

}  // namespace lockstep::data::detail
