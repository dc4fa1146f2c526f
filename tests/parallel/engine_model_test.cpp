// The engine and what it works with: a modelled network, a backend's own buffers, the
// order of sums, buffers and dtypes of a model.
#include "lockstep/comm/local.h"
#include "lockstep/comm/modelled.h"
#include "tests/parallel/odd_net.h"

namespace lockstep::test {

using comm::Pending;
using ::testing::HasSubstr;

// The only rank that exists computes, and what it has not used is all that is unused.
TEST(EngineModelled, AStepRunsAtManyRanksOfWhichOneExists) {
  const auto batch = make_batch(8);
  const auto expected = whole_gradients(batch);
  const auto network =
      comm::make_modelled({.ranks = 512, .occupy = [](std::chrono::nanoseconds) {}});
  const auto cpu = comm::make_local({torch::kCPU});
  auto net = make_net();
  Engine engine(*net, {*network, *cpu[0]}, {.layout = {100, 400}});
  for (int step = 0; step < 3; ++step) {
    engine.zero_gradients();
    loss_of(net, batch, 0, 8).backward();
    expect_close(net, expected);
  }
  engine.zero_gradients();
  EXPECT_THAT(
      error_text(Fault::config, [&] { loss_of(net, batch, 0, 8, false).backward(); }),
      HasSubstr("'branch.bias'"));
}

// Remembers the buffer it gave out last.
class BufferWitness : public Communicator {
 public:
  explicit BufferWitness(Communicator& inner) : inner_(inner) {}
  int rank() const noexcept override { return inner_.rank(); }
  int size() const noexcept override { return inner_.size(); }
  std::string_view backend() const noexcept override { return inner_.backend(); }
  comm::Traits traits() const noexcept override { return inner_.traits(); }
  torch::Device device() const override { return inner_.device(); }
  Pending start(const comm::Call& call) override { return inner_.start(call); }
  void abort() noexcept override { inner_.abort(); }
  std::unique_ptr<Communicator> split(int color, int key) override {
    return inner_.split(color, key);
  }
  Tensor empty_buffer(std::int64_t num_elements, torch::Dtype dtype) override {
    last = Communicator::empty_buffer(num_elements, dtype);
    last.fill_(7);  // as if somebody had used it before
    return last;
  }

  Tensor last;

 private:
  Communicator& inner_;
};

TEST(EngineBuffers, GradientsLiveWhereTheBackendReducesThemFastest) {
  const auto batch = make_batch(8);
  with_communicators(Rig::local, 2, [&](Communicator& c) {
    const auto expected = whole_gradients(batch);
    BufferWitness witness(c);
    auto net = make_net();
    Engine engine(*net, {witness, c}, {});
    const auto [begin, end] = even_share(c, 8);
    for (int step = 0; step < 3; ++step) {  // of which the first lays out anew
      EXPECT_TRUE(engine.gradients(0).is_same(witness.last));
      engine.zero_gradients();
      loss_of(net, batch, begin, end).backward();
      expect_close(net, expected);
    }
    const auto& slots = engine.layout()[0].slots;
    for (const auto& slot : slots) {
      EXPECT_EQ(engine.gradients(0)[slot.counter()].item<float>(), 0);
    }
  });
}

TEST(EngineOrder, DeterministicSumsDoNotDependOnBucketsOrBackend) {
  const auto batch = make_batch(13);
  std::vector<Tensor> results;
  for (const auto rig : {Rig::local, Rig::gloo_threads}) {
    for (const std::int64_t bytes : {64L, 1L << 20}) {
      Tensor result;
      with_communicators(rig, 3, [&](Communicator& c) {
        auto net = make_net();
        Engine engine(*net, {c, c}, {.layout = {bytes, bytes}, .deterministic = true});
        const auto [begin, end] = even_share(c, 13);
        loss_of(net, batch, begin, end).backward();
        if (c.rank() != 0) return;
        std::vector<Tensor> flat;
        for (const auto& [name, grad] : gradients_of(net))
          flat.push_back(grad.reshape(-1));
        result = torch::cat(flat);
      });
      results.push_back(result);
    }
  }
  for (const auto& result : results) EXPECT_TRUE(torch::equal(result, results[0]));
}

TEST(EngineModel, BuffersAreRankZeros) {
  with_communicators(Rig::local, 3, [](Communicator& c) {
    torch::nn::BatchNorm1d norm(4);
    norm->running_mean.fill_(c.rank() + 1);
    Engine engine(*norm, {c, c}, {});
    EXPECT_TRUE(norm->running_mean.eq(1).all().item<bool>());
    norm->running_mean.fill_(c.rank() + 5);
    engine.broadcast_buffers();
    EXPECT_TRUE(norm->running_mean.eq(5).all().item<bool>());
  });
}

TEST(EngineModel, DtypesMayBeMixed) {
  const auto x = torch::ones({4, 3});
  with_communicators(Rig::local, 2, [&](Communicator& c) {
    torch::nn::Sequential net(torch::nn::Linear(3, 3), torch::nn::Linear(3, 2));
    net[1]->to(torch::kFloat64);
    Engine engine(*net, {c, c}, {});
    ASSERT_EQ(engine.layout().size(), 2U);
    auto& first = *net[0]->as<torch::nn::Linear>();
    auto& second = *net[1]->as<torch::nn::Linear>();
    for (int step = 0; step < 2; ++step) {
      engine.zero_gradients();
      second.forward(first.forward(x).to(torch::kFloat64)).sum().backward();
      EXPECT_TRUE(second.bias.grad().eq(8).all().item<bool>());
      EXPECT_EQ(first.weight.grad().scalar_type(), torch::kFloat32);
    }
  });
}

}  // namespace lockstep::test
