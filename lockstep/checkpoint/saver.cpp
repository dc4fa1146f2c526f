#include "lockstep/checkpoint/saver.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include <sys/mman.h>

#include <ATen/Parallel.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/log.h"
#include "lockstep/storage/publish.h"
#include "lockstep/storage/streaming_copy.h"

namespace lockstep::checkpoint {
namespace {

using Milliseconds = std::chrono::milliseconds;

constexpr std::int64_t kHugePage = 2 << 20;

std::string file_of(int rank) {
  return str("rank_", rank, ".safetensors");
}
std::string record_of(int rank) {
  return str("rank_", rank, ".json");
}

// Of all elements of a tensor a file gets them in row-major order.
storage::PieceToWrite described(const Piece& piece) {
  return {.name = piece.name,
          .dtype = dtype_name(piece.data.scalar_type()),
          .shape = piece.shape,
          .order = piece.is_whole() ? storage::Order{} : piece.order,
          .begin = piece.begin,
          .count = piece.data.numel()};
}

torch::Tensor in_rows(const Piece& piece) {
  if (!piece.is_whole() || piece.order.empty()) return piece.data;
  return piece.data.as_strided(piece.shape,
                               storage::strides_of(piece.shape, piece.order));
}

}  // namespace

// Copies of the pieces in memory that is laid out as this rank's file is, and kept for
// the next save.
class Saver::Staging {
 public:
  explicit Staging(const Options& options)
      : rank_(options.rank), device_(options.device) {
    if (device_.is_cpu()) return;
    stream_.emplace(
        c10::impl::VirtualGuardImpl(device_.type()).getStreamFromGlobalPool(device_));
  }

  // What can not wait is copied now; on a GPU the rest starts on its way.
  void begin(Pieces pieces) {
    pieces_ = std::move(pieces);
    lay_out();
    digests_.clear();
    for_each_piece([this](const Piece& piece, std::int64_t offset) {
      if (!waits(piece)) copy(piece, offset);
    });
    if (stream_) send();
  }

  // By the thread: what is in the host's memory.
  void copy_host() {
    if (stream_) {
      for_each_piece([this](const Piece& piece, std::int64_t offset) {
        if (waits(piece) && is_on_host(piece)) copy(piece, offset);
      });
    } else {
      copy_and_digest();
    }
  }
  // By the thread: after it all is here.
  void wait_for_device() {
    if (stream_) sent_->synchronize();
  }

  // Before the pieces change.
  void fence_device() {
    if (!stream_ || !sent_) return;
    sent_->block(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  }
  // Somebody has to wait until the thread has copied.
  bool waits_on_host() const {
    return std::any_of(pieces_.begin(), pieces_.end(), [](const Piece& piece) {
      return waits(piece) && is_on_host(piece);
    });
  }

  // After wait_for_device().
  storage::WrittenFile write(storage::FileSystem& files,
                             const std::filesystem::path& directory,
                             std::function<void()> may_go_on) const {
    const auto size = static_cast<std::size_t>(file_->image_bytes());
    return file_->write(files, directory, {image_, size},
                        {.digests = digests_, .may_go_on = std::move(may_go_on)});
  }

  std::int64_t num_bytes() const { return file_ ? file_->num_bytes() : 0; }
  std::int64_t held_bytes() const { return memory_.defined() ? memory_.numel() : 0; }

 private:
  static bool waits(const Piece& piece) { return !piece.changes_in_forward; }
  static bool is_on_host(const Piece& piece) { return piece.data.device().is_cpu(); }

  // The places are those of the save before, unless there are other tensors now.
  void lay_out() {
    std::vector<storage::PieceToWrite> wanted;
    wanted.reserve(pieces_.size());
    for (const auto& piece : pieces_) wanted.push_back(described(piece));
    if (file_ && wanted == laid_out_) return;
    std::map<std::pair<std::string, std::int64_t>, std::size_t> by_name;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const bool fresh =
          by_name.emplace(std::pair(wanted[i].name, wanted[i].begin), i).second;
      LOCKSTEP_CHECK(fresh, wanted[i].name, " from ", wanted[i].begin, " on, twice");
    }
    file_.reset();  // it stands for memory that is there
    storage::RankFile file(file_of(rank_), wanted);
    order_.clear();
    for (const auto& piece : file.pieces()) {
      order_.push_back(by_name.at({piece.name, piece.begin}));
    }
    take_memory(file.image_bytes());
    std::memset(image_ + file.num_bytes(), 0,
                static_cast<std::size_t>(file.image_bytes() - file.num_bytes()));
    std::memcpy(image_, file.header().data(), file.header().size());
    laid_out_ = std::move(wanted);
    file_.emplace(std::move(file));
  }

  void take_memory(std::int64_t bytes) {
    const auto align = bytes < kHugePage ? storage::kDirectAlignment : kHugePage;
    if (!memory_.defined() || memory_.numel() < bytes + align) {
      memory_.reset();
      memory_ =
          torch::empty({bytes + align},
                       torch::dtype(torch::kUInt8).pinned_memory(stream_.has_value()));
    }
    auto* begin = memory_.mutable_data_ptr();
    auto room = static_cast<std::size_t>(memory_.numel());
    image_ = static_cast<std::byte*>(std::align(
        static_cast<std::size_t>(align), static_cast<std::size_t>(bytes), begin, room));
    if (align == kHugePage && !stream_) prefer_huge_pages(bytes);
  }

  // Copies and direct writes take much less of a core with them. Pages that are there
  // already would stay small: they are dropped, since nothing is in them yet.
  void prefer_huge_pages(std::int64_t bytes) const {
    const auto whole = static_cast<std::size_t>(bytes / kHugePage * kHugePage);
    ::madvise(image_, whole, MADV_DONTNEED);
    ::madvise(image_, whole, MADV_HUGEPAGE);
  }

  template <typename Visit>
  void for_each_piece(const Visit& visit) const {
    for (std::size_t i = 0; i < order_.size(); ++i) {
      visit(pieces_[order_[i]], file_->offset_of(i));
    }
  }

  void copy(const Piece& piece, std::int64_t offset) const {
    if (piece.data.numel() == 0) return;
    const torch::NoGradGuard no_grad;
    const auto from = in_rows(piece);
    const auto begin = image_ - static_cast<std::byte*>(memory_.mutable_data_ptr());
    memory_.narrow(0, begin + offset, static_cast<std::int64_t>(from.nbytes()))
        .view(from.scalar_type())
        .view(from.sizes())
        .copy_(from, /*non_blocking=*/true);
  }

  // In the order of the file, so that its digests come out of it.
  void copy_and_digest() {
    storage::BlockDigests digests(storage::kBlockBytes);
    digests.add(std::as_bytes(std::span(file_->header())));
    for_each_piece([&](const Piece& piece, std::int64_t offset) {
      const auto from = in_rows(piece);
      if (waits(piece) && from.is_contiguous()) {
        const auto* data = static_cast<const std::byte*>(from.const_data_ptr());
        storage::copy_and_digest(image_ + offset, {data, from.nbytes()}, digests);
        return;
      }
      if (waits(piece)) copy(piece, offset);
      digests.add({image_ + offset, from.nbytes()});
    });
    digests_ = digests.finish();
  }

  void send() {
    c10::Event now(device_.type());
    now.record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
    now.block(*stream_);
    const c10::StreamGuard on_stream(*stream_);
    for_each_piece([this](const Piece& piece, std::int64_t offset) {
      if (waits(piece) && !is_on_host(piece)) copy(piece, offset);
    });
    sent_.emplace(device_.type());
    sent_->record(*stream_);
  }

  const int rank_;
  const torch::Device device_;
  std::optional<c10::Stream> stream_;  // none of a CPU
  std::optional<c10::Event> sent_;
  Pieces pieces_;
  std::vector<storage::PieceToWrite> laid_out_;  // as in pieces_
  std::optional<storage::RankFile> file_;
  std::vector<std::size_t> order_;  // of pieces_ in the file
  torch::Tensor memory_;
  std::byte* image_ = nullptr;  // in memory_
  std::vector<storage::Digest> digests_;
};

// One save, on a thread of its own.
class Saver::Job {
 public:
  Job(const Options& options, Staging& staging, storage::Manifest head)
      : options_(options),
        staging_(staging),
        head_(std::move(head)),
        step_(head_.step) {
    thread_ = std::jthread([this] { run(); });
  }
  // One that has failed before it began; the others are told as of any other.
  Job(const Options& options, Staging& staging, storage::Manifest head,
      std::string problem)
      : options_(options),
        staging_(staging),
        head_(std::move(head)),
        step_(head_.step),
        failed_(true),
        told_(comm::kSaveFailed),
        text_(std::move(problem)) {}
  ~Job() { abandon(); }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  void abandon() {
    change([this] { abandoned_ = true; });
    if (thread_.joinable()) thread_.join();
  }

  void wait_until_copied() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return copied_ || failed_; });
  }
  void wait(Milliseconds limit) {
    std::unique_lock lock(mutex_);
    const auto before = told_;
    changed_.wait_for(lock, limit, [&] { return told_ != before; });
  }

  comm::Flags flags() const {
    const std::scoped_lock lock(mutex_);
    return told_;
  }
  void may_write() {
    change([this] { may_write_ = true; });
  }
  void may_publish() {
    change([this] { may_publish_ = true; });
  }
  // After the end of the thread.
  std::string text() const {
    const std::scoped_lock lock(mutex_);
    return text_;
  }
  std::int64_t step() const { return step_; }
  double age() const { return seconds_between(begin_, Clock::system().now()); }
  void add_blocked(double seconds) { blocked_ += seconds; }
  double blocked() const { return blocked_; }

 private:
  struct Abandoned {};

  template <typename Change>
  void change(const Change& how) {
    {
      const std::scoped_lock lock(mutex_);
      how();
    }
    changed_.notify_all();
  }
  void tell(comm::Flags flag) {
    change([&] { told_ |= flag; });
  }
  void wait_for(const bool& allowed) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return allowed || abandoned_; });
    if (abandoned_) throw Abandoned();
  }
  bool is_abandoned() const {
    const std::scoped_lock lock(mutex_);
    return abandoned_;
  }

  storage::FileSystem& files() const { return *options_.files; }
  std::filesystem::path directory() const {
    return storage::partial_directory(options_.checkpoints, step_);
  }

  void run() noexcept {
    at::set_num_threads(1);  // the others compute
    try {
      try {
        if (options_.rank == 0) {
          storage::begin_save(files(), options_.checkpoints, step_);
          tell(comm::kSaveOpen);
        }
        staging_.copy_host();
        change([this] { copied_ = true; });
        staging_.wait_for_device();
        wait_for(may_write_);
        write();
        tell(comm::kSaveWritten);
        if (options_.rank == 0) publish();
      } catch (const std::exception& error) {
        change([&] {
          text_ = error.what();
          failed_ = true;
          told_ |= comm::kSaveFailed;
        });
        wait_for(never_);  // the others are told first
      }
    } catch (const Abandoned&) {
      if (options_.rank == 0) {
        storage::abandon_save(files(), options_.checkpoints, step_);
      }
    }
  }

  void write() {
    const auto written = staging_.write(files(), directory(), [this] {
      if (is_abandoned()) throw Abandoned();
    });
    storage::write_file(files(), directory() / record_of(options_.rank),
                        written.to_json());
  }

  void publish() {
    wait_for(may_publish_);
    constexpr std::int64_t kLongest = std::int64_t{1} << 30;
    std::vector<storage::WrittenFile> written;
    for (int rank = 0; rank < options_.ranks; ++rank) {
      const auto record = directory() / record_of(rank);
      if (!std::filesystem::exists(record)) {
        throw Error(Fault::io, record.string(), " is not there, but rank ", rank,
                    " has written it: checkpoints need a directory that all nodes "
                    "share; set run.dir to one");
      }
      written.push_back(storage::WrittenFile::from_json(files::read(record, kLongest)));
      files().remove(record);
    }
    const auto path =
        storage::publish(files(), options_.checkpoints, std::move(head_), written);
    try {
      auto keep = options_.keep;
      keep.always = step_;
      storage::prune(files(), options_.checkpoints, keep);
    } catch (const Error& error) {  // the new one stands
      log::warning("checkpoint", str("old ones stay: ", error.what()));
    }
    change([&] {
      text_ = path.string();
      told_ |= comm::kSavePublished;
    });
  }

  const Options& options_;
  Staging& staging_;
  storage::Manifest head_;
  const std::int64_t step_;
  const SteadyTime begin_ = Clock::system().now();
  double blocked_ = 0;  // of the thread that trains
  const bool never_ = false;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool copied_ = false, failed_ = false, abandoned_ = false;
  bool may_write_ = false, may_publish_ = false;
  comm::Flags told_ = 0;
  std::string text_;

  std::jthread thread_;  // last: it uses the rest
};

Saver::Saver(Options options)
    : options_(std::move(options)), staging_(std::make_unique<Staging>(options_)) {
  if (options_.files == nullptr) options_.files = &storage::FileSystem::real();
}

Saver::~Saver() = default;

void Saver::begin(Pieces pieces, storage::Manifest head) {
  LOCKSTEP_CHECK(!is_busy(), "a save of step ", job_->step(), " is under way");
  const auto begin = Clock::system().now();
  try {
    staging_->begin(std::move(pieces));
    job_ = std::make_unique<Job>(options_, *staging_, std::move(head));
  } catch (const std::exception& error) {  // no memory for the copies, above all
    job_ = std::make_unique<Job>(options_, *staging_, std::move(head), error.what());
  }
  job_->add_blocked(seconds_between(begin, Clock::system().now()));
}

void Saver::fence() {
  if (!is_busy()) return;
  const auto begin = Clock::system().now();
  if (staging_->waits_on_host()) job_->wait_until_copied();
  staging_->fence_device();
  job_->add_blocked(seconds_between(begin, Clock::system().now()));
}

bool Saver::is_busy() const noexcept {
  return job_ != nullptr;
}

comm::Flags Saver::flags() const {
  return job_ ? job_->flags() : 0;
}

void Saver::wait(std::chrono::milliseconds limit) {
  if (!job_) return;
  const auto begin = Clock::system().now();
  job_->wait(limit);
  job_->add_blocked(seconds_between(begin, Clock::system().now()));
}

std::optional<Saver::Outcome> Saver::observe(const std::vector<comm::Ballot>& ballots) {
  if (!job_) return std::nullopt;
  const auto has = [](comm::Flags flag) {
    return [flag](const comm::Ballot& b) { return (b.flags & flag) != 0; };
  };
  const auto failed =
      std::find_if(ballots.begin(), ballots.end(), has(comm::kSaveFailed));
  const bool published = has(comm::kSavePublished)(ballots[0]);
  if (failed == ballots.end() && !published) {
    if (has(comm::kSaveOpen)(ballots[0])) job_->may_write();
    if (std::all_of(ballots.begin(), ballots.end(), has(comm::kSaveWritten))) {
      job_->may_publish();
    }
    return std::nullopt;
  }
  if (!published) job_->abandon();
  Outcome outcome{.step = job_->step(),
                  .saved = published,
                  .text = job_->text(),
                  .bytes = staging_->num_bytes(),
                  .held_bytes = staging_->held_bytes(),
                  .blocked_seconds = job_->blocked(),
                  .seconds = job_->age()};
  if (outcome.text.empty()) {
    outcome.text =
        published ? storage::step_directory(options_.checkpoints, job_->step()).string()
                  : str("rank ", failed - ballots.begin(),
                        " could not write its part; its log says why");
  }
  job_.reset();
  return outcome;
}

}  // namespace lockstep::checkpoint
