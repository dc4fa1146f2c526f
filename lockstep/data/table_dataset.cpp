#include "lockstep/data/detail/table_dataset.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/detail/image_reader.h"
#include "lockstep/data/detail/pool.h"
#include "lockstep/data/detail/table.h"

namespace lockstep::data::detail {
namespace {

using config::ColumnType;

class TableDataset : public Dataset {
 public:
  TableDataset(Table table, TableForm form, const config::DataConfig& config)
      : table_(std::move(table)),
        form_(std::move(form)),
        num_stored_(form_.roles.input.size() - (form_.single ? 1U : 0U)) {
    describe_input(config);
    const auto& target = form_.roles.target;
    if (form_.has_classes) {
      spec_.class_names = target[0].categories;
      spec_.num_classes = spec_.class_names.empty()
                              ? static_cast<std::int64_t>(target[0].most) + 1
                              : static_cast<std::int64_t>(spec_.class_names.size());
    } else {
      spec_.target_dtype = torch::kFloat32;
      if (target.size() > 1) {
        spec_.target_shape = {static_cast<std::int64_t>(target.size())};
      }
    }
    if (form_.single && form_.width > 0) {
      spec_.fields.push_back({.name = "columns", .shape = {form_.width}});
    }
    if (!table_.weights.empty()) spec_.fields.push_back({.name = "target_weight"});
  }

  std::int64_t size() const noexcept override {
    return static_cast<std::int64_t>(table_.rows);
  }
  const SampleSpec& spec() const noexcept override { return spec_; }

  std::int64_t length_of(std::int64_t index) const override {
    if (table_.texts.empty()) return Dataset::length_of(index);
    return static_cast<std::int64_t>(
        table_.texts[static_cast<std::size_t>(index)].size());
  }

  void read_sample(const Visit& visit, const SampleBuffer& room) const override {
    const auto row = static_cast<std::size_t>(visit.index);
    std::size_t field = 0;
    switch (form_.input_type()) {
      case ColumnType::image:
        read_image(row, room);
        break;
      case ColumnType::text:
        copy(table_.texts[row], 0, room.input);
        room.lengths[kInput] = static_cast<std::int64_t>(table_.texts[row].size());
        break;
      default:
        write_numbers(row, room.input);
    }
    if (form_.single && form_.width > 0) write_numbers(row, room.fields[field++]);
    if (form_.has_classes) {
      copy_row(table_.classes, row, room.target_bytes);
    } else {
      copy_row(table_.targets, row, room.target_bytes);
    }
    if (!table_.weights.empty()) copy_row(table_.weights, row, room.fields[field]);
  }

 private:
  void describe_input(const config::DataConfig& config) {
    spec_.dtype = torch::kFloat32;
    spec_.shape = {form_.width};
    if (form_.input_type() == ColumnType::image) {
      shape_ = shape_for(config.resize);
      spec_.dtype = torch::kUInt8;
      spec_.shape = {3, shape_.height, shape_.width};
      spec_.channels = imagenet_colors();
    } else if (form_.input_type() == ColumnType::text) {
      spec_.dtype = torch::kInt64;
      spec_.shape = {config.sequence};
      spec_.varies = true;
    }
  }

  ImageShape shape_for(std::int64_t side) const {
    const auto& first = table_.images[0];
    const auto reader = readers_.take();
    const auto file = side > 0 ? Bytes{} : reader->load(first);
    try {
      return image_shape(*reader, file, side);
    } catch (const Error& error) {
      throw Error(Fault::io, "data: the first image, '", first, "': ", error.what());
    }
  }

  void read_image(std::size_t row, const SampleBuffer& room) const {
    const auto& path = table_.images[row];
    const auto reader = readers_.take();
    const auto file = reader->load(path);
    try {
      reader->read(file, shape_, reinterpret_cast<std::uint8_t*>(room.input.data()));
    } catch (const Error& error) {
      throw Error(Fault::io, "'", path, "': ", error.what());
    }
  }

  // Of a category there is a 1 in its place among zeros. Kept like this, names of which
  // every row has another would take the square of the rows.
  void write_numbers(std::size_t row, std::span<std::byte> to) const {
    auto* out = reinterpret_cast<float*>(to.data());
    std::fill_n(out, form_.width, 0.0F);
    const auto* from = table_.numbers.data() + row * num_stored_;
    for (const auto& column : form_.roles.input) {
      if (column.type == ColumnType::category) {
        out[static_cast<std::int64_t>(*from++)] = 1;
      } else if (column.type == ColumnType::number) {
        *out = *from++;
      } else {
        continue;
      }
      out += column.width();
    }
  }

  // Copies values from `first` on: as many as there are, at most those that fit.
  template <typename T>
  static void copy(const std::vector<T>& from, std::size_t first,
                   std::span<std::byte> to) {
    const auto bytes = std::min(to.size(), (from.size() - first) * sizeof(T));
    if (bytes > 0) std::memcpy(to.data(), from.data() + first, bytes);
  }

  template <typename T>
  static void copy_row(const std::vector<T>& from, std::size_t row,
                       std::span<std::byte> to) {
    copy(from, row * (to.size() / sizeof(T)), to);
  }

  mutable Pool<ImageReader> readers_;
  Table table_;
  TableForm form_;
  std::size_t num_stored_;  // of table_.numbers, of a row
  ImageShape shape_;
  SampleSpec spec_;
};

}  // namespace

Opened open_table(const TableFiles& files, const config::DataConfig& config) {
  auto form = form_of(*files.train, config);
  auto table = read_table(files.eval ? *files.eval : *files.train, form, config);
  return std::make_unique<TableDataset>(std::move(table), std::move(form), config);
}

}  // namespace lockstep::data::detail
