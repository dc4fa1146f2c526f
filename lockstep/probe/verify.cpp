#include "lockstep/probe/verify.h"

#include <algorithm>
#include <functional>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"

namespace lockstep::probe {
namespace {

using torch::Tensor;

std::string compared(const Tensor& got, const Tensor& known) {
  if (torch::equal(got, known)) return "";
  return str((got != known).sum().item<std::int64_t>(), " of ", known.numel(),
             " values are wrong");
}

class Verify {
 public:
  Verify(const torch::Device& device, const VerifyOptions& options)
      : device_(device), options_(options) {}

  // a_i u_k times v_k b_j, summed over k, is a_i b_j times the sum of u_k v_k, which is
  // 4: small whole numbers all the way, so that every order of summation, and bf16,
  // has the exact result.
  std::string product(torch::Dtype dtype) const {
    const auto n = options_.rows;
    const auto k = torch::arange(n, torch::kInt64);
    const auto a = (k * 5 % 7 - 3).to(torch::kFloat32);
    const auto b = (k * 3 % 7 - 3).to(torch::kFloat32);
    const auto u =
        (k.mul(2654435761).bitwise_right_shift(16) % 2 * 2 - 1).to(torch::kFloat32);
    const auto v = torch::where(k < (n + 4) / 2, u, -u);
    const auto left = torch::outer(a, u).to(device_, dtype);
    const auto right = torch::outer(v, b).to(device_, dtype);
    const auto got = torch::mm(left, right).to(torch::kCPU, torch::kFloat32);
    damage(got);
    return compared(got, torch::outer(a, b) * 4);
  }

  // Writes all of it before any of it is read.
  std::string memory() const {
    constexpr std::int64_t kChunkBytes = 256 << 20;
    const auto words = std::max<std::int64_t>(options_.memory_bytes, kWord) / kWord;
    std::vector<Tensor> chunks;
    for (std::int64_t at = 0; at < words; at += kChunkBytes / kWord) {
      const auto count = std::min(kChunkBytes / kWord, words - at);
      chunks.push_back(
          torch::empty({count}, torch::dtype(torch::kInt64).device(device_)));
    }
    for (const bool inverse : {false, true}) {
      std::int64_t at = 0;
      for (auto& chunk : chunks) {
        fill(chunk, at, inverse);
        at += chunk.numel();
      }
      if (auto problem = read_back(chunks, inverse); !problem.empty()) return problem;
    }
    return "";
  }

  std::string twice(torch::Dtype dtype) const {
    const auto n = options_.rows;
    auto generator = at::make_generator<at::CPUGeneratorImpl>(7);
    const auto left = torch::randn({n, n}, generator).to(device_, dtype);
    const auto right = torch::randn({n, n}, generator).to(device_, dtype);
    const auto once = [&] {
      const auto product = torch::mm(left, right);
      return torch::cat({product.flatten(), product.sum(0), product.exp().sum(1)})
          .to(torch::kCPU);
    };
    const auto first = once();
    const auto second = once();
    damage(second);
    if (torch::equal(first.view(torch::kInt16), second.view(torch::kInt16))) return "";
    return "the same computation has other bits the second time";
  }

 private:
  static constexpr std::int64_t kWord = sizeof(std::int64_t);

  void damage(const Tensor& t) const {
    if (options_.damage) options_.damage(t);
  }

  static void fill(Tensor& chunk, std::int64_t begin, bool inverse) {
    torch::arange_out(chunk, begin, begin + chunk.numel(), 1);
    chunk.mul_(0x1E3779B97F4A7C15);
    if (inverse) chunk.bitwise_not_();
  }

  std::string read_back(const std::vector<Tensor>& chunks, bool inverse) const {
    std::int64_t at = 0;
    for (const auto& chunk : chunks) {
      damage(chunk);
      auto known = torch::empty_like(chunk);
      fill(known, at, inverse);
      if (!torch::equal(chunk, known)) {
        return str((chunk != known).sum().item<std::int64_t>(), " of ", chunk.numel(),
                   " words from byte ", at * kWord,
                   " on are not what was written there");
      }
      at += chunk.numel();
    }
    return "";
  }

  const torch::Device device_;
  const VerifyOptions& options_;
};

hardware::GpuCheckStep timed(std::string what,
                             const std::function<std::string()>& work) {
  const auto& clock = Clock::system();
  const auto begin = clock.now();
  hardware::GpuCheckStep step{.what = std::move(what), .problem = ""};
  try {
    step.problem = work();
  } catch (const c10::Error& error) {
    step.problem = error.what_without_backtrace();
  } catch (const std::exception& error) {
    step.problem = error.what();
  }
  step.seconds = seconds_between(begin, clock.now());
  return step;
}

}  // namespace

std::vector<hardware::GpuCheckStep> verify(const torch::Device& device,
                                           const VerifyOptions& options) {
  const torch::NoGradGuard no_grad;
  const c10::OptionalDeviceGuard guard(device.is_cuda() ? std::make_optional(device)
                                                        : std::nullopt);
  const Verify check(device, options);
  const auto memory =
      str("patterns in ", options.memory_bytes >> 20, " MiB of its memory");
  return {
      timed("matrix product in fp32", [&] { return check.product(torch::kFloat32); }),
      timed("matrix product in bf16", [&] { return check.product(torch::kBFloat16); }),
      timed(memory, [&] { return check.memory(); }),
      timed("the same twice in fp32", [&] { return check.twice(torch::kFloat32); }),
      timed("the same twice in bf16", [&] { return check.twice(torch::kBFloat16); })};
}

}  // namespace lockstep::probe
