// An event file of TensorBoard in tensorboard/: records of protocol buffers, each with
// its length and two checksums.
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/monitor/detail/crc32c.h"
#include "lockstep/monitor/detail/protobuf.h"
#include "lockstep/monitor/detail/tensorboard.h"
#include "lockstep/monitor/sink.h"

namespace lockstep::monitor {
namespace {

using detail::little_endian;
using detail::Message;

// The mask keeps the checksum of data that holds checksums from being trivial.
std::uint32_t masked_crc(std::string_view bytes) {
  const auto crc = detail::crc32c(bytes);
  return (crc >> 15 | crc << 17) + 0xA282EAD8U;
}

std::string record_of(const Message& event) {
  const auto& data = event.bytes();
  const auto length = little_endian(static_cast<std::uint64_t>(data.size()));
  return length + little_endian(masked_crc(length)) + data +
         little_endian(masked_crc(data));
}

class TensorBoardSink : public Sink {
 public:
  explicit TensorBoardSink(const SinkContext& context) : clock_(context.clock) {
    const auto folder = context.run.path() / "tensorboard";
    std::filesystem::create_directories(folder);
    const auto record = run::record_of_this_process();
    const auto second = static_cast<std::int64_t>(unix_seconds(clock_.wall()));
    // The first free number: a run that is started again within a second has its own.
    for (int number = 0; !file_; ++number) {
      path_ = folder / str("events.out.tfevents.", second, ".", record.host, ".",
                           record.pid, ".", number);
      file_ = files::Descriptor(
          ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
      if (!file_ && (errno != EEXIST || number > 1000)) {
        throw Error(Fault::io, "tensorboard: '", path_.string(),
                    "' cannot be made: ", ::strerror(errno));
      }
    }
    write(Message()
              .real(kWallTime, unix_seconds(clock_.wall()))
              .text(kFileVersion, "brain.Event:2"));
    const double time = unix_seconds(clock_.wall());
    for (const auto& summary :
         {detail::config_page(context.run),
          detail::hparams_experiment(context.run, context.primary.name),
          detail::hparams_start(context.run, time)}) {
      write(Message().real(kWallTime, time).message(kSummary, summary));
    }
  }

  std::string_view name() const noexcept override { return "tensorboard"; }

  void metrics(const Metrics& metrics) override {
    Message summary;
    for (const auto& [metric, value] : numbers_of(metrics)) {
      add(summary, tag_of(metrics.split, metric), value);
    }
    write_summary(unix_seconds(clock_.wall()), metrics.step, summary);
  }

  void system(const SystemSample& sample) override {
    Message summary;
    for (const auto& reading : sample.readings) {
      add(summary, tag_of(reading), reading.value);
    }
    if (!sample.readings.empty()) write_summary(sample.time, sample.step, summary);
  }

  void finish(const RunEnd& end) override {
    const double time = unix_seconds(clock_.wall());
    write(Message()
              .real(kWallTime, time)
              .varint(kStep, static_cast<std::uint64_t>(end.steps))
              .message(kSummary, detail::hparams_end(end.exit == 0, time)));
  }

 private:
  static constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5,
                       kSessionLog = 7;

  static void add(Message& summary, const std::string& tag, double value) {
    summary.message(1, Message().text(1, tag).single(2, static_cast<float>(value)));
  }

  void write_summary(double time, std::int64_t step, const Message& summary) {
    if (!started_) {
      // Makes TensorBoard forget steps behind this one that an earlier, killed attempt
      // wrote.
      constexpr int kStart = 1;
      write(Message()
                .real(kWallTime, time)
                .varint(kStep, static_cast<std::uint64_t>(step))
                .message(kSessionLog, Message().varint(1, kStart)));
      started_ = true;
    }
    write(Message()
              .real(kWallTime, time)
              .varint(kStep, static_cast<std::uint64_t>(step))
              .message(kSummary, summary));
  }

  void write(const Message& event) {
    files::write_all(file_.get(), record_of(event), path_);
  }

  const Clock& clock_;
  files::Path path_;
  files::Descriptor file_;
  bool started_ = false;
};

}  // namespace

std::unique_ptr<Sink> make_tensorboard_sink(const SinkContext& context) {
  return std::make_unique<TensorBoardSink>(context);
}

}  // namespace lockstep::monitor
