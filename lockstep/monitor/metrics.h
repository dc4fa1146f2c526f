#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/files.h"
#include "lockstep/run/field.h"

namespace lockstep::monitor {

enum class Split { train, eval };
std::string_view name_of(Split split) noexcept;

// The numbers of one moment of a run. A line has step, split, loss, time and attempt,
// then `more` in its order.
struct Metrics {
  std::int64_t step = 0;  // finished steps
  Split split = Split::train;
  double loss = 0;
  std::vector<run::NamedValue> more;  // epoch, lr, samples_per_second, ...
  double time = 0;                    // seconds since 1970; set by the writer
  // Counts from 1 over restarts and later commands of the run; 0: not known.
  std::int64_t attempt = 0;

  // Returns a number among `more`, by name.
  std::optional<double> find(std::string_view name) const;
};

// The primary metric, as the task of the run names it in the line of an evaluation
// ("primary"); nothing if the line has none. Runs of earlier versions have an accuracy.
struct PrimaryMetric {
  std::string name;
  double value = 0;
};
std::optional<PrimaryMetric> primary_of(const Metrics& metrics);

// Appends to metrics.jsonl; a line is with the kernel when write() returns, so a crash
// of the process loses none.
class MetricsWriter {
 public:
  explicit MetricsWriter(const files::Path& path, const Clock& clock = Clock::system());

  void write(const Metrics& metrics);
  void sync();  // survives a power cut, too

 private:
  files::LineWriter lines_;
  const Clock& clock_;
};

// Returns the lines of a restarted run with each step once, as the last attempt that
// came to it has made it. A line drops what earlier attempts have written of its step
// and of later ones.
std::vector<Metrics> each_step_once(std::vector<Metrics> lines);

// Returns every readable line, in order, each step once; a torn one is left out. A
// missing file has none.
std::vector<Metrics> read_metrics(const files::Path& path);

// Returns those of the file's last 64 KiB.
std::vector<Metrics> recent_metrics(const files::Path& path);

// Returns the newest of a split, looked for in the file's last 64 KiB only.
std::optional<Metrics> last_metrics(const files::Path& path, Split split);

}  // namespace lockstep::monitor
