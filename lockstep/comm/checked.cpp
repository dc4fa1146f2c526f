#include "lockstep/comm/checked.h"

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/comm/detail/difference.h"

namespace lockstep::comm {
namespace {

// The message between ranks: two texts, cut to fit, each ended by a zero.
constexpr std::int64_t kTextBytes = 256;
constexpr std::int64_t kRecordBytes = 2 * kTextBytes;

void put(char* place, const std::string& text) {
  const auto length = std::min<std::size_t>(text.size(), kTextBytes - 1);
  std::memcpy(place, text.data(), length);
}

std::string take(const char* place) {
  return {place, ::strnlen(place, kTextBytes)};
}

class Checked : public Communicator {
 public:
  Checked(std::unique_ptr<Communicator> inner, std::unique_ptr<Communicator> side)
      : inner_(std::move(inner)), side_(std::move(side)) {}

  int rank() const noexcept override { return inner_->rank(); }
  int size() const noexcept override { return inner_->size(); }
  std::string_view backend() const noexcept override { return inner_->backend(); }
  // The comparison passes through the host.
  Traits traits() const noexcept override {
    auto traits = inner_->traits();
    traits.can_be_captured = false;
    return traits;
  }
  torch::Device device() const override { return inner_->device(); }

  Pending start(const Call& call) override {
    // Only two ranks take part in these.
    if (call.kind != Kind::send && call.kind != Kind::recv) compare(call);
    return inner_->start(call);
  }

  torch::Tensor empty_buffer(std::int64_t num_elements, torch::Dtype dtype) override {
    return inner_->empty_buffer(num_elements, dtype);
  }

  std::unique_ptr<Communicator> split(int color, int key) override {
    auto inner = inner_->split(color, key);
    return std::make_unique<Checked>(std::move(inner), side_->split(color, key));
  }

  void abort() noexcept override {
    inner_->abort();
    side_->abort();
  }

 private:
  void compare(const Call& call) {
    const auto mine = torch::zeros({kRecordBytes}, torch::kUInt8);
    auto* record = reinterpret_cast<char*>(mine.mutable_data_ptr<std::uint8_t>());
    put(record, detail::signature(call));
    put(record + kTextBytes, str(call.site.file, ":", call.site.line));
    const auto all = torch::empty({size() * kRecordBytes}, torch::kUInt8);
    side_->all_gather(all, mine, call.site).wait();
    const auto* records =
        reinterpret_cast<const char*>(all.const_data_ptr<std::uint8_t>());
    std::vector<detail::Asked> asked;
    for (int r = 0; r < size(); ++r) {
      const auto* one = records + r * kRecordBytes;
      asked.push_back({take(one), take(one + kTextBytes)});
    }
    const auto difference = detail::first_difference(asked);
    if (!difference.empty()) throw Error(Fault::config, difference);
  }

  std::unique_ptr<Communicator> inner_;
  std::unique_ptr<Communicator> side_;
};

}  // namespace

std::unique_ptr<Communicator> make_checked(std::unique_ptr<Communicator> inner,
                                           std::unique_ptr<Communicator> side) {
  return std::make_unique<Checked>(std::move(inner), std::move(side));
}

}  // namespace lockstep::comm
