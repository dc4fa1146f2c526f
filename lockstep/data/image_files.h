#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"

namespace lockstep::data {

// Returns the images of some JPEG and PNG files, in their order, brought to the size
// and the channels of samples of `like`: the middle square where those are square, one
// channel by their brightness. The target is 0. Throws Fault::config where samples are
// no images of bytes with one or three channels.
std::unique_ptr<Dataset> open_image_files(std::vector<std::string> files,
                                          const SampleSpec& like);

}  // namespace lockstep::data
