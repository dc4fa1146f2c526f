#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "lockstep/storage/file_system.h"

namespace lockstep::test {

enum class Act {
  create,
  reserve,
  write,
  truncate,
  sync,
  close,
  make_directory,
  rename,
  exchange,
  remove,
  link,
  sync_directory
};

struct Operation {
  Act act;
  storage::Path path;
  storage::Path other = {};  // the new name, or the target of a link
  std::int64_t offset = 0;   // or the size
  std::string bytes = {};
};

// The real file system with somebody who is told of every operation before it is made,
// and may throw instead of it: the first write that is refused is made by half.
class HookedFiles : public storage::FileSystem {
 public:
  using Hook = std::function<void(const Operation&)>;

  explicit HookedFiles(Hook told) : told_(std::move(told)) {}

  bool can_exchange = true;
  bool syncs = true;  // false: for tests that no power cut will judge

  std::unique_ptr<storage::OutputFile> create(const storage::Path& path,
                                              storage::Caching caching) override {
    tell({.act = Act::create, .path = path});
    if (!syncs) caching = storage::Caching::through;
    return std::make_unique<File>(*this, path, real().create(path, caching));
  }
  bool make_directory(const storage::Path& path) override {
    if (std::filesystem::exists(path)) return false;
    tell({.act = Act::make_directory, .path = path});
    return real().make_directory(path);
  }
  void rename(const storage::Path& from, const storage::Path& to) override {
    tell({.act = Act::rename, .path = from, .other = to});
    real().rename(from, to);
  }
  bool exchange(const storage::Path& a, const storage::Path& b) override {
    if (!can_exchange) return false;
    tell({.act = Act::exchange, .path = a, .other = b});
    return real().exchange(a, b);
  }
  void remove(const storage::Path& path) override {
    tell({.act = Act::remove, .path = path});
    real().remove(path);
  }
  void link(const std::string& target, const storage::Path& path) override {
    tell({.act = Act::link, .path = path, .other = target});
    real().link(target, path);
  }
  void sync_directory(const storage::Path& path) override {
    tell({.act = Act::sync_directory, .path = path});
    if (syncs) real().sync_directory(path);
  }

 private:
  class File : public storage::OutputFile {
   public:
    File(HookedFiles& files, storage::Path path, std::unique_ptr<OutputFile> under)
        : files_(files), path_(std::move(path)), under_(std::move(under)) {}

    void reserve(std::int64_t bytes) override {
      files_.tell({.act = Act::reserve, .path = path_, .offset = bytes});
      under_->reserve(bytes);
    }
    void write(std::int64_t offset, storage::Bytes bytes) override {
      const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      try {
        files_.tell(
            {.act = Act::write, .path = path_, .offset = offset, .bytes = text});
      } catch (...) {
        const auto half = bytes.size() / 2 / storage::kDirectAlignment *
                          static_cast<std::size_t>(storage::kDirectAlignment);
        if (!files_.tore_.exchange(true)) {
          under_->write(offset, bytes.first(half));
        }
        throw;
      }
      under_->write(offset, bytes);
    }
    void truncate(std::int64_t bytes) override {
      files_.tell({.act = Act::truncate, .path = path_, .offset = bytes});
      under_->truncate(bytes);
    }
    void sync() override {
      files_.tell({.act = Act::sync, .path = path_});
      if (files_.syncs) under_->sync();
    }
    void close() override {
      files_.tell({.act = Act::close, .path = path_});
      under_->close();
    }

   private:
    HookedFiles& files_;
    storage::Path path_;
    std::unique_ptr<OutputFile> under_;
  };

  void tell(const Operation& operation) {
    const std::lock_guard lock(mutex_);
    told_(operation);
  }

  Hook told_;
  std::atomic<bool> tore_ = false;
  std::mutex mutex_;  // files are written by threads of their own
};

}  // namespace lockstep::test
