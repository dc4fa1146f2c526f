// The events of a run: each is reported once, and goes to events.jsonl and to the log.
#include <fmt/format.h>

#include "lockstep/base/log.h"
#include "lockstep/base/units.h"
#include "lockstep/train/report.h"

namespace lockstep::train {
namespace {

// A text of several lines, or with what a terminal would obey, on one line.
std::string one_line(std::string_view text) {
  std::string line;
  for (const char byte : text) {
    const bool obeyed = static_cast<unsigned char>(byte) < 0x20 || byte == 0x7F;
    line += byte == '\n' ? "\\n" : obeyed ? " " : std::string(1, byte);
  }
  return line;
}

}  // namespace

void Reporter::memory(std::int64_t rank, const memory::DeviceMemory& memory) {
  events_->write("memory", {{"rank", rank},
                            {"allocated_bytes", memory.allocated_bytes},
                            {"reserved_bytes", memory.reserved_bytes},
                            {"total_bytes", memory.total_bytes}});
}

void Reporter::straggler(const TrainReport& report) {
  if (!first_) return;
  const auto& late = report.straggler.value();
  const double share = late.late_seconds / report.seconds;
  events_->write("straggler", {{"step", report.step},
                               {"rank", std::int64_t{late.rank}},
                               {"late_seconds", late.late_seconds},
                               {"steps", report.steps},
                               {"share", share},
                               {"cause", late.cause}});
  // Each report that says the same would bury the others.
  auto& warned = warned_of_[late.rank];
  if (share < 2 * warned) return;
  warned = share;
  log::warning("train",
               fmt::format("rank {} is a straggler: the others wait {:.0f} ms a step "
                           "({:.0f} % of the time), cause: {}; later ones are in "
                           "events.jsonl unless twice as bad",
                           late.rank,
                           1e3 * late.late_seconds / static_cast<double>(report.steps),
                           100 * share, late.cause));
}

void Reporter::balance(std::int64_t step, std::int64_t after,
                       const std::string& shares) {
  log::info("train",
            fmt::format("shares of the batch from step {} on: {}", after + 1, shares));
  if (!first_) return;
  events_->write("balance",
                 {{"step", step}, {"after_step", after}, {"shares", shares}});
}

void Reporter::out_of_memory(const OutOfMemory& what) {
  const auto& [step, rank, remedy, note] = what;
  if (!first_) return;
  log::warning(
      "train",
      fmt::format("rank {} ran out of memory in step {}: retrying it with {}{}", rank,
                  step, remedy, note));
  events_->write("out_of_memory",
                 {{"step", step}, {"rank", std::int64_t{rank}}, {"remedy", remedy}});
}

void Reporter::micro_batch(std::int64_t size, const std::string& how) {
  log::info("train", "batch.micro: " + how);
  if (!first_) return;
  events_->write("micro_batch", {{"size", size}, {"how", how}});
}

void Reporter::sample(std::int64_t step, const std::string& prompt,
                      const std::string& text) {
  if (!first_) return;
  events_->write("sample", {{"step", step}, {"prompt", prompt}, {"text", text}});
  if (!show_) return;
  console_.print(
      fmt::format("sample step {}  {}|{}\n", step, one_line(prompt), one_line(text)));
}

void Reporter::resumed(std::int64_t step, const std::string& from) {
  if (!first_) return;
  events_->write("resumed", {{"step", step}, {"from", from}});
  if (!show_) return;
  console_.print(fmt::format("resuming from step {}: {}\n", step, from));
}

void Reporter::checkpoint(const CheckpointReport& report) {
  if (report.saved) {
    log::info(
        "checkpoint",
        fmt::format("{} in {:.2f} s, {} of this rank; training waited {:.1f} ms",
                    report.text, report.seconds, units::format_bytes(report.bytes),
                    1e3 * report.blocked_seconds));
  } else if (report.goes_on) {
    log::warning("checkpoint", fmt::format("no checkpoint of step {}: {}; training "
                                           "continues, earlier checkpoints are kept",
                                           report.step, report.text));
  }
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
