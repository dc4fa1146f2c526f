// What a reporter writes to events.jsonl while a run goes on.
#include <fmt/format.h>

#include "lockstep/train/report.h"

namespace lockstep::train {

void Reporter::memory(std::int64_t rank, const DeviceMemory& memory) {
  events_->write("memory", {{"rank", rank},
                            {"allocated_bytes", memory.allocated_bytes},
                            {"reserved_bytes", memory.reserved_bytes},
                            {"total_bytes", memory.total_bytes}});
}

void Reporter::straggler(const TrainReport& report) {
  if (!first_) return;
  const auto& late = report.straggler.value();
  events_->write("straggler", {{"step", report.step},
                               {"rank", std::int64_t{late.rank}},
                               {"late_seconds", late.late_seconds},
                               {"steps", report.steps},
                               {"share", late.late_seconds / report.seconds},
                               {"cause", late.cause}});
}

void Reporter::balance(std::int64_t step, std::int64_t after,
                       const std::string& shares) {
  if (!first_) return;
  events_->write("balance",
                 {{"step", step}, {"after_step", after}, {"shares", shares}});
}

void Reporter::out_of_memory(std::int64_t step, int rank, const std::string& remedy) {
  if (!first_) return;
  events_->write("out_of_memory",
                 {{"step", step}, {"rank", std::int64_t{rank}}, {"remedy", remedy}});
}

void Reporter::micro_batch(std::int64_t size, const std::string& how) {
  if (!first_) return;
  events_->write("micro_batch", {{"size", size}, {"how", how}});
}

void Reporter::resumed(std::int64_t step, const std::string& from) {
  if (!first_) return;
  events_->write("resumed", {{"step", step}, {"from", from}});
  if (!show_) return;
  console_.print(fmt::format("going on after step {}, from {}\n", step, from));
}

void Reporter::checkpoint(const CheckpointReport& report) {
  if (!first_) return;
  if (!report.saved) {
    events_->write("checkpoint_failed", {{"step", report.step}, {"why", report.text}});
    return;
  }
  checkpoint_seconds_ = report.seconds;
  events_->write("checkpoint", {{"step", report.step},
                                {"path", report.text},
                                {"bytes", report.bytes},
                                {"held_bytes", report.held_bytes},
                                {"blocked_seconds", report.blocked_seconds},
                                {"seconds", report.seconds}});
}

void Reporter::skipped(std::int64_t step, double loss_scale) {
  if (!first_) return;
  events_->write("skipped", {{"step", step}, {"loss_scale", loss_scale}});
}

}  // namespace lockstep::train
