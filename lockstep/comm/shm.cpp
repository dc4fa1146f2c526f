#include "lockstep/comm/shm.h"

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/comm/detail/backends.h"
#include "lockstep/comm/detail/reduce.h"
#include "lockstep/comm/detail/shm_buffers.h"
#include "lockstep/comm/detail/shm_engine.h"

namespace lockstep::comm {
namespace {

using detail::Engine;
using detail::Operation;

class ShmPending : public Pending::Impl {
 public:
  ShmPending(std::shared_ptr<Engine> engine, std::shared_ptr<Operation> operation)
      : engine_(std::move(engine)), operation_(std::move(operation)) {}

  void wait() override { engine_->wait(*operation_); }
  bool done() override { return engine_->is_done(*operation_); }

 private:
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<Operation> operation_;
};

class ShmCommunicator : public Communicator {
 public:
  ShmCommunicator(const ShmOptions& options, const Tell& tell)
      : options_(options), engine_(std::make_shared<Engine>(options, tell)) {}

  int rank() const noexcept override { return options_.rank; }
  int size() const noexcept override { return options_.size; }
  std::string_view backend() const noexcept override { return "shm"; }
  Traits traits() const noexcept override {
    return {.sums_in_rank_order = true, .shares_memory = true};
  }
  torch::Device device() const override { return torch::kCPU; }

  torch::Tensor empty_buffer(std::int64_t num_elements, torch::Dtype dtype) override {
    const auto options = torch::dtype(dtype);
    const auto num_bytes =
        static_cast<std::size_t>(num_elements) * c10::elementSize(dtype);
    if (num_bytes == 0) return torch::empty({num_elements}, options);
    auto buffer = buffers_.make(*this, engine_->board(), num_bytes);
    if (!buffer) return torch::empty({num_elements}, options);
    auto* data = buffer->data(rank());
    return torch::from_blob(
        data, {num_elements}, [kept = std::move(buffer)](void*) {}, options);
  }

  Pending start(const Call& call) override {
    const bool reduces =
        call.kind == Kind::all_reduce || call.kind == Kind::reduce_scatter;
    const auto dtype = call.out[0].scalar_type();
    if (reduces && !detail::can_reduce(dtype)) {
      throw Error(Fault::internal, "comm: ", describe(call), " at ", call.site.file,
                  ":", call.site.line, ": shm cannot reduce ", c10::toString(dtype));
    }
    const auto* whole = detail::whole_of(call, rank());
    auto operation =
        engine_->start(call, whole ? buffers_.find(*whole, rank()) : std::nullopt);
    return Pending(std::make_unique<ShmPending>(engine_, std::move(operation)));
  }

  std::unique_ptr<Communicator> split(int color, int key) override;

  void abort() noexcept override { engine_->abort(); }

 private:
  std::string text_of(int of, const std::string& own);

  ShmOptions options_;
  std::shared_ptr<Engine> engine_;
  detail::Buffers buffers_;
};

// Every rank gives a short text; all get the one of rank `of`.
std::string ShmCommunicator::text_of(int of, const std::string& own) {
  constexpr std::int64_t kTextBytes = 64;
  LOCKSTEP_CHECK(own.size() < kTextBytes, own);
  const auto mine = torch::zeros({kTextBytes}, torch::kUInt8);
  std::memcpy(mine.mutable_data_ptr(), own.data(), own.size());
  const auto all = torch::empty({kTextBytes * size()}, torch::kUInt8);
  all_gather(all, mine).wait();
  return static_cast<const char*>(all.const_data_ptr()) + of * kTextBytes;
}

// Each part meets through the whole communicator.
std::unique_ptr<Communicator> ShmCommunicator::split(int color, int key) {
  const auto mine = torch::tensor({color, key}, torch::kInt32);
  const auto all = torch::empty({2L * size()}, torch::kInt32);
  all_gather(all, mine).wait();
  const auto* word = all.const_data_ptr<std::int32_t>();
  std::vector<std::pair<int, int>> members;  // key, rank
  for (int r = 0; r < size(); ++r) {
    if (word[2 * r] == color) members.emplace_back(word[2 * r + 1], r);
  }
  std::sort(members.begin(), members.end());
  const auto self = std::find(members.begin(), members.end(), std::pair(key, rank()));
  auto options = options_;
  options.rank = static_cast<int>(self - members.begin());
  options.size = static_cast<int>(members.size());
  const int first = members[0].second;
  return make_shm(options,
                  [&](const std::string& text) { return text_of(first, text); });
}

}  // namespace

std::unique_ptr<Communicator> make_shm(const ShmOptions& options, const Tell& tell) {
  constexpr int kMostRanks = 512;  // a chunk has a piece for every rank
  LOCKSTEP_CHECK(options.size <= kMostRanks, options.size);
  return std::make_unique<ShmCommunicator>(options, tell);
}

namespace detail {

Backend shm_backend() {
  return {.name = config::CommBackend::shm,
          .or_gloo = config::CommBackend::shm_or_gloo,
          .on_host = true,
          .available =
              [](const BackendSite& site) {
                return std::string(
                    site.one_machine ? "" : "the ranks are on several machines");
              },
          .make =
              [](const BackendSite& site) {
                return make_shm({.rank = site.group.rank,
                                 .size = site.group.size,
                                 .timeout = site.group.timeout},
                                site.tell);
              }};
}

}  // namespace detail

}  // namespace lockstep::comm
