#pragma once

#include <filesystem>
#include <vector>

#include "lockstep/cli/command.h"
#include "lockstep/config/load.h"
#include "lockstep/storage/reader.h"

// `lockstep checkpoint export`, whose formats are several files.
namespace lockstep::cli {

// What is exported, as the command line wants it.
struct CheckpointExport {
  const storage::Reader& reader;
  const Arguments& arguments;
  Context& context;
};

// Returns the config of the run that the checkpoint is of, with these knobs changed.
config::Loaded config_of(const storage::Manifest& manifest,
                         const std::vector<config::Override>& overrides = {});

// Writes the weights, averaged if that is wanted, as a safetensors file.
void write_weights(const CheckpointExport& what, const std::filesystem::path& file);

// Writes a TorchScript program by starting the worker, and returns the status to exit
// with. The file appears whole or not at all.
int export_script(const CheckpointExport& what, const std::filesystem::path& to);

}  // namespace lockstep::cli
