#include "lockstep/data/detail/filler.h"

#include <algorithm>

#include <fmt/format.h>

#include "lockstep/base/log.h"
#include "lockstep/data/detail/numbers.h"

namespace lockstep::data::detail {
namespace {

constexpr std::uint64_t kMixPurpose = 0x6D6978;   // chance of its own: "mix"
constexpr std::uint64_t kSwapPurpose = 0x626164;  // "bad"

// This many bad samples in a row are no accident.
constexpr int kMostReplacements = 100;
constexpr std::size_t kMostNamed = 10;

void check_length(const FieldSpec& spec, std::int64_t length) {
  if (length >= 0 && length <= spec.shape[0]) return;
  throw Error(Fault::io, "its '", spec.name, "' has the length ", length,
              ", the longest of the data set is ", spec.shape[0]);
}

void check_mixing(const SampleSpec& spec, const Mixing& mixing) {
  if (!mixing.any()) return;
  const char* knob = mixing.cutmix > 0 ? "augment.cutmix" : "augment.mixup";
  const bool classes = spec.target_shape.empty() && spec.num_classes > 0 &&
                       spec.target_dtype == torch::kInt64 && !spec.ignore_index;
  if (!spec.is_image() || !classes) {
    throw Error(Fault::config, knob, ": samples of shape ",
                c10::IntArrayRef(spec.shape), " with ", spec.num_classes,
                " classes cannot be mixed; it is for images (C, H, W) of uint8 or "
                "float32 with a class each, of which none is ignored; set it to 0");
  }
}

}  // namespace

Filler::Filler(const Dataset& dataset, const Options& options)
    : dataset_(dataset),
      specs_(dataset.spec().tensors()),
      options_(options),
      sampler_(dataset, options.order) {
  check_mixing(dataset.spec(), options.mixing);
}

BatchSlot::Kind Filler::slot_kind() const noexcept {
  const bool mixes = options_.mixing.any();
  return {.soft_targets = mixes, .spare = mixes ? 1 : 0};
}

void Filler::fill(BatchSlot& slot, const EpochRange& range) {
  for (std::int64_t i = 0; i < range.size; ++i) {
    read(sampler_.at(range.epoch, range.first + i), slot.room(i));
  }
  if (options_.mixing.any()) mix_pairs(slot, range);
}

void Filler::read_checked(const Visit& visit, const SampleBuffer& room) const {
  dataset_.read_sample(visit, room);
  const auto bytes_of = [&](std::size_t tensor) -> std::span<const std::byte> {
    return tensor == 0   ? room.input
           : tensor == 1 ? room.target_bytes
                         : room.fields[tensor - 2];
  };
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    if (specs_[i].varies) check_length(specs_[i], room.lengths[i]);
    if (specs_[i].num_classes > 0 && is_whole(specs_[i].dtype)) {
      check_classes(specs_[i], bytes_of(i), room.lengths[i]);
    }
  }
}

void Filler::check_classes(const FieldSpec& spec, std::span<const std::byte> bytes,
                           std::int64_t length) const {
  const auto all = static_cast<std::size_t>(spec.num_elements());
  const auto count = spec.varies ? all / static_cast<std::size_t>(spec.shape[0]) *
                                       static_cast<std::size_t>(length)
                                 : all;
  const auto& ignored = dataset_.spec().ignore_index;
  with_type(spec.dtype, [&]<typename T>(const T*) {
    for (const auto stored : numbers_in<T>(bytes).first(count)) {
      const auto label = static_cast<std::int64_t>(stored);
      if (label >= 0 && label < spec.num_classes) continue;
      if (label == ignored) continue;
      throw Error(Fault::io, "it has the label ", label,
                  spec.name == "target" ? "" : " in '" + spec.name + "'",
                  ", the data set has the classes 0 to ", spec.num_classes - 1,
                  label >= 0 ? ""
                             : str("; if such targets are not to count, set "
                                   "task.ignore_index=",
                                   label));
    }
  });
}

void Filler::read(const Visit& visit, const SampleBuffer& room) {
  auto wanted = visit;
  for (int i = 0; i < kMostReplacements; ++i) {
    try {
      return read_checked(wanted, room);
    } catch (const Error& error) {
      if (error.fault() != Fault::io) throw;
      if (!options_.skip_bad) {
        throw Error(Fault::io, "data: sample ", wanted.index, ": ", error.what(),
                    "; repair it, or set data.on_bad_sample=skip to skip it");
      }
      note_skipped(wanted.index, error);
    }
    // The choice depends on the sample, not on the thread: every rank takes the same
    // one.
    Random random(
        {.index = 0, .seed = visit.seed, .epoch = visit.epoch, .draw = visit.draw},
        kSwapPurpose + static_cast<std::uint64_t>(i));
    wanted.index = random.below(dataset_.size());
  }
  throw Error(Fault::io, "data: sample ", visit.index, " and ", kMostReplacements - 1,
              " that were tried in its place are bad; check the data set "
              "(data.on_bad_sample=stop names the first)");
}

void Filler::note_skipped(std::int64_t index, const Error& error) {
  num_skipped_ += 1;
  const std::lock_guard lock(mutex_);
  if (known_bad_.size() > kMostNamed || !known_bad_.insert(index).second) return;
  if (known_bad_.size() > kMostNamed) {
    log::warning("data", fmt::format("more than {} samples are bad; they are replaced, "
                                     "and not named from here on",
                                     kMostNamed));
    return;
  }
  log::warning("data", fmt::format("sample {} is skipped, another takes its place: {}",
                                   index, error.what()));
}

// Places 2k and 2k + 1 of an epoch are a pair on any rank: where a share begins or ends
// inside of one, the other half is read as well.
void Filler::mix_pairs(BatchSlot& slot, const EpochRange& range) {
  const auto [epoch, first, size] = range;
  const auto& shape = dataset_.spec().shape;
  const auto spare = slot.capacity();
  for (std::int64_t i = 0; i < size; ++i) {
    const auto place = first + i;
    const auto partner = place ^ 1;
    if (partner < place && partner >= first) continue;  // done with its partner
    auto other = i + 1;
    Blend blend;
    if (partner < sampler_.size()) {
      const auto visit = sampler_.at(epoch, place);
      Random random({.seed = visit.seed, .epoch = epoch, .draw = place / 2},
                    kMixPurpose);
      blend =
          draw_blend(random, options_.mixing, {.height = shape[1], .width = shape[2]});
      if (partner < place || other == size) {
        other = spare;
        read(sampler_.at(epoch, partner), slot.room(spare));
      }
    } else {
      other = i;  // the last of an odd epoch stays as it is
    }
    mix_rows(slot, {i, other}, blend);
  }
}

void Filler::mix_rows(BatchSlot& slot, const RowPair& rows, const Blend& blend) const {
  const auto a = rows.a, b = rows.b;
  const auto& spec = dataset_.spec();
  const auto write_target = [&](std::int64_t row, std::int64_t other) {
    const auto soft = slot.soft_target(row);
    std::fill(soft.begin(), soft.end(), 0.0F);
    soft[static_cast<std::size_t>(slot.room(row).target[0])] += blend.own;
    soft[static_cast<std::size_t>(slot.room(other).target[0])] += 1 - blend.own;
  };
  write_target(a, b);
  if (a == b) return;
  write_target(b, a);
  const auto mix_as = [&]<typename T>(T*) {
    const auto image = [&](std::int64_t row) {
      return Image<T>{reinterpret_cast<T*>(slot.room(row).input.data()), spec.shape[0],
                      spec.shape[1], spec.shape[2]};
    };
    mix(image(a), image(b), blend);
  };
  if (spec.dtype == torch::kUInt8) {
    mix_as(static_cast<std::uint8_t*>(nullptr));
  } else {
    mix_as(static_cast<float*>(nullptr));
  }
}

}  // namespace lockstep::data::detail
