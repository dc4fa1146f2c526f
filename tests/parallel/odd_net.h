#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/parallel/engine.h"
#include "tests/comm/ranks.h"

// A network, its data and what its gradients should be, for the engine's tests.
namespace lockstep::test {

using comm::Communicator;
using parallel::Engine;
using parallel::EngineOptions;
using torch::Tensor;

inline constexpr std::int64_t kIn = 6, kOut = 3;

// A network with what real ones have: a tied weight, a frozen one, a branch that may be
// left out, a scalar, an empty parameter, a transposed one.
struct OddNetImpl : torch::nn::Module {
  OddNetImpl() {
    first = register_module("first", torch::nn::Linear(kIn, kIn));
    branch = register_module("branch", torch::nn::Linear(kIn, kIn));
    frozen = register_module("frozen", torch::nn::Linear(kIn, kIn));
    last = register_module("last", torch::nn::Linear(kIn, kOut));
    scale = register_parameter("scale", torch::ones({}));
    empty = register_parameter("empty", torch::zeros({0, 4}));
    turned = register_parameter("turned", torch::randn({kIn, kIn}).mul_(0.1).t());
    tied = register_parameter("tied", first->weight);
    frozen->weight.requires_grad_(false);
  }

  Tensor forward(const Tensor& x, bool with_branch = true) {
    auto h = torch::relu(first->forward(x));
    if (with_branch) h = h + torch::tanh(branch->forward(h));
    h = torch::linear(h, tied) * scale + torch::mm(frozen->forward(h), turned);
    return last->forward(h) + empty.sum();
  }

  torch::nn::Linear first{nullptr}, branch{nullptr}, frozen{nullptr}, last{nullptr};
  Tensor scale, empty, turned, tied;
};
TORCH_MODULE(OddNet);

// The generator is the process's, and ranks may be threads of it. Not manual_seed(): it
// seeds GPUs, too, which a process that is forked afterwards can not use any more.
inline OddNet make_net(int seed = 5) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  auto generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(static_cast<std::uint64_t>(seed));
  return OddNet();
}

struct Batch {
  Tensor x, y;
};

inline Batch make_batch(std::int64_t size) {
  auto generator = at::detail::createCPUGenerator(11);
  return {torch::randn({size, kIn}, generator), torch::randn({size, kOut}, generator)};
}

// The loss of a share: a sum, divided by the size of the whole batch.
inline Tensor loss_of(OddNet& net, const Batch& batch, std::int64_t begin,
                      std::int64_t end, bool with_branch = true) {
  const auto n = end - begin;
  const auto out = net->forward(batch.x.narrow(0, begin, n), with_branch);
  return (out - batch.y.narrow(0, begin, n)).pow(2).sum() /
         static_cast<double>(batch.x.size(0));
}

inline std::vector<std::pair<std::string, Tensor>> gradients_of(OddNet& net) {
  std::vector<std::pair<std::string, Tensor>> list;
  for (const auto& item : net->named_parameters()) {
    if (item.value().requires_grad()) {
      list.emplace_back(item.key(), item.value().grad().cpu().clone());
    }
  }
  return list;
}

// In the ranks, not before they are forked: autograd's threads do not survive that.
inline std::vector<std::pair<std::string, Tensor>> whole_gradients(const Batch& batch) {
  auto net = make_net();
  loss_of(net, batch, 0, batch.x.size(0)).backward();
  return gradients_of(net);
}

inline void expect_close(OddNet& net,
                         const std::vector<std::pair<std::string, Tensor>>& expected,
                         double scale = 1) {
  const auto got = gradients_of(net);
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    // Sums of a few dozen float32 terms in another order.
    EXPECT_TRUE(torch::allclose(got[i].second, expected[i].second * scale, 1e-5, 1e-6))
        << expected[i].first << "\n"
        << got[i].second << "\n"
        << expected[i].second;
  }
}

// What every test does: a net and an engine on each rank.
struct RankRig {
  RankRig(Communicator& c, const EngineOptions& options)
      : net(make_net(5 + c.rank())), engine(*net, {c, c}, options) {}
  OddNet net;
  Engine engine;
};

inline std::pair<std::int64_t, std::int64_t> even_share(const Communicator& c,
                                                        std::int64_t n) {
  return {n * c.rank() / c.size(), n * (c.rank() + 1) / c.size()};
}

inline std::string name_of_ranks(
    const ::testing::TestParamInfo<std::tuple<Rig, int>>& ranks) {
  return str(name_of(std::get<0>(ranks.param)), std::get<1>(ranks.param));
}

// Tests with one communicator and a number of ranks.
class RanksTest : public ::testing::TestWithParam<std::tuple<Rig, int>> {
 protected:
  void on_ranks(const std::function<void(Communicator&)>& body) const {
    with_communicators(std::get<0>(GetParam()), std::get<1>(GetParam()), body);
  }
};

// These sum in the order of the ranks, whatever they sum: the bits can be compared.
inline auto ranks_that_sum_in_order() {
  return ::testing::Values(
      std::tuple(Rig::local, 1), std::tuple(Rig::local, 2), std::tuple(Rig::local, 3),
      std::tuple(Rig::gloo_processes, 2), std::tuple(Rig::shm_processes, 2),
      std::tuple(Rig::shm_processes, 3), std::tuple(Rig::shm_processes, 4));
}

}  // namespace lockstep::test
