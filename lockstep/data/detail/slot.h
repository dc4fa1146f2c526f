#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/data/batch.h"
#include "lockstep/data/dataset.h"

namespace lockstep::data::detail {

// Memory for the largest share of a batch, filled by one worker and read by the
// consumer, again and again. A size that it has had lately costs no allocation.
class BatchSlot {
 public:
  struct Kind {
    bool soft_targets = false;  // (classes) float32 for each sample
    bool pinned = false;        // so that a GPU can fetch from it
    int spare = 0;              // samples behind the share
  };
  BatchSlot(const SampleSpec& spec, const Kind& kind)
      : specs_(spec.tensors()), num_classes_(spec.num_classes), kind_(kind) {}

  // Reserves memory for so many samples, apart from the spare ones.
  void reserve(std::int64_t samples);
  std::int64_t capacity() const noexcept { return capacity_; }

  // Returns the batch of the first `size` samples; it becomes the current one.
  Batch& view(std::int64_t size);
  const Batch& current() const { return views_[current_]; }

  // Returns the destination of sample `row`. One at a time: the spans are the slot's.
  SampleBuffer room(std::int64_t row);
  std::span<float> soft_target(std::int64_t row);

  // To be called when all samples of the current batch are there: tensors whose length
  // varies become as long as the longest of them, and get their masks.
  void pad();

  std::int64_t ready = -1;  // the number of the batch that is in it

 private:
  Batch make_view(std::int64_t size) const;
  torch::Tensor make(const std::vector<std::int64_t>& shape, torch::Dtype dtype) const;
  std::int64_t& length(std::int64_t row, std::size_t tensor);
  std::int64_t longest(std::int64_t size, std::size_t tensor);
  // Moves the samples of a tensor together and pads them.
  torch::Tensor packed(std::int64_t size, std::size_t tensor, std::int64_t length);
  torch::Tensor mask(std::int64_t size, std::size_t tensor, std::int64_t length);

  const std::vector<FieldSpec> specs_;  // input, target, fields
  const std::int64_t num_classes_;
  Kind kind_;
  std::int64_t capacity_ = -1;
  std::vector<torch::Tensor> memory_;  // of `specs_`
  torch::Tensor soft_;
  std::vector<torch::Tensor> masks_;         // undefined where the length is fixed
  std::vector<std::int64_t> lengths_;        // of each sample's tensors
  std::vector<std::span<std::byte>> spans_;  // of one sample
  std::vector<Batch> views_;
  std::size_t current_ = 0;
};

}  // namespace lockstep::data::detail
