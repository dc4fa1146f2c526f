#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/config/auto.h"
#include "lockstep/config/field.h"

namespace lockstep::config {

// The names that the worker's registry knows.
inline constexpr std::array<std::string_view, 2> kDatasets = {"fashion_mnist", "idx"};

struct DataConfig {
  std::string name = "fashion_mnist";
  std::string dir;  // "": where the data set's package puts it
  bool shuffle = true;
  std::int64_t train_samples = 0;
  std::int64_t eval_samples = 0;
  Auto<int> workers;
  Auto<int> prefetch;
};

template <typename Visitor>
void describe(DataConfig& c, Visitor& v) {
  v.field("name", c.name, {.help = "The data set.", .choices = kDatasets});
  v.field("dir", c.dir,
          {.help = "Folder of its files; empty: where its package puts them."});
  v.field("shuffle", c.shuffle,
          {.help = "A new seeded order of the samples in each epoch."});
  v.field("train_samples", c.train_samples,
          {.help = "Train on the first n samples; 0: all.",
           .range = count_from(0),
           .unit = Unit::samples});
  v.field("eval_samples", c.eval_samples,
          {.help = "Evaluate on the first n samples; 0: all.",
           .range = count_from(0),
           .unit = Unit::samples});
  v.field("workers", c.workers,
          {.help = "Threads that prepare batches while the model computes.",
           .range = between(1, 64),
           .unit = Unit::threads,
           .affects = Affects::speed});
  v.field("prefetch", c.prefetch,
          {.help = "Batches that are kept ready ahead of the step.",
           .range = between(1, 1024),
           .unit = Unit::batches,
           .affects = Affects::speed});
}

}  // namespace lockstep::config
