// How fast are batches made?
//
//   bench_data loader [WORKERS] [SECONDS]  28 x 28 samples to a consumer that does next
//                                          to nothing: samples a second
//   bench_data jpeg [HEIGHT] [WIDTH] [ROUNDS]
//                                          a folder of JPEGs through the loader with
//                                          one worker, and a loop of TurboJPEG over the
//                                          same files in memory, in turn
//   bench_data tokens [SECONDS]            windows of a token file against memcpy
//
// Prints one JSON line.
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "benchmarks/support.h"
#include <fmt/format.h>
#include <turbojpeg.h>

#include <torch/torch.h>

#include "lockstep/base/files.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/open.h"

using namespace lockstep;  // NOLINT: a program of one file

namespace {

using Steady = std::chrono::steady_clock;
using Path = std::filesystem::path;

// Of all threads: what others do on the machine does not count.
double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double seconds_since(Steady::time_point begin) {
  return std::chrono::duration<double>(Steady::now() - begin).count();
}

void write_file(const Path& path, const void* data, std::size_t size) {
  std::ofstream(path, std::ios::binary)
      .write(static_cast<const char*>(data), static_cast<std::streamsize>(size));
}

// Samples a second of a loader that runs for a while; the first batches do not count.
double rate_of(data::Loader& loader, double seconds) {
  for (int i = 0; i < 20; ++i) loader.next();
  const auto begin = Steady::now();
  std::int64_t samples = 0;
  std::int64_t sum = 0;
  while (seconds_since(begin) < seconds) {
    const auto* batch = loader.next();
    samples += batch->size;
    sum += *static_cast<const std::uint8_t*>(batch->inputs.data_ptr());
  }
  const auto rate = static_cast<double>(samples) / seconds_since(begin);
  return sum < 0 ? 0 : rate;  // `sum` has to be needed
}

void bench_loader(int workers, double seconds) {
  config::DataConfig config{.name = "synthetic"};
  config.shape = {1, 28, 28};
  config.synthetic_samples = 60'000;
  const auto made_up = data::open(config, data::Split::train);
  const auto fashion = data::open({}, data::Split::train);
  config::Config augmented;
  augmented.augment = {.crop_padding = 2, .flip = 0.5};
  const auto varied = data::open_splits(augmented).train;
  const data::LoaderOptions options{.batch = 128, .workers = workers, .prefetch = 8};
  data::Loader a(*made_up, options), b(*fashion, options), c(*varied, options);
  const auto synthetic = rate_of(a, seconds);
  const auto real = rate_of(b, seconds);
  const auto with_augmentation = rate_of(c, seconds);
  fmt::print(R"({{"bench":"loader","workers":{},"synthetic_samples_s":{:.0f},)"
             R"("fashion_mnist_samples_s":{:.0f},"crop_and_flip_samples_s":{:.0f}}})"
             "\n",
             workers, synthetic, real, with_augmentation);
}

// As a photograph: smooth shapes with some noise on them.
std::string jpeg_of(int height, int width, int seed) {
  torch::manual_seed(seed);
  const auto coarse = torch::rand({1, 3, 12, 16});
  const auto smooth = torch::upsample_bicubic2d(coarse, {height, width}, false);
  const auto noise = torch::randn({1, 3, height, width}) * 0.04;
  const auto pixels = ((smooth + noise) * 255)
                          .clamp(0, 255)
                          .to(torch::kUInt8)[0]
                          .permute({1, 2, 0})
                          .contiguous();
  void* handle = ::tjInitCompress();
  unsigned char* out = nullptr;
  unsigned long size = 0;  // NOLINT: the library's type
  ::tjCompress2(handle, pixels.data_ptr<std::uint8_t>(), width, 0, height, TJPF_RGB,
                &out, &size, TJSAMP_420, 90, 0);
  std::string bytes(reinterpret_cast<char*>(out), size);
  ::tjFree(out);
  ::tjDestroy(handle);
  return bytes;
}

double bare_loop(const std::vector<std::string>& files, int height, int width) {
  void* handle = ::tjInitDecompress();
  std::vector<unsigned char> pixels(static_cast<std::size_t>(height) *
                                    static_cast<std::size_t>(width) * 3);
  const auto begin = cpu_seconds();
  for (const auto& file : files) {
    ::tjDecompress2(handle, reinterpret_cast<const unsigned char*>(file.data()),
                    file.size(), pixels.data(), width, 0, height, TJPF_RGB, 0);
  }
  const auto rate = static_cast<double>(files.size()) / (cpu_seconds() - begin);
  ::tjDestroy(handle);
  return rate;
}

// Images a second of CPU time, of a loader in its steady state. What was made ahead
// does not count: the clock starts when the consumer has to wait.
double loader_rate(data::Loader& loader, std::int64_t samples) {
  while (loader.is_ready()) loader.next();
  const auto begin = cpu_seconds();
  std::int64_t done = 0;
  while (done < samples) done += loader.next()->size;
  return static_cast<double>(done) / (cpu_seconds() - begin);
}

void bench_jpeg(int height, int width, int rounds) {
  constexpr int kFiles = 256;
  const files::TemporaryDirectory folder;
  std::filesystem::create_directories(folder.path() / "train" / "all");
  std::vector<std::string> files;
  for (int i = 0; i < kFiles; ++i) {
    files.push_back(jpeg_of(height, width, i));
    write_file(folder.path() / "train" / "all" / fmt::format("{:04}.jpg", i),
               files.back().data(), files.back().size());
  }
  config::DataConfig config{.name = "image_folder", .dir = folder.path()};
  const auto whole = data::open(config, data::Split::train);
  config.resize = 224;
  const auto resized = data::open(config, data::Split::train);
  const data::LoaderOptions options{.batch = 2, .prefetch = 4};
  std::vector<double> bare, ours, small, ratios;
  data::Loader all(*whole, options), squares(*resized, options);
  // Until the loaders are full, so that their workers sleep.
  const auto rest = [] { std::this_thread::sleep_for(std::chrono::milliseconds(200)); };
  for (int round = 0; round < rounds; ++round) {
    rest();
    bare.push_back(bare_loop(files, height, width));
    ours.push_back(loader_rate(all, kFiles));
    rest();
    small.push_back(loader_rate(squares, kFiles));
    ratios.push_back(ours.back() / bare.back());
  }
  fmt::print(
      R"({{"bench":"jpeg","height":{},"width":{},"kilobytes":{},"bare_s":{:.1f},)"
      R"("ours_s":{:.1f},"ratio":{:.4f},"resized_224_s":{:.1f}}})"
      "\n",
      height, width, files[0].size() / 1000, median(bare), median(ours), median(ratios),
      median(small));
}

void bench_tokens(double seconds) {
  constexpr std::int64_t kTokens = 64 << 20;
  const files::TemporaryDirectory folder;
  const auto tokens =
      torch::randint(50257, {kTokens}, torch::kInt32).to(torch::kUInt16).contiguous();
  write_file(folder.path() / "train.bin", tokens.data_ptr(), tokens.nbytes());
  const auto windows = data::open(
      {.name = "tokens", .dir = folder.path(), .sequence = 1024, .classes = 50257},
      data::Split::train);
  data::Loader loader(*windows, {.batch = 64, .prefetch = 4});
  const auto rate = rate_of(loader, seconds) * 1024;
  std::vector<std::byte> copy(tokens.nbytes());
  const auto begin = Steady::now();
  std::memcpy(copy.data(), tokens.data_ptr(), copy.size());
  const auto memcpy_rate = static_cast<double>(copy.size()) / seconds_since(begin);
  fmt::print(R"({{"bench":"tokens","tokens_s":{:.0f},"written_gb_s":{:.2f},)"
             R"("memcpy_gb_s":{:.2f}}})"
             "\n",
             rate, rate * 16 / 1e9, memcpy_rate / 1e9);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const auto number = [&](int at, double otherwise) {
    return argc > at ? std::atof(argv[at]) : otherwise;
  };
  at::set_num_threads(1);
  if (what == "loader") {
    bench_loader(static_cast<int>(number(2, 2)), number(3, 3));
  } else if (what == "jpeg") {
    bench_jpeg(static_cast<int>(number(2, 375)), static_cast<int>(number(3, 500)),
               static_cast<int>(number(4, 9)));
  } else if (what == "tokens") {
    bench_tokens(number(2, 3));
  } else {
    fmt::print(stderr, "usage: bench_data loader|jpeg|tokens ...\n");
    return 2;
  }
  return 0;
}
