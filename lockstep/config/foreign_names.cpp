// What users of other tools type, and what it is called here.
#include <algorithm>
#include <array>
#include <utility>

#include "lockstep/base/text.h"
#include "lockstep/config/detail/knobs.h"

namespace lockstep::config::detail {
namespace {

using Row = std::pair<std::string_view, std::string_view>;

// Names of PyTorch, Lightning, Hugging Face's Trainer and DeepSpeed. A name that is
// ours, too, in whatever section, needs no row.
constexpr auto kForeign = std::to_array<Row>({
    {"optimizer", "optim.name"},
    {"optimizer_name", "optim.name"},
    {"learning_rate", "optim.lr"},
    {"lr_rate", "optim.lr"},
    {"max_lr", "optim.lr"},
    {"wd", "optim.weight_decay"},
    {"decay", "optim.weight_decay"},
    {"betas", "optim.beta1"},
    {"epsilon", "optim.eps"},
    {"max_grad_norm", "optim.clip_norm"},
    {"grad_clip", "optim.clip_norm"},
    {"gradient_clip_val", "optim.clip_norm"},
    {"gradient_clipping", "optim.clip_norm"},
    {"clip_grad_norm", "optim.clip_norm"},
    {"batch_size", "batch.global"},
    {"bs", "batch.global"},
    {"train_batch_size", "batch.global"},
    {"global_batch_size", "batch.global"},
    {"per_device_train_batch_size", "batch.per_rank"},
    {"per_gpu_batch_size", "batch.per_rank"},
    {"micro_batch_size", "batch.micro"},
    {"train_micro_batch_size_per_gpu", "batch.micro"},
    {"eval_batch_size", "batch.eval"},
    {"gradient_accumulation_steps", "batch.accumulation"},
    {"accumulate_grad_batches", "batch.accumulation"},
    {"grad_accum", "batch.accumulation"},
    {"num_epochs", "train.epochs"},
    {"max_epochs", "train.epochs"},
    {"num_train_epochs", "train.epochs"},
    {"max_steps", "train.steps"},
    {"max_iters", "train.steps"},
    {"num_steps", "train.steps"},
    {"iterations", "train.steps"},
    {"scheduler", "schedule.name"},
    {"lr_scheduler", "schedule.name"},
    {"lr_scheduler_type", "schedule.name"},
    {"warmup", "schedule.warmup_steps"},
    {"amp", "precision.mode"},
    {"fp16", "precision.mode"},
    {"bf16", "precision.mode"},
    {"mixed_precision", "precision.mode"},
    {"num_workers", "data.workers"},
    {"dataloader_num_workers", "data.workers"},
    {"dataset", "data.name"},
    {"data_dir", "data.dir"},
    {"gradient_checkpointing", "memory.recompute_every"},
    {"activation_checkpointing", "memory.recompute_every"},
    {"gpus", "parallel.ranks"},
    {"num_gpus", "parallel.ranks"},
    {"devices", "parallel.ranks"},
    {"world_size", "parallel.ranks"},
    {"nproc_per_node", "parallel.ranks"},
    {"zero_optimization", "parallel.zero_stage"},
    {"output_dir", "run.dir"},
    {"save_steps", "checkpoint.every"},
    {"eval_steps", "eval.every"},
});

}  // namespace

std::string foreign_hint(const Knobs& knobs, std::string_view name) {
  auto word = text::lower(name);
  std::replace(word.begin(), word.end(), '-', '_');
  for (const auto& [foreign, key] : kForeign) {
    if (word != foreign || knobs.find(key) == nullptr) continue;
    return str("; that is '", key, "' here");
  }
  return "";
}

}  // namespace lockstep::config::detail
