#pragma once

#include <string>

// Decoders are loaded when the first image of their kind is met. Their archives in
// Debian are not position independent, so they can not be linked into the worker's
// library; and a machine without such images need not have them.
namespace lockstep::data::detail {

class Library {
 public:
  // Loads `file` as the dynamic linker finds it. Throws Fault::hardware with `remedy`.
  Library(const char* file, const std::string& remedy);

  template <typename Function>
  void find(Function& function, const char* name) const {
    function = reinterpret_cast<Function>(symbol(name));
  }

 private:
  void* symbol(const char* name) const;

  void* handle_;  // for the rest of the process
  std::string file_;
};

}  // namespace lockstep::data::detail
