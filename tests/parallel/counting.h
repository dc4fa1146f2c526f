#pragma once

#include <memory>

#include "lockstep/comm/communicator.h"

namespace lockstep::test {

// Counts what it passes on.
class CountingCommunicator : public comm::Communicator {
 public:
  CountingCommunicator(comm::Communicator& to, std::shared_ptr<int> count)
      : to_(&to), count_(std::move(count)) {}
  explicit CountingCommunicator(std::unique_ptr<comm::Communicator> part,
                                std::shared_ptr<int> count)
      : part_(std::move(part)), to_(part_.get()), count_(std::move(count)) {}

  int rank() const noexcept override { return to_->rank(); }
  int size() const noexcept override { return to_->size(); }
  std::string_view backend() const noexcept override { return to_->backend(); }
  comm::Traits traits() const noexcept override { return to_->traits(); }
  torch::Device device() const override { return to_->device(); }
  std::unique_ptr<comm::Communicator> split(int color, int key) override {
    return std::make_unique<CountingCommunicator>(to_->split(color, key), count_);
  }
  void abort() noexcept override { to_->abort(); }
  comm::Pending start(const comm::Call& call) override {
    ++*count_;
    return to_->start(call);
  }

 private:
  std::unique_ptr<comm::Communicator> part_;
  comm::Communicator* to_;
  std::shared_ptr<int> count_;
};

}  // namespace lockstep::test
