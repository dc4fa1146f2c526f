#include "lockstep/hardware/choose_gpus.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "lockstep/base/str.h"
#include "lockstep/base/text.h"
#include "lockstep/base/units.h"

namespace lockstep::hardware {
namespace {

// A desktop, or a driver that keeps a context, takes this much of an idle GPU.
constexpr std::int64_t kIdleBytes = 1LL << 30;
constexpr int kIdlePercent = 10;

std::int64_t free_bytes(const Gpu& gpu) {
  return gpu.status.memory_free_bytes.value_or(gpu.memory_total_bytes);
}

// Returns the reason why a GPU will not do, or "".
std::string flaw_of(const Gpu& gpu, const GpuWish& wish) {
  if (gpu.compute_mode == "prohibited") return "its compute mode is prohibited";
  if (free_bytes(gpu) < wish.min_memory_bytes) {
    return str(units::format_bytes(free_bytes(gpu)), " free < ",
               units::format_bytes(wish.min_memory_bytes));
  }
  if (!wish.only_free) return "";
  if (!gpu.processes.empty()) {
    const auto& first = gpu.processes.front();
    return str(gpu.processes.size(),
               gpu.processes.size() == 1 ? " process" : " processes", " on it (",
               first.name.empty() ? "process" : first.name, " ", first.pid,
               first.user.empty() ? "" : " of " + first.user, ")");
  }
  // Processes of other containers are not listed; the memory they use is.
  if (gpu.status.memory_used_bytes.value_or(0) > kIdleBytes) {
    return str(units::format_bytes(*gpu.status.memory_used_bytes), " in use");
  }
  if (gpu.status.utilization_percent.value_or(0) > kIdlePercent) {
    return str(*gpu.status.utilization_percent, " % busy");
  }
  return "";
}

// Equal keys are equally good but for their links; a smaller key is better.
using Key = std::pair<std::int64_t, int>;

Key key_of(const Gpu& gpu, std::int64_t grain) {
  return {-(free_bytes(gpu) / grain), gpu.status.utilization_percent.value_or(0) / 10};
}

// Returns how well two GPUs are connected: NVLinks first, then the shortest PCIe path.
int score_of(const GpuPair& pair) {
  if (pair.nvlinks > 0) return 100 + 10 * pair.nvlinks;
  constexpr std::array<std::string_view, 6> kPaths = {"system",   "node",   "bridge",
                                                      "switches", "switch", "board"};
  const auto at = std::find(kPaths.begin(), kPaths.end(), pair.path.value_or(""));
  return at == kPaths.end() ? 0 : 10 * static_cast<int>(at - kPaths.begin() + 1);
}

class Links {
 public:
  explicit Links(const Machine& machine) {
    for (const auto& pair : machine.gpu_pairs) {
      scores_[{pair.first, pair.second}] = scores_[{pair.second, pair.first}] =
          score_of(pair);
    }
  }
  int total(const std::vector<int>& gpus) const {
    int sum = 0;
    for (const int a : gpus) {
      for (const int b : gpus) sum += a < b ? between(a, b) : 0;
    }
    return sum;
  }

 private:
  int between(int a, int b) const {
    const auto found = scores_.find({a, b});
    return found == scores_.end() ? 0 : found->second;
  }
  std::map<std::pair<int, int>, int> scores_;
};

// A set that is half decided: `sure` and as many as are `missing` of the `equals`.
struct PartialChoice {
  std::vector<int> sure;
  std::vector<int> equals;
  std::size_t missing = 0;
};

// Returns the first of the best-linked sets.
std::vector<int> best_linked(const Links& links, const PartialChoice& choice) {
  auto [sure, equals, missing] = choice;
  constexpr std::size_t kMostEquals = 20;  // 184,756 sets of 10
  if (missing >= equals.size() || equals.size() > kMostEquals) {
    sure.insert(
        sure.end(), equals.begin(),
        equals.begin() + static_cast<std::ptrdiff_t>(std::min(missing, equals.size())));
    return sure;
  }
  std::vector<bool> taken(equals.size(), false);
  std::fill_n(taken.begin(), missing, true);
  std::vector<int> best;
  int best_score = -1;
  do {
    auto set = sure;
    for (std::size_t i = 0; i < equals.size(); ++i) {
      if (taken[i]) set.push_back(equals[i]);
    }
    const int score = links.total(set);
    if (score > best_score) {
      best_score = score;
      best = std::move(set);
    }
  } while (std::prev_permutation(taken.begin(), taken.end()));
  return best;
}

// Returns whether CUDA numbers GPUs as the driver does: it skips lost ones, puts faster
// ones first, and we do not see which ones it hides.
bool counts_like_the_driver(const Machine& machine) {
  if (!machine.unusable_gpus.empty() || machine.hidden_gpus > 0) return false;
  return std::all_of(machine.gpus.begin(), machine.gpus.end(), [&](const Gpu& gpu) {
    return gpu.name == machine.gpus.front().name && gpu.mig_parent.empty() &&
           gpu.nvml_index == gpu.index;
  });
}

}  // namespace

GpuChoice choose_gpus(const Machine& machine, const GpuWish& wish) {
  GpuChoice choice;
  std::int64_t largest = 0;
  for (const auto& gpu : machine.gpus) {
    largest = std::max(largest, gpu.memory_total_bytes);
  }
  const auto grain = std::max<std::int64_t>(1, largest / 50);
  std::vector<std::pair<Key, int>> fit;
  for (const auto& gpu : machine.gpus) {
    if (const auto flaw = flaw_of(gpu, wish); !flaw.empty()) {
      choice.rejected.push_back({gpu.index, flaw});
    } else {
      fit.emplace_back(key_of(gpu, grain), gpu.index);
    }
  }
  std::sort(fit.begin(), fit.end());
  const auto count = std::min(
      fit.size(), static_cast<std::size_t>(std::max(0, wish.count.value_or(1 << 20))));
  if (count == 0) return choice;
  const auto last = fit[count - 1].first;
  PartialChoice partial;
  for (const auto& [key, index] : fit) {
    if (key < last) partial.sure.push_back(index);
    if (key == last) partial.equals.push_back(index);
  }
  partial.missing = count - partial.sure.size();
  choice.chosen = best_linked(Links(machine), partial);
  return choice;
}

std::string visible_devices(const Machine& machine, const std::vector<int>& chosen,
                            bool uuids) {
  const bool by_uuid = uuids || !counts_like_the_driver(machine);
  std::vector<std::string> words;
  for (const auto& gpu : machine.gpus) {
    if (std::find(chosen.begin(), chosen.end(), gpu.index) == chosen.end()) continue;
    // A file by hand may have none.
    words.push_back(by_uuid && !gpu.uuid.empty() ? gpu.uuid : str(gpu.nvml_index));
  }
  return text::join(words, ",");
}

}  // namespace lockstep::hardware
