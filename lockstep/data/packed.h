#pragma once

#include <cstdint>
#include <memory>

#include "lockstep/data/dataset.h"

namespace lockstep::data {

// Packs sequences of tokens of varying length, one behind the other, in rows of a fixed
// one: nothing is computed for padding but at the end of a row. A sample is a row then.
// Beside "input" and "target" it has the fields
//
//   segment   (T) int64: 1 for the tokens of its first sequence, 2 for the next, ...;
//             0 behind the last one. Attention stays within a segment.
//   position  (T) int64: of a token in its segment.
//
// Targets behind the last sequence are spec().ignore_index, which is -100 if the
// sequences have none of their own. Sequences go into the rows in their order, so that
// a row is the same on every rank; one that is longer than a row goes on in the next
// one. Asks for the length of every sequence once. Throws Fault::config for rows
// without room.
//
// Other fields of the sequences come before these; behind the last sequence they are 0.
//
// REQUIRES: "input", "target" and all fields are int64 of one varying length.
std::unique_ptr<Dataset> packed(std::unique_ptr<Dataset> sequences,
                                std::int64_t length);

}  // namespace lockstep::data
