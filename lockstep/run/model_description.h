#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

// The planner's view of a model, without a tensor of it. `lockstep_worker --describe`
// measures it, files ship for models that are not ours to build yet; docs/planner.md
// has the format.
namespace lockstep::run {

// "format" of the file. A reader refuses a newer one.
inline constexpr int kModelFormat = 1;

// Bytes that grow with the samples of a micro-batch, and those that do not.
struct Footprint {
  std::int64_t per_sample_bytes = 0;
  std::int64_t fixed_bytes = 0;

  double at(std::int64_t samples) const {
    return static_cast<double>(per_sample_bytes) * static_cast<double>(samples) +
           static_cast<double>(fixed_bytes);
  }
};

// The footprints in both arithmetics: all in 32 bits, or mixed with 16.
struct Footprints {
  Footprint fp32;
  Footprint half;
};

// A part of the model: a block, or the layers before and after the blocks.
struct ModelUnit {
  std::string name;
  int count = 1;  // so many of them follow each other
  std::int64_t num_parameters = 0;
  std::int64_t buffer_bytes = 0;
  double forward_flops = 0;      // of a sample; a product and its sum are two
  double quadratic_flops = 0;    // the part that grows with the square of the sequence
  std::int64_t operators = 0;    // launched by a forward pass
  Footprints kept;               // for the backward pass
  std::int64_t num_inputs = 0;   // elements of a sample that come in
  std::int64_t num_outputs = 0;  // and go out
  bool recomputable = false;     // memory.recompute_every reaches it
};

// A forward and a backward pass in fp32 that were computed, on this machine's
// processor.
struct ModelTrial {
  int threads = 1;
  std::int64_t samples = 0;
  double seconds = 0;
};

// The passes of a model that computes its gradients itself (model.own_backward).
struct OwnPasses {
  bool exist = false;
  std::string obstacle;  // why no plan can take them on a GPU; "": none is
  // All that a step takes beside parameters, gradients and optimizer state.
  Footprints kept;
};

struct ModelDescription {
  std::string name;
  std::string source;              // where the numbers come from
  std::int64_t sequence = 0;       // tokens of a sample; 0: samples are no sequences
  std::int64_t sample_bytes = 0;   // of a batch, as it comes from the loader
  double load_seconds = 0;         // of one loader thread; 0: by data.name and bytes
  std::int64_t train_samples = 0;  // of the data set; 0: not known
  std::string assumed_data;        // why its samples are those that the recipe promises
  // Of its parameters, those that are not trained: they have no gradients and no state.
  std::int64_t frozen_parameters = 0;
  Footprints backward;  // the most that a step takes beyond what is kept
  Footprints forward;   // the most that an evaluation takes
  std::vector<ModelUnit> units;
  // What a first plan knows of a machine's speed with this model; none if it was too
  // large to be tried, or on another machine than the plan's.
  std::string cpu_model;  // that the trials ran on
  std::vector<ModelTrial> trials;
  std::int64_t process_bytes = 0;  // of the process that tried it, besides its tensors
  OwnPasses own_passes;

  std::int64_t num_parameters() const;
  std::int64_t num_trained() const { return num_parameters() - frozen_parameters; }
  std::int64_t buffer_bytes() const;
  double forward_flops() const;
  std::int64_t operators() const;
  bool can_recompute() const;
  // Returns the same with sequences of half the length.
  ModelDescription with_half_sequence() const;
};

std::string to_json(const ModelDescription& model);

// A wrong type, an unknown name, a number that makes no sense or a newer format throws
// Fault::config, which names its place: "x.json: units[1].kept". `origin` is the file.
ModelDescription model_from_json(const std::string& text, const std::string& origin);

ModelDescription load_model(const std::filesystem::path& path);

}  // namespace lockstep::run
