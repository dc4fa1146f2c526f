#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/config/auto.h"
#include "lockstep/config/enums.h"
#include "lockstep/config/field.h"
#include "lockstep/config/table_data.h"
#include "lockstep/config/text_data.h"

namespace lockstep::config {

// The only list of data sets: X(name, place) is opened by data::open_name(). Its files
// lie in the `folder` that data.dir names, or in a `usual` place; or there are `none`.
#define LOCKSTEP_DATASETS(X) \
  X(arrays, folder)          \
  X(cifar10, folder)         \
  X(cifar100, folder)        \
  X(csv, folder)             \
  X(fashion_mnist, usual)    \
  X(idx, folder)             \
  X(image_folder, folder)    \
  X(parquet, folder)         \
  X(synthetic, none)         \
  X(text, folder)            \
  X(tokens, folder)          \
  X(webdataset, folder)

#define LOCKSTEP_NAME(name, place) std::string_view(#name),
inline constexpr std::array kDatasets{LOCKSTEP_DATASETS(LOCKSTEP_NAME)};
#undef LOCKSTEP_NAME

enum class DataPlace { folder, usual, none };

#define LOCKSTEP_PLACE(name, place) DataPlace::place,
inline constexpr std::array kDataPlaces{LOCKSTEP_DATASETS(LOCKSTEP_PLACE)};
#undef LOCKSTEP_PLACE

// The action when a sample can not be read.
enum class OnBadSample { stop, skip };

constexpr std::array<std::string_view, 2> names_of(OnBadSample) {
  return {"stop", "skip"};
}

// The element type of made-up samples.
enum class SampleType { uint8, float32, int64 };

constexpr std::array<std::string_view, 3> names_of(SampleType) {
  return {"uint8", "float32", "int64"};
}

// The element type of a token file that has no header.
enum class TokenType { uint16, uint32 };

constexpr std::array<std::string_view, 2> names_of(TokenType) {
  return {"uint16", "uint32"};
}

struct DataConfig {
  std::string name = "fashion_mnist";
  std::string dir;
  bool shuffle = true;
  std::int64_t train_samples = 0;
  std::int64_t eval_samples = 0;
  double split = 0;
  bool drop_last = false;
  bool weighted_sampling = false;
  std::vector<double> class_weights;
  bool balanced_loss = false;
  OnBadSample on_bad_sample = OnBadSample::stop;
  std::int64_t resize = 0;
  std::vector<double> mean;
  std::vector<double> std;
  std::int64_t sequence = 1024;
  TokenType token_type = TokenType::uint16;
  std::int64_t classes = 0;
  TextData text;
  TableData table;
  std::vector<int> shape;
  SampleType dtype = SampleType::uint8;
  std::int64_t synthetic_samples = 50'000;
  Auto<int> workers;
  Auto<int> prefetch;
  Auto<bool> pin_memory;
};

template <typename Visitor>
void describe_sources(DataConfig& c, Visitor& v) {
  v.field("sequence", c.sequence,
          {.help = "text and tokens: tokens of a sample; csv and parquet: the most "
                   "tokens of a text.",
           .range = between(1, 1 << 24),
           .needs = "data.name=text|tokens|csv|parquet"});
  v.field("token_type", c.token_type,
          {.help = "tokens: the integer type of files without a header.",
           .needs = "data.name=tokens"});
  v.field("classes", c.classes,
          {.help = "synthetic: classes (0: 10). tokens: size of the vocabulary (0: the "
                   "largest token plus one).",
           .range = between(0, 1 << 24),
           .needs = "data.name=synthetic|tokens"});
  describe_text(c.text, v);
  describe_table(c.table, v);
  v.field("shape", c.shape,
          {.help = "synthetic: shape of a sample, for example [3, 224, 224].",
           .range = between(1, 1 << 24),
           .needs = "data.name=synthetic"});
  v.field("dtype", c.dtype,
          {.help = "synthetic: dtype of samples; int64: tokens, with the next one as "
                   "the target.",
           .needs = "data.name=synthetic"});
  v.field("synthetic_samples", c.synthetic_samples,
          {.help = "synthetic: training samples; a tenth as many more for evaluation.",
           .range = count_from(1),
           .needs = "data.name=synthetic"});
}

template <typename Visitor>
void describe_choice(DataConfig& c, Visitor& v) {
  v.field("train_samples", c.train_samples,
          {.help = "Train on the first n samples (of image_folder, text, csv, parquet, "
                   "arrays and webdataset: on n at even distances); 0: all.",
           .range = count_from(0),
           .unit = Unit::samples});
  v.field("eval_samples", c.eval_samples,
          {.help = "Evaluate on the first n samples; 0: all.",
           .range = count_from(0),
           .unit = Unit::samples,
           .needs = "train.overfit_batches=0"});
  v.field("split", c.split,
          {.help = "Validation split: hold out this fraction of the training samples, "
                   "always the same ones; 0: evaluate on the data set's test samples.",
           .range = from_to_below(0, 1)});
  v.field("drop_last", c.drop_last,
          {.help = "Drop the last incomplete batch of an epoch."});
  v.field("weighted_sampling", c.weighted_sampling,
          {.help = "Weighted sampling: classes are drawn equally often, whatever their "
                   "sizes."});
  v.field("class_weights", c.class_weights,
          {.help = "Weight of each class in the training loss, as PyTorch's "
                   "CrossEntropyLoss(weight); empty: 1.",
           .range = at_least(0)});
  v.field("balanced_loss", c.balanced_loss,
          {.help = "Balanced class weights: samples / (classes * samples of the "
                   "class), as scikit-learn's."});
  v.field(
      "on_bad_sample", c.on_bad_sample,
      {.help =
           "When a sample cannot be read: stop, or skip (another one replaces it)."});
}

template <typename Visitor>
void describe(DataConfig& c, Visitor& v) {
  v.field("name", c.name, {.help = "The data set.", .choices = kDatasets});
  v.field("dir", c.dir,
          {.help = "Directory of its files; empty: where its package installs them.",
           .needs = "data.name!=synthetic",
           .is_local = true});
  v.field("shuffle", c.shuffle,
          {.help = "Shuffle the samples in each epoch, by the seed."});
  describe_choice(c, v);
  v.field(
      "resize", c.resize,
      {.help = "Resize images to n x n pixels; 0: off.", .range = between(0, 16384)});
  v.field("mean", c.mean,
          {.help = "Normalization: mean of pixels scaled to 0 ... 1, one number or one "
                   "for each channel; empty: the data set's."});
  v.field("std", c.std,
          {.help = "Normalization: standard deviation of these pixels.",
           .range = above(0)});
  describe_sources(c, v);
  v.field(
      "workers", c.workers,
      {.help =
           "Loader threads of a rank, which prepare batches while the model computes.",
       .range = between(1, 64),
       .unit = Unit::threads,
       .affects = Affects::speed});
  v.field("prefetch", c.prefetch,
          {.help = "Prefetch: batches that are kept ready ahead of the step.",
           .range = between(1, 1024),
           .unit = Unit::batches,
           .affects = Affects::speed});
  v.field("pin_memory", c.pin_memory,
          {.help = "Pinned memory: batches are copied to the GPU while it computes.",
           .affects = Affects::speed});
}

}  // namespace lockstep::config
