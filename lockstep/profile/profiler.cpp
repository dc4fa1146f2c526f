#include "lockstep/profile/profiler.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <sys/resource.h>

#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>

#include "lockstep/base/log.h"
#include "lockstep/memory/device_memory.h"

namespace lockstep::profile {
namespace {

using monitor::Span;

constexpr int kColumns = 6;  // of a span on its way to rank 0

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

torch::Tensor packed(const std::vector<Span>& spans) {
  auto rows = torch::empty({static_cast<std::int64_t>(spans.size()) * kColumns},
                           torch::kFloat64);
  auto* out = rows.mutable_data_ptr<double>();
  for (const auto& span : spans) {
    *out++ = static_cast<double>(span.kind);
    *out++ = static_cast<double>(span.phase);
    *out++ = static_cast<double>(span.step);
    *out++ = static_cast<double>(span.index);
    *out++ = span.begin;
    *out++ = span.end;
  }
  return rows;
}

std::vector<Span> unpacked(const torch::Tensor& rows, double ahead) {
  std::vector<Span> spans;
  const auto* in = rows.const_data_ptr<double>();
  for (auto left = rows.numel() / kColumns; left > 0; --left, in += kColumns) {
    spans.push_back({.kind = static_cast<Span::Kind>(in[0]),
                     .phase = static_cast<monitor::StepPhase>(in[1]),
                     .step = static_cast<std::int64_t>(in[2]),
                     .index = static_cast<std::int64_t>(in[3]),
                     .begin = in[4] - ahead,
                     .end = in[5] - ahead});
  }
  return spans;
}

// Returns the tensors of all ranks, one row each.
torch::Tensor gathered(comm::Communicator& cpu, const torch::Tensor& own) {
  if (cpu.size() == 1) return own.unsqueeze(0);
  const auto all = torch::empty({cpu.size() * own.numel()}, own.options());
  cpu.all_gather(all, own).wait();
  return all.view({cpu.size(), -1});
}

}  // namespace

Profiler::Profiler(const config::ProfileConfig& config, const torch::Device& device,
                   parallel::ExchangeMonitor* exchange)
    : range_(config::parse_step_range(config.steps)),
      device_(device),
      exchange_(exchange),
      moments_(device) {}

Profiler::~Profiler() {
  observe(nullptr);
}

void Profiler::begin_step(std::int64_t step) {
  step_ = step;
  in_step_ = true;
  profiling_ = range_ && range_->has(step);
  if (device_.is_cpu()) last_ = Clock::system().now();
  if (!profiling_) return;
  if (records_.empty()) begin_profile();
  observe(this);
  under_way_.clear();
  step_moment_ = device_.is_cpu() ? moments_.take(last_) : moments_.take();
  last_moment_ = step_moment_;
}

// The peak memory is that of the profiled steps; a host's peak can not be reset.
void Profiler::begin_profile() {
  cpu_begin_ = cpu_seconds();
  if (device_.is_cpu()) return;
  at::getDeviceAllocator(device_.type())->resetPeakStats(device_.index());
}

void Profiler::end_phase(Phase phase) {
  if (!in_step_) return;
  if (device_.is_cpu()) {
    const auto now = Clock::system().now();
    const auto took = seconds_between(last_, now);
    if (phase == Phase::forward) passes_.forward += took;
    if (phase == Phase::backward) passes_.backward += took;
    last_ = now;
  }
  if (!profiling_) return;
  const auto moment = device_.is_cpu() ? moments_.take(last_) : moments_.take();
  add({.kind = Span::Kind::phase, .phase = phase}, last_moment_, moment);
  last_moment_ = moment;
}

void Profiler::skip_phase() {
  if (device_.is_cpu()) last_ = Clock::system().now();
  if (profiling_) last_moment_ = moments_.take();
}

// The time before a forward pass is that of moving its samples into the model's form.
void Profiler::passed(PassEvent pass) {
  end_phase(pass == PassEvent::forward_begins    ? Phase::data
            : pass == PassEvent::backward_begins ? Phase::forward
                                                 : Phase::backward);
}

void Profiler::end_step(std::int64_t samples) {
  in_step_ = false;
  if (!profiling_) return;
  add({.kind = Span::Kind::step, .index = samples}, step_moment_, moments_.take());
  observe(nullptr);
  profiling_ = false;
  cpu_end_ = cpu_seconds();
}

void Profiler::started(const parallel::Parcel& parcel) {
  under_way_.emplace_back(parcel, moments_.take());
}

void Profiler::arrived(const parallel::Parcel& parcel) {
  const auto found =
      std::find_if(under_way_.begin(), under_way_.end(), [&](const auto& one) {
        return one.first.of == parcel.of && one.first.index == parcel.index;
      });
  if (found == under_way_.end()) return;
  const bool gradients = parcel.of == parallel::Parcel::Of::gradients;
  add({.kind = gradients ? Span::Kind::gradients : Span::Kind::parameters,
       .index = static_cast<std::int64_t>(parcel.index)},
      found->second, moments_.take());
  under_way_.erase(found);
}

std::optional<Profiler::Passes> Profiler::take_passes() {
  if (!device_.is_cpu()) return std::nullopt;
  return std::exchange(passes_, {});
}

void Profiler::add(const Span& span, std::size_t begin, std::size_t end) {
  records_.push_back({span, begin, end});
  records_.back().span.step = step_;
}

std::vector<Span> Profiler::settled() {
  moments_.settle();
  std::vector<Span> spans;
  spans.reserve(records_.size());
  for (auto [span, begin, end] : records_) {
    span.begin = moments_.seconds(begin);
    span.end = moments_.seconds(end);
    spans.push_back(span);
  }
  return spans;
}

std::optional<monitor::Timeline> Profiler::gather(comm::World& world) {
  // Ranks make the same steps, so all of them have something or none.
  if (records_.empty()) return std::nullopt;
  auto& cpu = world.cpu();
  const auto own = packed(settled());
  const bool is_thread = world.data().traits().peers_are_threads && world.rank() > 0;
  const auto about = torch::tensor(
      {static_cast<double>(own.numel()), clock_ahead(cpu),
       is_thread ? 0.0 : cpu_end_ - cpu_begin_,
       static_cast<double>(memory::memory_of(world.data().device()).peak_bytes)},
      torch::kFloat64);
  const auto table = gathered(cpu, about);
  std::vector<torch::Tensor> spans;
  for (int r = 0; r < cpu.size(); ++r) {
    spans.push_back(torch::empty(
        {static_cast<std::int64_t>(table[r][0].item<double>())}, torch::kFloat64));
  }
  if (cpu.size() > 1) {
    cpu.all_gather(spans, own).wait();
  } else {
    spans[0] = own;
  }
  monitor::Timeline timeline{.device = device_.is_cpu() ? "cpu" : "cuda",
                             .backend = std::string(world.data().backend())};
  for (int r = 0; r < cpu.size(); ++r) {
    const auto row = table[r];
    timeline.ranks.push_back(
        {.spans = unpacked(spans[static_cast<std::size_t>(r)], row[1].item<double>()),
         .cpu_seconds = row[2].item<double>(),
         .peak_memory_bytes = static_cast<std::int64_t>(row[3].item<double>())});
  }
  return timeline;
}

std::optional<monitor::PhaseSplit> save_profile(Profiler& profiler, comm::World& world,
                                                const run::RunDirectory& run) {
  const auto timeline = profiler.gather(world);
  if (!timeline) {
    if (profiler.is_wanted()) {
      log::warning("train",
                   "no step of profile.steps was reached, so there is no trace");
    }
    return std::nullopt;
  }
  if (world.rank() == 0) {
    files::write_atomically(run.trace(), monitor::to_chrome_trace(*timeline));
    log::info("train", fmt::format("trace written to {}", run.trace().string()));
  }
  return monitor::split_of(*timeline);
}

// The answer that came back the fastest is the most precise one.
double clock_ahead(comm::Communicator& cpu) {
  constexpr int kRounds = 8;
  const auto word = torch::zeros({1}, torch::kFloat64);
  const auto now = [] { return detail::seconds_of(Clock::system().now()); };
  double ahead = 0;
  for (int rank = 1; rank < cpu.size(); ++rank) {
    double error = INFINITY;
    for (int round = 0; round < kRounds; ++round) {
      if (cpu.rank() == rank) {
        const auto before = now();
        cpu.send(word, 0).wait();
        cpu.recv(word, 0).wait();
        const auto after = now();
        if (after - before >= 2 * error) continue;
        error = (after - before) / 2;
        ahead = (before + after) / 2 - word.item<double>();
      } else if (cpu.rank() == 0) {
        cpu.recv(word, rank).wait();
        word.fill_(now());
        cpu.send(word, rank).wait();
      }
    }
    if (cpu.rank() == rank && std::abs(ahead) <= error) ahead = 0;
  }
  return ahead;
}

}  // namespace lockstep::profile
