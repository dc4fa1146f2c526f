#include "lockstep/base/error.h"
#include "lockstep/kernels/attention.h"

namespace lockstep::kernels {

struct Attention::Impl {};

Attention::Attention(const Sizes&, bool) {
  throw Error(Fault::internal, "kernels: this build has no attention by cuDNN");
}

Attention::~Attention() = default;

void Attention::forward(const Tensors&, CUstream_st*) {}

void Attention::backward(const Tensors&, CUstream_st*) {}

std::size_t Attention::workspace_bytes() const noexcept {
  return 0;
}

bool Attention::is_available() noexcept {
  return false;
}

}  // namespace lockstep::kernels
