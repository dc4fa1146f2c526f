#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/hardware/detail/cuda_driver.h"
#include "lockstep/hardware/detail/nvml_library.h"
#include "lockstep/hardware/gpu_meter.h"
#include "lockstep/hardware/machine.h"

namespace lockstep::hardware::detail {

enum class Depth { basic, full };

// A GPU, or an instance of one, with the handle that NVML knows it by.
struct FoundGpu {
  Gpu gpu;
  NvmlDevice device = nullptr;
};

// A GPU and, in MIG mode, its instances; the whole is of no use then.
struct GpuFamily {
  FoundGpu whole;
  bool mig = false;
  std::vector<FoundGpu> instances;
};

// Returns the id as the kernel writes it: small letters and four digits of the domain.
std::string kernel_pci_id(const NvmlPci& info);

// Returns the path of the library below `root`: a fixture with none has no GPU on any
// machine.
std::string nvidia_library(const Path& root, const std::string& name);

// Returns every GPU that the driver counts, in its order; those that fail go to
// `unusable`.
std::vector<GpuFamily> all_gpus(const Nvml& nvml, std::vector<UnusableGpu>& unusable);

GpuStatus read_status(const Nvml& nvml, NvmlDevice device,
                      Counters counters = Counters::all);

// Adds the details that inspect() reports of a GPU, except libcuda's part.
void add_details(const Nvml& nvml, const Path& root, FoundGpu& found);

std::vector<GpuPair> read_pairs(const Nvml& nvml, const std::vector<FoundGpu>& gpus);

// Returns the GPUs that CUDA would show, in its order: libcuda's own list where there
// is one, else by CUDA's rules for CUDA_VISIBLE_DEVICES. `wanted` is that variable.
std::vector<FoundGpu> visible_gpus(const std::vector<GpuFamily>& all,
                                   const std::optional<std::string>& wanted,
                                   const std::optional<std::vector<CudaDevice>>& cuda);

struct GpuSearch {
  const Nvml& nvml;
  const Path& root;
  Depth depth;
};

// Returns the GPUs of `root`'s machine that CUDA would show. Sets a note in `machine`
// if there are none.
std::vector<FoundGpu> usable_gpus(const GpuSearch& search, Machine& machine);

// Fills the GPU fields of `machine`, or its gpu_note. The library is loaded at run
// time: a machine without one is ordinary, and so is one whose library lacks a symbol.
void add_gpus(const Path& root, Depth depth, Machine& machine);

}  // namespace lockstep::hardware::detail
