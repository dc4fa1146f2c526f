// How fast is text encoded?
//
//   bench_tokenizer TOKENIZER TEXT THREADS [ROUNDS]
//
// Reads TEXT into memory first. Prints the median rates as one JSON line: by the clock,
// and by the CPU time of all threads, which other jobs on the machine do not change.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "benchmarks/support.h"
#include <fmt/format.h>

#include "lockstep/base/files.h"
#include "lockstep/tokenizer/parallel.h"

using namespace lockstep;  // NOLINT: a program of one file

int main(int argc, char** argv) {
  using Steady = std::chrono::steady_clock;
  if (argc < 4) return 2;
  const auto loaded = Steady::now();
  const auto with = tokenizer::Tokenizer::load(argv[1]);
  const std::chrono::duration<double> load_time = Steady::now() - loaded;
  const auto text = files::read(argv[2], std::int64_t{1} << 40);
  const auto threads = std::strtoul(argv[3], nullptr, 10);
  const int rounds = argc > 4 ? std::atoi(argv[4]) : 1;
  const auto megabytes = static_cast<double>(text.size()) / 1e6;
  std::vector<double> rates, cpu_rates;
  std::size_t count = 0;
  for (int round = 0; round < rounds; ++round) {
    // A new encoder each time: what it learns of the text is part of the work.
    tokenizer::ParallelEncoder encoder(with, threads);
    const auto cpu_begin = cpu_seconds();
    const auto begin = Steady::now();
    count = encoder.encode(text, tokenizer::Special::as_text).size();
    const std::chrono::duration<double> took = Steady::now() - begin;
    rates.push_back(megabytes / took.count());
    cpu_rates.push_back(megabytes / (cpu_seconds() - cpu_begin));
  }
  fmt::print(
      "{{\"mb_s\": {:.2f}, \"cpu_mb_s\": {:.2f}, \"tokens\": {}, \"bytes\": {}, "
      "\"load_s\": {:.3f}}}\n",
      median(rates), median(cpu_rates), count, text.size(), load_time.count());
  return 0;
}
