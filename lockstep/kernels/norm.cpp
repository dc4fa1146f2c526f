#include "lockstep/kernels/norm.h"

#include <algorithm>

#include "lockstep/kernels/detail/halves.h"
#include "lockstep/kernels/detail/vectors.h"
#include "lockstep/kernels/workers.h"

namespace lockstep::kernels {
namespace {

template <typename In, bool kSquares>
struct BlockSum {
  const In* in;
  std::int64_t count;
  double* out;

  [[gnu::always_inline]] static double term(In value) {
    const double x = detail::widened(value);
    return kSquares ? x * x : x;
  }

  [[gnu::always_inline]] void operator()() const {
    double lanes[kNormLanes] = {};
    const std::int64_t whole = count / kNormLanes * kNormLanes;
    for (std::int64_t i = 0; i < whole; i += kNormLanes) {
      for (int lane = 0; lane < kNormLanes; ++lane) lanes[lane] += term(in[i + lane]);
    }
    for (auto i = whole; i < count; ++i) lanes[i - whole] += term(in[i]);
    for (int width = kNormLanes / 2; width > 0; width /= 2) {
      for (int lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
    }
    *out = lanes[0];
  }
};

template <typename In, bool kSquares>
void sum_block(const In* in, std::int64_t num_elements, std::int64_t block,
               double* sums) {
  const auto begin = block * kNormBlock;
  detail::run_with_vectors(BlockSum<In, kSquares>{
      in + begin, std::min(kNormBlock, num_elements - begin), sums + block});
}

// Sums the blocks' sums: at most a few thousand numbers.
void sum_levels(double* sums, std::int64_t count, double* out) {
  while (count > 1) {
    const auto blocks = norm_blocks(count);
    double* next = blocks == 1 ? out : sums + count;
    for (std::int64_t b = 0; b < blocks; ++b) {
      sum_block<double, false>(sums, count, b, next);
    }
    sums = next;
    count = blocks;
  }
}

template <typename In>
void run(const SquaredNormArgs& args, Workers& workers) {
  const auto blocks = norm_blocks(args.num_elements);
  double* sums = blocks == 1 ? args.out : args.workspace;
  const auto* in = static_cast<const In*>(args.in);
  workers.run([&](std::int64_t begin, std::int64_t end) {
    for (auto b = begin; b < end; ++b) {
      sum_block<In, true>(in, args.num_elements, b, sums);
    }
  });
  sum_levels(sums, blocks, args.out);
}

}  // namespace

void squared_norm_cpu(const SquaredNormArgs& args, Workers& workers) {
  switch (args.element) {
    case Element::f32:
      return run<float>(args, workers);
    case Element::f64:
      return run<double>(args, workers);
    case Element::bf16:
      return run<detail::Bf16>(args, workers);
    case Element::f16:
      return run<detail::F16>(args, workers);
  }
}

}  // namespace lockstep::kernels
