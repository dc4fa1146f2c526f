// An offline run of Weights & Biases in wandb/, for `wandb sync`: a log of records in
// LevelDB's framing, each a message of protocol buffers.
#include <array>
#include <cmath>
#include <cstring>
#include <ctime>
#include <map>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <zlib.h>

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/str.h"
#include "lockstep/base/text.h"
#include "lockstep/monitor/detail/protobuf.h"
#include "lockstep/monitor/sink.h"
#include "lockstep/run/knobs.h"

namespace lockstep::monitor {
namespace {

using detail::little_endian;
using detail::Message;
using Json = nlohmann::ordered_json;

// Writes records in blocks of 32 KiB; one that does not fit continues in the next.
class RecordLog {
 public:
  explicit RecordLog(files::Path path) : path_(std::move(path)) {
    file_ = files::Descriptor(
        ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (!file_) {
      throw Error(Fault::io, "wandb: '", path_.string(),
                  "' cannot be made: ", ::strerror(errno));
    }
    append(":W&B" + little_endian(std::uint16_t{0xBEE1}) + '\0');
  }

  void write(std::string_view data) {
    std::string bytes;
    bool first = true;
    do {
      auto room = kBlock - (offset_ + bytes.size()) % kBlock;
      if (room < kChunkHeader) {
        bytes.append(room, '\0');
        room = kBlock;
      }
      const auto part = data.substr(0, room - kChunkHeader);
      data.remove_prefix(part.size());
      bytes += chunk(type_of(first, data.empty()), part);
      first = false;
    } while (!data.empty());
    append(bytes);
  }

 private:
  static constexpr std::size_t kBlock = 32768;
  static constexpr std::size_t kChunkHeader = 7;

  static char type_of(bool first, bool last) {
    if (first) return last ? 1 : 2;
    return last ? 4 : 3;
  }

  static std::string chunk(char type, std::string_view part) {
    const auto checked = type + std::string(part);
    const auto crc = static_cast<std::uint32_t>(
        ::crc32(0, reinterpret_cast<const Bytef*>(checked.data()),
                static_cast<uInt>(checked.size())));
    return little_endian(crc) + little_endian(static_cast<std::uint16_t>(part.size())) +
           checked;
  }

  void append(const std::string& bytes) {
    files::write_all(file_.get(), bytes, path_);
    offset_ += bytes.size();
  }

  files::Path path_;
  files::Descriptor file_;
  std::size_t offset_ = 0;
};

// JSON has no NaN; W&B takes these words.
std::string json_number(double value) {
  if (std::isnan(value)) return "\"NaN\"";
  if (std::isinf(value)) return value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
  return Json(value).dump();
}

std::string run_id(const std::string& seed) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789";
  auto hash = hash_of(seed);
  std::string id;
  for (int i = 0; i < 8; ++i, hash /= kLetters.size()) {
    id += kLetters[hash % kLetters.size()];
  }
  return id;
}

// The names of these numbers on W&B's pages, with the factor to its unit.
struct StatName {
  std::string_view suffix;
  double factor;
};
const StatName* stat_name(std::string_view metric) {
  static const std::map<std::string_view, StatName> kNames = {
      {"gpu_utilization_ratio", {"gpu", 100}},
      {"gpu_memory_utilization_ratio", {"memory", 100}},
      {"gpu_memory_used_bytes", {"memoryAllocatedBytes", 1}},
      {"gpu_temperature_celsius", {"temp", 1}},
      {"gpu_power_watts", {"powerWatts", 1}},
      {"gpu_sm_clock_hertz", {"smClock", 1e-6}},
      {"cpu_utilization_ratio", {"cpu", 100}},
      {"process_memory_bytes", {"proc.memory.rssMB", 1.0 / (1 << 20)}},
      {"network_sent_bytes", {"network.sent", 1}},
      {"network_received_bytes", {"network.recv", 1}}};
  const auto found = kNames.find(metric);
  return found == kNames.end() ? nullptr : &found->second;
}

Message timestamp(double seconds) {
  const auto whole = std::floor(seconds);
  return Message()
      .varint(1, static_cast<std::uint64_t>(whole))
      .varint(2, static_cast<std::uint64_t>((seconds - whole) * 1e9));
}

Message item(int key_field, std::string_view key, std::string_view json) {
  return Message().text(key_field, key).text(16, json);
}

Json typed(const std::string& value);

// Returns the items of "[jsonl, \"a, b\"]", nothing of what is no list.
std::optional<Json> list_in(const std::string& value) {
  if (!value.starts_with('[') || !value.ends_with(']')) return std::nullopt;
  auto list = Json::array();
  std::string item;
  bool quoted = false;
  const auto take = [&] {
    const auto word = std::string(text::trim(item));
    if (!word.empty()) list.push_back(typed(word));
    item.clear();
  };
  for (const char c : value.substr(1, value.size() - 2)) {
    if (c == '"') quoted = !quoted;
    if (c == ',' && !quoted) {
      take();
    } else if (c != '"') {
      item += c;
    }
  }
  take();
  return list;
}

Json typed(const std::string& value) {
  if (auto list = list_in(value)) return *list;
  if (value == "true" || value == "false") return value == "true";
  if (const auto integer = text::to_integer(value)) return *integer;
  if (const auto real = text::to_double(value)) return *real;
  return value;
}

// Returns every section of the run's config as one entry.
Message config_of(const run::RunDirectory& run) {
  auto sections = Json::object();
  for (const auto& [key, value] : run::read_knobs(run.config())) {
    const auto dot = key.find('.');
    sections[key.substr(0, dot)][key.substr(dot + 1)] = typed(value);
  }
  Message config;
  for (const auto& [section, knobs] : sections.items()) {
    config.message(1, item(1, section,
                           knobs.dump(-1, ' ', false, Json::error_handler_t::replace)));
  }
  return config;
}

// Returns the record by which W&B's tables sort runs by the metric that counts.
Message goal_of(const Headline& primary) {
  constexpr int kName = 1, kOptions = 6, kDefined = 3, kSummary = 7, kGoal = 8;
  constexpr int kMin = 1, kMax = 2;              // of what a summary shows
  constexpr std::uint64_t kLess = 1, kMore = 2;  // is better
  const bool more = primary.more_is_better;
  return Message()
      .text(kName, tag_of(Split::eval, primary.name))
      .message(kOptions, Message().varint(kDefined, 1))
      .message(kSummary, Message().varint(more ? kMax : kMin, 1))
      .varint(kGoal, more ? kMore : kLess);
}

class WandbSink : public Sink {
 public:
  explicit WandbSink(const SinkContext& context)
      : clock_(context.clock), started_(unix_seconds(clock_.wall())) {
    const auto record = context.run.read_record();
    const auto id =
        run_id(str(record.host, ":", context.run.path().string(), ":", record.started));
    folder_ = new_folder(context.run.path() / "wandb", id);
    log_.emplace(folder_ / str("run-", id, ".wandb"));
    constexpr int kHeader = 21, kRun = 17, kMetric = 12;
    write(kHeader, Message());
    Message run;
    run.text(1, id);
    if (!context.config.wandb_entity.empty()) run.text(2, context.config.wandb_entity);
    run.text(3, context.config.wandb_project)
        .message(4, config_of(context.run))
        .text(8, record.id)
        .text(13, record.host)
        .message(17, timestamp(started_));
    write(kRun, run);
    write(kMetric, goal_of(context.primary));
  }

  std::string_view name() const noexcept override { return "wandb"; }

  // Lines of one step become one record: W&B wants steps to grow.
  void metrics(const Metrics& metrics) override {
    if (metrics.step != step_) flush();
    step_ = metrics.step;
    time_ = unix_seconds(clock_.wall());
    for (const auto& [metric, value] : numbers_of(metrics)) {
      const auto tag = tag_of(metrics.split, metric);
      pending_[tag] = summary_[tag] = json_number(value);
    }
  }

  void system(const SystemSample& sample) override {
    constexpr int kStats = 7;
    Message stats;
    stats.varint(1, 0).message(2, timestamp(sample.time));
    bool any = false;
    for (const auto& reading : sample.readings) {
      const auto* known = stat_name(reading.name);
      if (known == nullptr) continue;
      const auto key = reading.gpu ? str("gpu.", *reading.gpu, ".", known->suffix)
                                   : std::string(known->suffix);
      stats.message(3, item(1, key, json_number(reading.value * known->factor)));
      any = true;
    }
    if (any) write(kStats, stats);
  }

  void finish(const RunEnd& end) override {
    constexpr int kSummary = 3, kExit = 18, kFinal = 20, kFooter = 22;
    flush();
    Message summary;
    for (const auto& [key, value] : summary_) summary.message(1, item(1, key, value));
    write(kSummary, summary);
    const auto runtime = unix_seconds(clock_.wall()) - started_;
    write(kExit, Message()
                     .varint(1, static_cast<std::uint64_t>(end.exit))
                     .varint(2, static_cast<std::uint64_t>(std::max(0.0, runtime))));
    write(kFinal, Message());
    write(kFooter, Message());
  }

  std::string note() const override {
    return str("wandb: `wandb sync ", folder_.string(), "` puts this run online");
  }

 private:
  static files::Path new_folder(const files::Path& parent, const std::string& id) {
    for (auto second = std::time(nullptr);; ++second) {
      std::array<char, 32> text{};
      std::tm parts{};
      ::gmtime_r(&second, &parts);
      std::strftime(text.data(), text.size(), "%Y%m%d_%H%M%S", &parts);
      const auto folder = parent / str("offline-run-", text.data(), "-", id);
      if (!files::make_new_directory(folder)) continue;  // started again within it
      std::filesystem::create_directories(folder / "files");
      return folder;
    }
  }

  void flush() {
    if (pending_.empty()) return;
    constexpr int kHistory = 2;
    pending_["_step"] = str(step_);
    pending_["_timestamp"] = json_number(time_);
    pending_["_runtime"] = json_number(time_ - started_);
    Message history;
    for (const auto& [key, value] : pending_) history.message(1, item(2, key, value));
    history.message(2, Message().varint(1, static_cast<std::uint64_t>(step_)));
    write(kHistory, history);
    pending_.clear();
  }

  void write(int field, const Message& message) {
    log_->write(Message().varint(1, ++number_).message(field, message).bytes());
  }

  const Clock& clock_;
  const double started_;
  files::Path folder_;
  std::optional<RecordLog> log_;
  std::uint64_t number_ = 0;
  std::int64_t step_ = -1;
  double time_ = 0;
  std::map<std::string, std::string> pending_;  // tag to JSON
  std::map<std::string, std::string> summary_;
};

}  // namespace

std::unique_ptr<Sink> make_wandb_sink(const SinkContext& context) {
  return std::make_unique<WandbSink>(context);
}

}  // namespace lockstep::monitor
