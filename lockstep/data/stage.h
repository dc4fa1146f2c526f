#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "lockstep/data/batch.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/named.h"

namespace lockstep::data {

// What is seen of a tensor of samples: scaled float32 from bytes and floats, into
// `out`, which is contiguous. REQUIRES: both on one device.
void normalize_into(torch::Tensor& out, const torch::Tensor& in, const FieldSpec& spec);

// Brings one tensor of the samples of a data set onto the device in the form in which
// it is seen, through buffers that are made once.
class FieldStage {
 public:
  FieldStage(FieldSpec spec, torch::MemoryFormat format, const torch::Device& device);

  const std::string& name() const noexcept { return spec_.name; }
  // Makes room for so many samples at once.
  void reserve(std::int64_t batch);
  // Holds these values until the next call.
  torch::Tensor stage(const torch::Tensor& stored);

 private:
  FieldSpec spec_;
  torch::MemoryFormat format_;
  torch::Device device_;
  bool converts_ = false;  // else it is seen as it is stored
  torch::Tensor planes_;   // rows first; used where the format differs from it
  torch::Tensor seen_;
};

// The tensors of a batch that model and task look at, in the form in which they see
// them.
class BatchStage {
 public:
  struct Options {
    SampleSpec spec;
    std::vector<std::string> wanted{"input", "target"};
    torch::MemoryFormat format = torch::MemoryFormat::Contiguous;  // of the input
    torch::Device device = torch::kCPU;
  };
  explicit BatchStage(const Options& options);

  void reserve(std::int64_t batch);

  // Of the samples [first, first + count) of a share. They hold these values until the
  // next call.
  const Named& stage(const Batch& batch, std::int64_t first, std::int64_t count);

 private:
  torch::Device device_;
  std::vector<FieldStage> fields_;
  std::vector<std::string> masks_;  // passed on as they are
  Named staged_;
};

// What model and task of a run look at: the names of both, each once.
std::vector<std::string> wanted_by(const std::vector<std::string>& model,
                                   const std::vector<std::string>& task);

// Samples of zeros, for passes whose results nobody needs.
Batch made_up_batch(const SampleSpec& spec, std::int64_t size,
                    const torch::Device& device);

}  // namespace lockstep::data
