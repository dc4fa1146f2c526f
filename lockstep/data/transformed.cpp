#include "lockstep/data/transformed.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/detail/pool.h"
#include "lockstep/data/random.h"
#include "lockstep/data/transforms/crop.h"
#include "lockstep/data/transforms/erase.h"
#include "lockstep/data/transforms/resize.h"

namespace lockstep::data {
namespace {

constexpr std::uint64_t kPurpose = 0x617567;  // chance of its own: "aug"

// A byte of 0 ... 255 is a value of 0 ... 1; floats are values already.
Affine affine_of(double mean, double deviation, torch::Dtype dtype) {
  const double unit = dtype == torch::kUInt8 ? 255 : 1;
  return {static_cast<float>(1 / (unit * deviation)),
          static_cast<float>(-mean / deviation)};
}

void normalize(SampleSpec& spec, const Transforms& transforms) {
  const auto& mean = transforms.mean;
  const auto& deviation = transforms.deviation;
  if (mean.empty()) return;
  LOCKSTEP_CHECK(mean.size() == deviation.size());
  const auto channels = static_cast<std::size_t>(spec.shape[0]);
  if (mean.size() != 1 && mean.size() != channels) {
    throw Error(Fault::config, "data.mean: ", mean.size(),
                " values, but the samples have ", channels,
                " channels; write one value, or one for each channel");
  }
  constexpr std::size_t kMost = 16;  // of the kernel
  if (mean.size() > kMost) {
    throw Error(Fault::config, "data.mean: ", mean.size(), " values, at most ", kMost,
                " are possible; write one for all channels");
  }
  spec.channels.clear();
  spec.axis = 0;
  const auto all = affine_of(mean[0], deviation[0], spec.dtype);
  spec.scale = all.scale;
  spec.shift = all.shift;
  for (std::size_t c = 0; mean.size() > 1 && c < mean.size(); ++c) {
    spec.channels.push_back(affine_of(mean[c], deviation[c], spec.dtype));
  }
}

// Returns the knob that asks for an image transform, or null.
const char* wanted(const Transforms& t) {
  if (t.resize > 0) return "data.resize";
  if (t.crop_padding > 0) return "augment.crop_padding";
  if (t.flip > 0) return "augment.flip";
  if (t.cutout > 0) return "augment.cutout";
  if (t.erase > 0) return "augment.erase";
  return t.mean.empty() ? nullptr : "data.mean";
}

struct ResizeScratch {
  std::vector<std::byte> stored, resized;
  Resizer resizer;
};

class Transformed : public Dataset {
 public:
  Transformed(std::unique_ptr<Dataset> dataset, const Transforms& transforms)
      : dataset_(std::move(dataset)),
        transforms_(transforms),
        stored_(dataset_->spec()),
        spec_(stored_) {
    const auto side = transforms.resize;
    if (side > 0) spec_.shape = {stored_.shape[0], side, side};
    resizes_ = spec_.shape != stored_.shape;
    crops_ = transforms.crop_padding > 0;
    normalize(spec_, transforms);
    for (std::int64_t c = 0; c < spec_.shape[0]; ++c) {
      const auto affine = spec_.channels.empty()
                              ? Affine{spec_.scale, spec_.shift}
                              : spec_.channels[static_cast<std::size_t>(c)];
      hidden_.push_back(-affine.shift / affine.scale);
    }
  }

  std::int64_t size() const noexcept override { return dataset_->size(); }
  const SampleSpec& spec() const noexcept override { return spec_; }
  std::int64_t class_of(std::int64_t index) const override {
    return dataset_->class_of(index);
  }

  void read_sample(const Visit& visit, const SampleBuffer& room) const override {
    Random random(visit, kPurpose);
    if (spec_.dtype == torch::kUInt8) {
      read_as<std::uint8_t>(visit, room, random);
    } else {
      read_as<float>(visit, room, random);
    }
  }

 private:
  template <typename T>
  static Image<T> image_in(void* memory, const std::vector<std::int64_t>& shape) {
    return {static_cast<T*>(memory), shape[0], shape[1], shape[2]};
  }

  template <typename T>
  void read_as(const Visit& visit, const SampleBuffer& room, Random& random) const {
    const auto out = image_in<T>(room.input.data(), spec_.shape);
    if (resizes_ || crops_) {
      const auto scratch = scratch_.take();
      const auto in = resized<T>(visit, room, *scratch);
      if (crops_) {
        const auto pad = transforms_.crop_padding;
        const auto down = random.below(2 * pad + 1) - pad;
        const auto right = random.below(2 * pad + 1) - pad;
        crop(Image<const T>{in.data, in.channels, in.height, in.width}, out,
             {.down = down, .right = right});
      }
    } else {
      dataset_->read_sample(visit, room);
    }
    if (transforms_.flip > 0 && random.uniform() < transforms_.flip) flip(out);
    hide(out, random);
  }

  // Returns the image before it is cropped: in the scratch memory, or in the batch.
  template <typename T>
  Image<T> resized(const Visit& visit, const SampleBuffer& room,
                   ResizeScratch& scratch) const {
    scratch.stored.resize(static_cast<std::size_t>(stored_.num_bytes()));
    auto aside = room;
    aside.input = scratch.stored;
    dataset_->read_sample(visit, aside);
    const auto stored = image_in<T>(scratch.stored.data(), stored_.shape);
    if (!resizes_) return stored;
    scratch.resized.resize(static_cast<std::size_t>(spec_.num_bytes()));
    const auto out =
        image_in<T>(crops_ ? scratch.resized.data() : room.input.data(), spec_.shape);
    scratch.resizer.resize(
        Image<const T>{stored.data, stored.channels, stored.height, stored.width}, out);
    return out;
  }

  template <typename T>
  void hide(const Image<T>& image, Random& random) const {
    if (transforms_.cutout > 0) {
      erase(image, cutout_box(random, {image.height, image.width}, transforms_.cutout),
            std::span(hidden_));
    }
    if (transforms_.erase > 0 && random.uniform() < transforms_.erase) {
      const auto box = erasing_box(random, {image.height, image.width});
      if (box) erase(image, *box, std::span(hidden_));
    }
  }

  std::unique_ptr<Dataset> dataset_;
  Transforms transforms_;
  SampleSpec stored_, spec_;
  bool resizes_ = false, crops_ = false;
  std::vector<float> hidden_;  // the value that the model sees as 0, by channel
  mutable detail::Pool<ResizeScratch> scratch_;
};

}  // namespace

std::unique_ptr<Dataset> transformed(std::unique_ptr<Dataset> dataset,
                                     const Transforms& transforms) {
  const char* knob = wanted(transforms);
  if (knob == nullptr) return dataset;
  const auto& spec = dataset->spec();
  if (!spec.is_image()) {
    throw Error(Fault::config, knob, ": the samples have shape ",
                c10::IntArrayRef(spec.shape), " and type ", spec.dtype,
                "; it is for images (C, H, W) of uint8 or float32; leave it at its "
                "default");
  }
  return std::make_unique<Transformed>(std::move(dataset), transforms);
}

}  // namespace lockstep::data
