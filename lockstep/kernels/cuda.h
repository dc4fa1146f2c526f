#pragma once

#include <cstdint>

#include "lockstep/kernels/add_relu.h"
#include "lockstep/kernels/cross_entropy.h"
#include "lockstep/kernels/dropout.h"
#include "lockstep/kernels/embedding.h"
#include "lockstep/kernels/gelu.h"
#include "lockstep/kernels/layer_norm.h"
#include "lockstep/kernels/norm.h"
#include "lockstep/kernels/pack_columns.h"
#include "lockstep/kernels/update.h"

struct CUstream_st;  // cudaStream_t, without the CUDA headers

// The seam to device code: implemented by the CUDA sources, or by no_cuda.cpp. It takes
// raw pointers, counts and a stream; no tensor, so that a .cu file compiles in two
// seconds.
namespace lockstep::kernels {

// Returns whether this build has device code of its own. Without it, tensors on a GPU
// go through LibTorch's operators.
bool cuda_available() noexcept;

CUstream_st* current_stream(int device);
// Returns whether launches on it become part of a CUDA graph.
bool is_capturing(CUstream_st* stream);

inline constexpr int kMostChannels = 16;

// out = scale * in + shift. Elements come in planes, one channel after the other and
// again from the first.
struct Normalize {
  float* out;
  const std::uint8_t* in;
  float scale[kMostChannels];
  float shift[kMostChannels];
  int num_channels;
  std::int64_t plane;  // elements of one
  std::int64_t num_elements;
};

// Numbers of eight bytes each on their way to the device: as arguments of a kernel, so
// that no memory of the host has to outlive the launch and no thread waits for a copy.
inline constexpr int kMostWords = 240;  // twice they fit into 4 KiB of arguments
struct Words {
  std::uint64_t* out = nullptr;
  const double* takes_second = nullptr;  // on the device; not 0: `second`, else `first`
  int count = 0;
  std::uint64_t first[kMostWords] = {};
  std::uint64_t second[kMostWords] = {};
};

// All functions below launch on `stream` and check the launch; none waits for it.
void put_words_cuda(const Words& words, CUstream_st* stream);
void normalize_cuda(const Normalize& args, CUstream_st* stream);
void add_relu_cuda(const AddRelu& args, CUstream_st* stream);
void dropout_cuda(const Dropout& args, CUstream_st* stream);
void update_cuda(const UpdateArgs& update, CUstream_st* stream);
void squared_norm_cuda(const SquaredNormArgs& args, CUstream_st* stream);
void clip_factor_cuda(const ClipFactor& args, CUstream_st* stream);
void layer_norm_cuda(const LayerNorm& args, CUstream_st* stream);
void layer_norm_backward_cuda(const LayerNormBackward& args, CUstream_st* stream);
void gelu_cuda(const Gelu& args, CUstream_st* stream);
void gelu_backward_cuda(const GeluBackward& args, CUstream_st* stream);
void cross_entropy_cuda(const CrossEntropy& args, CUstream_st* stream);
void embedding_cuda(const Embedding& args, CUstream_st* stream);
void embedding_backward_cuda(const EmbeddingBackward& args, CUstream_st* stream);
void pack_columns_cuda(const PackColumns& args, CUstream_st* stream);

}  // namespace lockstep::kernels
