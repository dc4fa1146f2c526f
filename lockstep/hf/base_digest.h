#pragma once

#include <string>
#include <string_view>

#include "lockstep/config/config.h"
#include "lockstep/hf/gpt2.h"
#include "lockstep/storage/manifest.h"

// The weights under adapters, which checkpoints do not hold: a digest tells whether
// they are those that the adapters were trained beside.
namespace lockstep::hf {

// Returns the digest of the weights in a folder or a file, by our names and in our
// layout: the same for shards, other kinds of files and names with the prefix. Rows
// that fill up a vocabulary are none of them.
std::string digest_of_weights(const Path& weights);

// Throws Fault::config, beginning with `who`, if model.weights is not what the adapters
// of the checkpoint were trained beside. Checkpoints of whole models, and those without
// a digest, are not checked.
void check_base(std::string_view who, const storage::Manifest& checkpoint,
                const config::Config& config);

// Does the same for two digests; an empty one is not known.
struct BaseDigests {
  std::string_view saved, now;
};
void check_base(std::string_view who, const BaseDigests& digests, const Path& weights);

// The name of the digest in the state of a checkpoint.
inline constexpr std::string_view kBaseDigest = "base_weights";

}  // namespace lockstep::hf
