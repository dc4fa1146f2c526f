// The steady state of a loader allocates nothing: every operator new of the process is
// counted while a test asks for it.
#include <atomic>
#include <cstdlib>
#include <new>

#include "lockstep/data/transformed.h"
#include "tests/data/support.h"

namespace {

std::atomic<bool> counting = false;         // NOLINT: an allocator has no object
std::atomic<std::int64_t> allocations = 0;  // NOLINT

}  // namespace

// A sanitizer has its own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
void* operator new(std::size_t size) {
  if (counting.load(std::memory_order_relaxed)) allocations += 1;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace lockstep::data {
namespace {

std::int64_t count_allocations(const std::function<void()>& body) {
  allocations = 0;
  counting = true;
  body();
  counting = false;
  return allocations;
}

TEST(Allocation, IsCounted) {
  // Called by name: a new-expression that nobody misses may be left out.
  EXPECT_EQ(count_allocations([] { ::operator delete(::operator new(8)); }), 1);
}

TEST(Allocation, ALoadersSteadyStateHasNone) {
  const auto data = transformed(
      std::make_unique<test::Pictures>(test::noise_pictures(107, {3, 10, 10})),
      {.resize = 12, .crop_padding = 2, .flip = 0.5, .cutout = 3, .erase = 0.5});
  for (const bool mixes : {false, true}) {
    Loader loader(*data,
                  {.batch = 8,
                   .workers = 2,
                   .prefetch = 3,
                   .mixing = {.mixup = mixes ? 0.2 : 0, .cutmix = mixes ? 1.0 : 0}});
    // Slots have to meet full and short batches, and workers each other, before all
    // memory is there; that ends, where an allocation for each batch would not.
    int quiet = 0;
    for (int window = 0; window < 100 && quiet < 3; ++window) {
      const auto count = count_allocations([&] {
        for (int i = 0; i < 14 * 4; ++i) loader.next();  // four epochs
      });
      quiet = count == 0 ? quiet + 1 : 0;
    }
    EXPECT_EQ(quiet, 3) << "mixes: " << mixes;
  }
}

}  // namespace
}  // namespace lockstep::data
#endif
