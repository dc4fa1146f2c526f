// Every task over several ranks: the gradients of a step are those of one process,
// whatever the shares and the micro-batches are.
#include <algorithm>
#include <map>

#include "lockstep/parallel/strategy.h"
#include "lockstep/train/step.h"
#include "tests/comm/ranks.h"
#include "tests/task/cases.h"
#include "tests/train/small_data.h"

namespace lockstep::train {
namespace {

constexpr std::int64_t kFeatures = 6;
// A step in which coefficients are between their first and their final ones.
constexpr std::int64_t kStepOfRamp = 5;

torch::Tensor uniform_values(at::IntArrayRef shape, std::uint64_t seed) {
  auto generator = at::detail::createCPUGenerator(seed);
  return torch::empty(shape).uniform_(-0.5, 0.5, generator);
}

// Outputs of the shapes that a task wants: each a linear map of the input, so that a
// gradient is a sum over all rows.
class LinearOutputs : public models::Model {
 public:
  explicit LinearOutputs(const Named& like) {
    std::uint64_t seed = 1;
    for (const auto& [name, tensor] : like) {
      const auto weight =
          uniform_values({kFeatures, tensor.numel() / tensor.size(0)}, seed++);
      heads_.push_back({name, tensor.sizes().vec(),
                        register_parameter("weight_of_" + name, weight)});
    }
  }
  Named forward_named(const Named& inputs) override {
    const auto& x = inputs.at("input");
    Named outputs;
    for (const auto& head : heads_) {
      auto shape = head.shape;
      shape[0] = x.size(0);
      outputs.set(head.name, x.mm(head.weight).view(shape));
    }
    return outputs;
  }

 private:
  struct Head {
    std::string name;
    std::vector<std::int64_t> shape;
    torch::Tensor weight;
  };
  std::vector<Head> heads_;
};

data::SampleSpec spec_of_case(const task::TaskCase& one) {
  data::SampleSpec spec{.shape = {kFeatures}, .dtype = torch::kFloat32};
  for (const auto& [name, tensor] : one.batch) {
    const auto shape = tensor.sizes().slice(1).vec();
    if (name == "target") {
      spec.target_shape = shape;
      spec.target_dtype = tensor.scalar_type();
    } else {
      spec.fields.push_back(
          {.name = name, .shape = shape, .dtype = tensor.scalar_type()});
    }
  }
  return spec;
}

// The ends of the ranks' shares; the first one begins at 0.
using Shares = std::vector<std::int64_t>;

// How a batch is cut.
struct CutOfBatch {
  Shares ends;
  std::int64_t micro = 1;

  std::string text() const {
    std::string words = str("micro-batches of ", micro, ", shares that end at");
    for (const auto end : ends) words += str(" ", end);
    return words;
  }
};

struct ShareOfRank {
  std::int64_t begin = 0, end = 0, largest = 0;
};

ShareOfRank share_of_rank(const Shares& ends, std::size_t rank) {
  ShareOfRank share{.begin = rank == 0 ? 0 : ends[rank - 1], .end = ends[rank]};
  for (std::size_t r = 0; r < ends.size(); ++r) {
    share.largest = std::max(share.largest, ends[r] - (r == 0 ? 0 : ends[r - 1]));
  }
  return share;
}

data::Batch rows_of_case(const task::TaskCase& one, const ShareOfRank& share) {
  const auto size = share.end - share.begin;
  data::Batch batch{.global_size = task::kRows,
                    .first = share.begin,
                    .size = size,
                    .largest_size = share.largest};
  batch.inputs =
      uniform_values({task::kRows, kFeatures}, 77).narrow(0, share.begin, size);
  batch.targets = torch::zeros({size}, torch::kInt64);  // of a task that has others
  for (const auto& [name, tensor] : one.batch) {
    const auto rows = tensor.narrow(0, share.begin, size);
    if (name == "target") {
      batch.targets = rows;
    } else {
      batch.fields.push_back({name, rows});
    }
  }
  return batch;
}

using GradientsByName = std::map<std::string, torch::Tensor>;

// The gradients of one step, as a rank of the world sees them.
GradientsByName gradients_of_step(const task::TaskCase& one, comm::World& world,
                                  const CutOfBatch& cut) {
  auto config = test::small_config();
  if (world.size() > 1) {
    config.parallel.strategy = config::Strategy::data_parallel;
    config.parallel.ranks = world.size();
  }
  const auto resolved = test::resolved(config);
  const auto model = std::make_shared<LinearOutputs>(one.outputs);
  const auto strategy = parallel::make_strategy(*resolved, *model, world);
  Step step({.model = model,
             .task = one.task,
             .strategy = *strategy,
             .policy = {config::Precision::fp32, torch::kCPU},
             .spec = spec_of_case(one),
             .micro_batch = cut.micro,
             .data = &world.data()});
  task::Tally tally(one.task, torch::kCPU);
  const auto batch = rows_of_case(
      one, share_of_rank(cut.ends, static_cast<std::size_t>(world.rank())));
  strategy->begin_step(step.num_passes(batch));
  step.backward(batch, tally, {.step = kStepOfRamp});
  strategy->finish();
  GradientsByName gradients;
  strategy->visit_gradients(
      [&](const parallel::Parameter& parameter, const torch::Tensor& gradient) {
        gradients[parameter.name] = gradient.clone();
      });
  return gradients;
}

// One for each rank, which are threads.
std::vector<GradientsByName> gradients_of_ranks(const task::TaskCase& one,
                                                const CutOfBatch& cut) {
  const auto ranks = cut.ends.size();
  auto worlds = comm::join_threads(
      std::vector<torch::Device>(ranks, torch::Device(torch::kCPU)), {});
  std::vector<GradientsByName> gradients(ranks);
  const auto errors = test::as_threads(static_cast<int>(ranks), [&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    gradients[at] = gradients_of_step(one, worlds[at], cut);
  });
  for (const auto& error : errors) EXPECT_FALSE(error.has_value()) << error->what();
  return gradients;
}

// The norm is the largest difference of any element. The gradients are of order 1,
// where float32 is exact to 1e-7.
void expect_near_gradients(const GradientsByName& some, const GradientsByName& expected,
                           const std::string& what) {
  ASSERT_EQ(some.size(), expected.size()) << what;
  for (const auto& [name, gradient] : expected) {
    ASSERT_TRUE(some.contains(name)) << what;
    EXPECT_LT((some.at(name) - gradient).abs().max().item<double>(), 1e-6)
        << what << ", " << name;
  }
}

// A single rank, two and three, of which some have no rows.
std::vector<CutOfBatch> cuts_of_batch() {
  std::vector<CutOfBatch> cuts;
  for (const Shares& ends : std::vector<Shares>{{12},
                                                {5, 12},
                                                {0, 12},
                                                {12, 12},
                                                {3, 8, 12},
                                                {1, 2, 12},
                                                {0, 7, 12},
                                                {4, 4, 12},
                                                {0, 0, 12}}) {
    for (const std::int64_t micro : {std::int64_t{1}, std::int64_t{3}, task::kRows}) {
      cuts.push_back({ends, micro});
    }
  }
  return cuts;
}

TEST(TaskRanks, GradientsAreThoseOfOneProcess) {
  for (const auto& one : task::task_cases()) {
    auto alone = comm::join({}, {});
    const auto expected =
        gradients_of_step(one, alone, {.ends = {task::kRows}, .micro = task::kRows});
    for (const auto& [name, gradient] : expected) {
      const auto largest = gradient.abs().max().item<double>();
      EXPECT_GT(largest, 0.01) << one.name << ", " << name << ": nothing to compare";
      EXPECT_LT(largest, 2) << one.name << ", " << name;
    }
    for (const auto& cut : cuts_of_batch()) {
      const auto what = one.name + ", " + cut.text();
      if (cut.ends.size() == 1) {
        expect_near_gradients(gradients_of_step(one, alone, cut), expected, what);
        continue;
      }
      for (const auto& gradients : gradients_of_ranks(one, cut)) {
        expect_near_gradients(gradients, expected, what);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::train
