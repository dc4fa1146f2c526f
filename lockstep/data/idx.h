#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "lockstep/data/dataset.h"

namespace lockstep::data {

// A pair of IDX files, the format of MNIST: unsigned bytes, (n, H, W) images and (n)
// labels, plain or gzip'ed.
struct IdxFiles {
  std::filesystem::path images;
  std::filesystem::path labels;
  std::int64_t limit = 0;        // read only the first samples; 0: all
  std::int64_t num_classes = 0;  // 0: the largest label plus one
  std::vector<std::string> class_names = {};
  float mean = 0;  // of the pixels scaled to [0, 1]
  float deviation = 1;
};

// Reads both into memory and checks them: magic, dimensions, length, that the counts
// agree and that every label is below num_classes. Throws Fault::io naming the file.
std::unique_ptr<Dataset> open_idx(const IdxFiles& files);

}  // namespace lockstep::data
