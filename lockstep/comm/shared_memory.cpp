#include "lockstep/comm/detail/shared_memory.h"

#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lockstep/base/error.h"

namespace lockstep::comm::detail {
namespace {

[[noreturn]] void fail(std::string_view what, const files::Path& path) {
  throw Error(Fault::io, "comm: cannot ", what, " '", path.string(),
              "': ", std::strerror(errno));
}

}  // namespace

SharedMemory::SharedMemory(files::Descriptor file, const files::Path& path,
                           std::size_t num_bytes)
    : file_(std::move(file)), num_bytes_(num_bytes) {
  // The pages are populated: else the first collective pays for a fault on every page.
  void* memory = ::mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_POPULATE, file_.get(), 0);
  if (memory == MAP_FAILED) fail("map", path);
  data_ = static_cast<char*>(memory);
}

SharedMemory SharedMemory::create_nameless(std::size_t num_bytes) {
  files::Descriptor file(::memfd_create("lockstep", MFD_CLOEXEC));
  if (!file) fail("make", "shared memory");
  errno = ::posix_fallocate(file.get(), 0, static_cast<off_t>(num_bytes));
  if (errno != 0) fail(str("allocate ", num_bytes, " bytes in"), "shared memory");
  return {std::move(file), "shared memory", num_bytes};
}

SharedMemory SharedMemory::open(const files::Path& path, std::size_t num_bytes) {
  files::Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file) fail("open", path);
  SharedMemory memory(std::move(file), path, num_bytes);
  memory.close_file();
  return memory;
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : file_(std::move(other.file_)),
      data_(std::exchange(other.data_, nullptr)),
      num_bytes_(std::exchange(other.num_bytes_, 0)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(data_, other.data_);
  std::swap(num_bytes_, other.num_bytes_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) ::munmap(data_, num_bytes_);
}

files::Path SharedMemory::path_for_others(std::int64_t pid, int descriptor) {
  return str("/proc/", pid, "/fd/", descriptor);
}

void Bell::ring() noexcept {
  rung.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers.load(std::memory_order_seq_cst) == 0) return;
  ::syscall(SYS_futex, &rung, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Bell::sleep(std::uint32_t seen, std::chrono::milliseconds longest) noexcept {
  constexpr int kLooks = 2000;  // some microseconds
  for (int i = 0; i < kLooks; ++i) {
    if (rung.load(std::memory_order_acquire) != seen) return;
  }
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(longest);
  const timespec moment{.tv_sec = seconds.count(),
                        .tv_nsec = std::chrono::nanoseconds(longest - seconds).count()};
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  ::syscall(SYS_futex, &rung, FUTEX_WAIT, seen, &moment, nullptr, 0);
  sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace lockstep::comm::detail
