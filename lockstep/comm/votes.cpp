#include "lockstep/comm/votes.h"

#include <bit>

#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

constexpr std::int64_t kWords = 2 + static_cast<std::int64_t>(kMostWeights);

class CommunicatorVotes : public Votes {
 public:
  explicit CommunicatorVotes(std::unique_ptr<Communicator> control)
      : control_(std::move(control)),
        mine_(torch::zeros({kWords}, torch::kInt64)),
        all_(torch::zeros({kWords * control_->size()}, torch::kInt64)),
        ballots_(static_cast<std::size_t>(control_->size())) {}

  void cast(const Ballot& ballot) override {
    auto* word = mine_.mutable_data_ptr<std::int64_t>();
    word[0] = static_cast<std::int64_t>(ballot.flags);
    word[1] = ballot.value;
    for (std::size_t i = 0; i < kMostWeights; ++i) {
      word[2 + i] = std::bit_cast<std::int64_t>(ballot.weights[i]);
    }
    pending_ = control_->all_gather(all_, mine_);
  }

  const std::vector<Ballot>& count() override {
    pending_.wait();
    const auto* word = all_.const_data_ptr<std::int64_t>();
    for (auto& ballot : ballots_) {
      ballot = {static_cast<std::uint64_t>(word[0]), word[1]};
      for (std::size_t i = 0; i < kMostWeights; ++i) {
        ballot.weights[i] = std::bit_cast<double>(word[2 + i]);
      }
      word += kWords;
    }
    return ballots_;
  }

 private:
  std::unique_ptr<Communicator> control_;
  torch::Tensor mine_, all_;
  Pending pending_;
  std::vector<Ballot> ballots_;
};

class OwnVotes : public Votes {
 public:
  void cast(const Ballot& ballot) override { ballots_[0] = ballot; }
  const std::vector<Ballot>& count() override { return ballots_; }

 private:
  std::vector<Ballot> ballots_{1};
};

}  // namespace

Flags Votes::any(const std::vector<Ballot>& ballots) {
  Flags flags = 0;
  for (const auto& ballot : ballots) flags |= ballot.flags;
  return flags;
}

std::optional<Weights> Votes::sum_of_weights(const std::vector<Ballot>& ballots) {
  Weights sum{};
  for (const auto& ballot : ballots) {
    if ((ballot.flags & kWeighed) == 0) return std::nullopt;
    for (std::size_t i = 0; i < kMostWeights; ++i) sum[i] += ballot.weights[i];
  }
  return sum;
}

std::unique_ptr<Votes> make_own_votes() {
  return std::make_unique<OwnVotes>();
}

std::unique_ptr<Votes> make_votes(std::unique_ptr<Communicator> control) {
  return std::make_unique<CommunicatorVotes>(std::move(control));
}

}  // namespace lockstep::comm
