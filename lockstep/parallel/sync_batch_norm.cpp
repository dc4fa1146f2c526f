#include "lockstep/parallel/sync_batch_norm.h"

#include <algorithm>
#include <random>

#include <unistd.h>

#include <torch/library.h>

#include "lockstep/base/error.h"
#include "lockstep/parallel/detail/sync_batch_norm_function.h"

namespace lockstep::parallel {
namespace {

using torch::Tensor;

// A key that LibTorch never sets: operations look at it only where it is included, in a
// scope. It is above autograd and autocast, so that a whole BatchNorm is seen and not
// the parts that it is made of.
constexpr auto kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;
// The key of a scope's ranks. Autograd carries it to the threads that it uses.
constexpr auto kInfo = c10::DebugInfoKind::TEST_INFO;

Tensor or_none(const std::optional<Tensor>& tensor) {
  return tensor.value_or(Tensor());
}

// Returns the ranks of the innermost scope; none where the key came without one.
std::shared_ptr<detail::SyncedRanks> ranks_of_scope() {
  auto* ranks =
      dynamic_cast<detail::SyncedRanks*>(c10::ThreadLocalDebugInfo::get(kInfo));
  return ranks != nullptr ? ranks->shared_from_this() : nullptr;
}

// In eval mode a layer without running statistics is called as in training.
struct LayerMode {
  bool training = false;
  bool has_running = false;
};
bool is_synced(const detail::SyncedRanks* ranks, const Tensor& input,
               const LayerMode& mode) {
  return ranks != nullptr && ranks->size() > 1 && mode.training && input.dim() >= 2 &&
         input.size(1) > 0 && (mode.has_running || ranks->is_training());
}

Tensor batch_norm(const Tensor& input, const std::optional<Tensor>& weight,
                  const std::optional<Tensor>& bias,
                  const std::optional<Tensor>& running_mean,
                  const std::optional<Tensor>& running_var, bool training,
                  double momentum, double eps, bool cudnn_enabled) {
  const c10::impl::ExcludeDispatchKeyGuard beneath(kKey);
  auto ranks = ranks_of_scope();
  const detail::Running running{or_none(running_mean), or_none(running_var), momentum};
  if (!is_synced(ranks.get(), input, {training, running.mean.defined()})) {
    return at::batch_norm(input, weight, bias, running_mean, running_var, training,
                          momentum, eps, cudnn_enabled);
  }
  return detail::synced_batch_norm(input, {or_none(weight), or_none(bias)},
                                   {{running, eps}, std::move(ranks)});
}

// LibTorch makes it of batch_norm, but over the values of one sample.
Tensor instance_norm(const Tensor& input, const std::optional<Tensor>& weight,
                     const std::optional<Tensor>& bias,
                     const std::optional<Tensor>& running_mean,
                     const std::optional<Tensor>& running_var, bool use_input_stats,
                     double momentum, double eps, bool cudnn_enabled) {
  const c10::impl::ExcludeDispatchKeyGuard beneath(kKey);
  return at::instance_norm(input, weight, bias, running_mean, running_var,
                           use_input_stats, momentum, eps, cudnn_enabled);
}

// Ranks of one process on one GPU wait for each other in autograd's one thread for it.
void refuse_shared_gpu(comm::Communicator& data) {
  if (data.size() == 1 || !data.device().is_cuda()) return;
  // A process is its id and a number by chance, since ids are those of a machine.
  static const auto chance = static_cast<std::int64_t>(std::random_device()());
  const auto mine = torch::tensor({chance, static_cast<std::int64_t>(::getpid()),
                                   static_cast<std::int64_t>(data.device().index())})
                        .to(data.device());
  const auto all = torch::empty({3 * data.size()}, mine.options());
  data.all_gather(all, mine).wait();
  const auto host = all.cpu().view({-1, 3});
  for (int a = 0; a < data.size(); ++a) {
    for (int b = a + 1; b < data.size(); ++b) {
      if (!torch::equal(host[a], host[b])) continue;
      throw Error(Fault::config, "sync_batch_norm: ranks ", a, " and ", b,
                  " are threads that share the GPU ", host[a][2].item<std::int64_t>(),
                  ", where autograd has one thread for both; give each a GPU, or a "
                  "process");
    }
  }
}

bool is_batch_norm(const torch::nn::Module& module) {
  return dynamic_cast<const torch::nn::BatchNorm1dImpl*>(&module) != nullptr ||
         dynamic_cast<const torch::nn::BatchNorm2dImpl*>(&module) != nullptr ||
         dynamic_cast<const torch::nn::BatchNorm3dImpl*>(&module) != nullptr;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, library) {
  library.impl("batch_norm", batch_norm);
  library.impl("instance_norm", instance_norm);
}

// Every other operation is dispatched as if the key were not there.
TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(torch::CppFunction::makeFallthrough());
}

bool has_batch_norm(const torch::nn::Module& module) {
  if (is_batch_norm(module)) return true;
  const auto children = module.children();
  return std::any_of(children.begin(), children.end(),
                     [](const auto& child) { return has_batch_norm(*child); });
}

SyncBatchNorm::SyncBatchNorm(const torch::nn::Module& module,
                             comm::Communicator& data) {
  refuse_shared_gpu(data);
  ranks_ = std::make_shared<detail::SyncedRanks>(module, data);
}

SyncBatchNorm::~SyncBatchNorm() = default;

SyncBatchNorm::Scope::Scope(const SyncBatchNorm& sync)
    : ranks_(kInfo, sync.ranks_), key_(kKey) {}

}  // namespace lockstep::parallel
