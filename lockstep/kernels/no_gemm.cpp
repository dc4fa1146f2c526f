// The stubs that a build without cuBLASLt links instead of gemm_cuda.cpp.
#include "lockstep/base/error.h"
#include "lockstep/kernels/gemm.h"

namespace lockstep::kernels {
namespace {

[[noreturn]] void refuse_gemm() {
  throw Error(Fault::internal, "kernels: this build has no cuBLASLt");
}

}  // namespace

struct Gemms::Impl {};

Gemms::Gemms(void*, std::size_t) {
  refuse_gemm();
}

Gemms::~Gemms() = default;

void Gemms::run(const Gemm&, CUstream_st*) {
  refuse_gemm();
}

Gemms::Tuned Gemms::tune(const Gemm&, CUstream_st*) {
  refuse_gemm();
}

bool Gemms::is_tuned(const GemmShape&) const {
  refuse_gemm();
}

std::string Gemms::choices() const {
  refuse_gemm();
}

void Gemms::use_choices(const std::string&) {
  refuse_gemm();
}

bool gemms_available() noexcept {
  return false;
}

}  // namespace lockstep::kernels
