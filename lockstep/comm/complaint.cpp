#include "lockstep/comm/detail/complaint.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <mutex>
#include <string_view>
#include <vector>

#include <unistd.h>

#include "lockstep/base/text.h"

namespace lockstep::comm::detail {
namespace {

struct Thread {
  std::int64_t id = 0;
  std::weak_ptr<std::atomic<bool>> complaint;
};

// A terminate handler is per process, and so is its state.
struct Listening {
  std::mutex mutex;
  std::vector<Thread> threads;
  std::terminate_handler before = nullptr;
};

Listening& listening() {
  static auto* const one = new Listening;  // not destroyed: threads outlive main()
  return *one;
}

bool is_gloos(const std::exception_ptr& thrown) {
  if (!thrown) return false;
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    return std::string_view(error.what()).find("gloo/transport") !=
           std::string_view::npos;
  } catch (...) {
    return false;
  }
}

// Returns true if this thread is of a group; the caller that waits for it reports it.
bool note() {
  auto& all = listening();
  const std::lock_guard lock(all.mutex);
  for (const auto& thread : all.threads) {
    if (thread.id != ::gettid()) continue;
    if (const auto complaint = thread.complaint.lock()) {
      complaint->store(true);
      return true;
    }
  }
  return false;
}

[[noreturn]] void on_terminate() {
  if (is_gloos(std::current_exception()) && note()) {
    while (true) ::pause();
  }
  if (listening().before != nullptr) listening().before();
  std::abort();
}

std::vector<std::int64_t> threads_now() {
  std::vector<std::int64_t> ids;
  std::error_code ignored;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/task", ignored)) {
    const auto id = text::to_integer(entry.path().filename().string());
    if (id) ids.push_back(*id);
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

}  // namespace

Complaint listen_to_threads(const std::function<void()>& make) {
  static std::once_flag once;
  std::call_once(once, [] { listening().before = std::set_terminate(on_terminate); });
  auto complaint = std::make_shared<std::atomic<bool>>(false);
  const auto before = threads_now();
  make();
  auto& all = listening();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.threads, [](const Thread& t) { return t.complaint.expired(); });
  for (const auto id : threads_now()) {
    if (std::binary_search(before.begin(), before.end(), id)) continue;
    std::erase_if(all.threads, [&](const Thread& t) { return t.id == id; });
    all.threads.push_back({id, complaint});
  }
  return complaint;
}

}  // namespace lockstep::comm::detail
