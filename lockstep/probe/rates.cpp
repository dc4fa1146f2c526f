#include "lockstep/probe/rates.h"

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/hardware/machine.h"
#include "lockstep/kernels/workers.h"

namespace lockstep::probe {
namespace {

using torch::Tensor;

// Copies with all threads, each its part: a copy by one core is slower than the memory.
double host_copy(std::int64_t bytes, double seconds) {
  const auto from = torch::ones({bytes}, torch::kUInt8);
  const auto to = torch::zeros({bytes}, torch::kUInt8);
  const auto* source = from.const_data_ptr<std::uint8_t>();
  auto* target = to.mutable_data_ptr<std::uint8_t>();
  constexpr std::int64_t kPiece = 1 << 16;
  kernels::Workers workers(bytes / kPiece, 1);
  const auto copy = [&] {
    workers.run([&](std::int64_t begin, std::int64_t end) {
      std::memcpy(target + begin * kPiece, source + begin * kPiece,
                  static_cast<std::size_t>((end - begin) * kPiece));
    });
  };
  return 2.0 * static_cast<double>(bytes / kPiece * kPiece) /
         seconds_of(copy, torch::kCPU, seconds);
}

// Returns the bytes that arrive in a second. One side is on a GPU.
double copy_rate(const Tensor& to, const Tensor& from, double seconds) {
  const auto gpu = to.is_cuda() ? to.device() : from.device();
  const auto work = [&] { to.copy_(from, /*non_blocking=*/true); };
  return static_cast<double>(from.nbytes()) / seconds_of(work, gpu, seconds);
}

// Limits the size so that copies leave room for other memory.
std::int64_t fitting(std::int64_t wanted, std::int64_t available) {
  constexpr std::int64_t kLeast = 1 << 20;
  return std::max(kLeast, std::min(wanted, available / 8));
}

}  // namespace

double matrix_flops(const MatrixProduct& product, double seconds) {
  const auto& [device, dtype, rows] = product;
  const torch::NoGradGuard no_grad;
  const auto options = torch::dtype(dtype).device(device);
  // The values are not ones: a GPU clocks higher when few bits change.
  const auto a = torch::randn({rows, rows}, options);
  const auto b = torch::randn({rows, rows}, options);
  auto c = torch::empty({rows, rows}, options);
  const auto once =
      seconds_of([&] { torch::mm_out(c, a, b); }, product.device, seconds);
  const auto n = static_cast<double>(rows);
  return 2 * n * n * n / once;
}

hardware::Measured measure_host(const Effort& effort) {
  hardware::Measured measured;
  measured.host_copy =
      host_copy(fitting(effort.copied_bytes, hardware::host_memory().available_bytes),
                effort.seconds);
  measured.cpu_flops =
      matrix_flops({torch::kCPU, torch::kFloat32, effort.host_matrix}, effort.seconds);
  return measured;
}

hardware::MeasuredGpu measure_gpu(int index, const Effort& effort) {
  if (!torch::cuda::is_available() || index >= torch::cuda::device_count()) {
    throw Error(Fault::hardware, "measure: there is no GPU ", index,
                " for this program; `lockstep doctor` says why");
  }
  const torch::Device gpu(torch::kCUDA, static_cast<c10::DeviceIndex>(index));
  const c10::DeviceGuard guard(gpu);
  hardware::MeasuredGpu measured{.index = index, .uuid = ""};
  {
    const auto bytes =
        fitting(effort.copied_bytes, hardware::host_memory().available_bytes);
    const auto on_gpu = torch::ones({bytes}, torch::dtype(torch::kUInt8).device(gpu));
    const auto other = torch::empty_like(on_gpu);
    const auto pinned =
        torch::ones({bytes}, torch::dtype(torch::kUInt8).pinned_memory(true));
    measured.copy = 2 * copy_rate(other, on_gpu, effort.seconds);
    measured.from_host = copy_rate(on_gpu, pinned, effort.seconds);
    measured.to_host = copy_rate(pinned, on_gpu, effort.seconds);
  }
  measured.bf16_flops =
      matrix_flops({gpu, torch::kBFloat16, effort.gpu_matrix}, effort.seconds);
  measured.fp32_flops =
      matrix_flops({gpu, torch::kFloat32, effort.gpu_matrix / 2}, effort.seconds);
  return measured;
}

}  // namespace lockstep::probe
