#include "lockstep/comm/staged.h"

namespace lockstep::comm {
namespace {

class StagedPending : public Pending::Impl {
 public:
  StagedPending(Pending pending, std::vector<torch::Tensor> host,
                std::vector<torch::Tensor> device)
      : pending_(std::move(pending)),
        host_(std::move(host)),
        device_(std::move(device)) {}

  void wait() override {
    pending_.wait();
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < host_.size(); ++i) device_[i].copy_(host_[i]);
  }

  bool done() override { return pending_.done(); }

 private:
  Pending pending_;
  std::vector<torch::Tensor> host_, device_;
};

class Staged : public Communicator {
 public:
  Staged(std::unique_ptr<Communicator> cpu, const torch::Device& device)
      : cpu_(std::move(cpu)), device_(device) {}

  int rank() const noexcept override { return cpu_->rank(); }
  int size() const noexcept override { return cpu_->size(); }
  std::string_view backend() const noexcept override { return cpu_->backend(); }
  Traits traits() const noexcept override { return cpu_->traits(); }
  torch::Device device() const override { return device_; }

  Pending start(const Call& call) override {
    auto on_host = call;
    for (auto& t : on_host.out) t = t.cpu();
    if (call.in.defined()) on_host.in = call.in.cpu();
    auto pending = cpu_->start(on_host);
    return Pending(
        std::make_unique<StagedPending>(std::move(pending), on_host.out, call.out));
  }

  std::unique_ptr<Communicator> split(int color, int key) override {
    return make_staged(cpu_->split(color, key), device_);
  }

  void abort() noexcept override { cpu_->abort(); }

 private:
  std::unique_ptr<Communicator> cpu_;
  torch::Device device_;
};

}  // namespace

std::unique_ptr<Communicator> make_staged(std::unique_ptr<Communicator> cpu,
                                          const torch::Device& device) {
  return std::make_unique<Staged>(std::move(cpu), device);
}

}  // namespace lockstep::comm
