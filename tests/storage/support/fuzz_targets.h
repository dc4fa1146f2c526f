#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/storage/detail/pickle.h"
#include "lockstep/storage/manifest.h"
#include "lockstep/storage/safetensors.h"
#include "lockstep/storage/torch_file.h"

// What is done with bytes that may be anything. True: they were taken for good; any
// error but Error(Fault::io) or a newer format is a finding.
namespace lockstep::fuzz {

template <typename Body>
bool holds(const Body& body) {
  try {
    body();
    return true;
  } catch (const Error& error) {
    if (error.fault() != Fault::io && error.fault() != Fault::config) abort();
    return false;
  }
}

inline bool safetensors(std::string_view bytes) {
  return holds([&] {
    const auto header =
        storage::parse_safetensors(bytes, static_cast<std::int64_t>(bytes.size()), "x");
    for (const auto& entry : header.entries) {
      if (header.data_begin + entry.end > static_cast<std::int64_t>(bytes.size()))
        abort();
    }
  });
}

// The digest is made right first, or nothing would get past it.
inline bool manifest(std::string_view bytes) {
  const auto end = std::min(bytes.find('\n'), bytes.size() - 1);
  const auto rest = bytes.empty() ? bytes : bytes.substr(end + 1);
  const auto text =
      str("{\"digest\": \"", storage::to_hex(storage::digest_of(rest)), "\",\n", rest);
  return holds([&] {
    const auto read = storage::manifest_from_text(text, "x");
    storage::check(storage::manifest_from_text(storage::to_text(read), "x"), "x");
  });
}

inline bool pickle(std::string_view bytes) {
  return holds([&] {
    storage::read_pickle(
        bytes,
        [](const std::string&, storage::TorchTensor& tensor) {
          tensor.storage_bytes = 64;
          return true;
        },
        "x");
  });
}

inline bool torch_file(std::string_view bytes) {
  const files::Descriptor memory(::memfd_create("torch_file", MFD_CLOEXEC));
  const auto path = str("/proc/self/fd/", memory.get());
  files::write_all(memory.get(), bytes, path);
  return holds([&] {
    const storage::TorchFile file(path);
    for (const auto& tensor : file.tensors()) {
      const auto count = *storage::num_elements(tensor.shape);
      std::string out(
          static_cast<std::size_t>(*storage::num_bytes(tensor.dtype, count)), '\0');
      file.read(tensor, 0, std::as_writable_bytes(std::span(out)));
    }
  });
}

}  // namespace lockstep::fuzz
