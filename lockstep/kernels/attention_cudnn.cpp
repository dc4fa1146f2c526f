// The only source that sees cuDNN's frontend. LibTorch has a copy of another version
// inside: ours has a name of its own and is not visible outside of this source
// (CMakeLists.txt), or one would call the other.
#include <algorithm>
#include <cmath>
#include <unordered_map>

#include <cudnn_frontend.h>
#include <dlfcn.h>

#include "lockstep/base/error.h"
#include "lockstep/kernels/attention.h"

namespace cudnn_frontend {

void* cudnn_dlhandle = nullptr;  // what the frontend takes its functions from

}  // namespace cudnn_frontend

namespace lockstep::kernels {
namespace {

namespace fe = cudnn_frontend;
using fe::graph::Graph;
using TensorPtr = std::shared_ptr<fe::graph::Tensor_attributes>;

enum Id : std::int64_t { kQ = 1, kK, kV, kOut, kSums, kByOut, kByQ, kByK, kByV };

// LibTorch has loaded it, from wherever it found it.
bool load_cudnn() noexcept {
  static const bool loaded = [] {
    fe::cudnn_dlhandle = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_GLOBAL);
    return fe::cudnn_dlhandle != nullptr;
  }();
  return loaded;
}

void check_fe(fe::error_t status, const char* what) {
  if (status.is_good()) return;
  throw Error(Fault::hardware, "kernels: cuDNN's attention, ", what, ": ",
              status.get_message());
}

void check_handle(cudnnStatus_t status) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw Error(Fault::hardware,
              "kernels: cuDNN: ", fe::detail::get_error_string(status));
}

class Handle {
 public:
  Handle() { check_handle(fe::detail::create_handle(&handle_)); }
  ~Handle() { fe::detail::destroy_handle(handle_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  cudnnHandle_t get() const noexcept { return handle_; }

 private:
  cudnnHandle_t handle_ = nullptr;
};

// Describes tensors of one size to cuDNN.
class Shapes {
 public:
  explicit Shapes(const Attention::Sizes& sizes) : sizes_(sizes) {}

  // `pitch` is how many numbers lie between two tokens.
  void describe(fe::graph::Tensor_attributes& tensor, Id id, std::int64_t pitch) const {
    const auto& [batch, length, heads, width] = sizes_;
    tensor.set_uid(id)
        .set_dim({batch, heads, length, width})
        .set_stride({length * pitch, width, pitch, 1});
  }
  TensorPtr add(Graph& graph, Id id, std::int64_t pitch) const {
    fe::graph::Tensor_attributes tensor;
    describe(tensor, id, pitch);
    return graph.tensor(tensor);
  }
  void describe_sums(fe::graph::Tensor_attributes& tensor) const {
    const auto& [batch, length, heads, width] = sizes_;
    tensor.set_uid(kSums)
        .set_dim({batch, heads, length, 1})
        .set_stride({heads * length, length, 1, 1})
        .set_data_type(fe::DataType_t::FLOAT);
  }
  std::int64_t packed() const { return 3 * apart(); }
  std::int64_t apart() const { return sizes_.heads * sizes_.width; }
  float scale() const { return 1 / std::sqrt(static_cast<float>(sizes_.width)); }

 private:
  const Attention::Sizes sizes_;
};

void begin(Graph& graph) {
  graph.set_io_data_type(fe::DataType_t::BFLOAT16)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
}

void describe_forward(Graph& graph, const Shapes& shapes) {
  begin(graph);
  const auto q = shapes.add(graph, kQ, shapes.packed());
  const auto k = shapes.add(graph, kK, shapes.packed());
  const auto v = shapes.add(graph, kV, shapes.packed());
  const auto [out, sums] = graph.sdpa(q, k, v,
                                      fe::graph::SDPA_attributes()
                                          .set_name("forward")
                                          .set_generate_stats(true)
                                          .set_causal_mask(true)
                                          .set_attn_scale(shapes.scale()));
  shapes.describe(out->set_output(true), kOut, shapes.apart());
  shapes.describe_sums(sums->set_output(true));
}

void describe_backward(Graph& graph, const Shapes& shapes, bool deterministic) {
  begin(graph);
  const auto q = shapes.add(graph, kQ, shapes.packed());
  const auto k = shapes.add(graph, kK, shapes.packed());
  const auto v = shapes.add(graph, kV, shapes.packed());
  const auto out = shapes.add(graph, kOut, shapes.apart());
  const auto by_out = shapes.add(graph, kByOut, shapes.apart());
  fe::graph::Tensor_attributes sums;
  shapes.describe_sums(sums);
  const auto [by_q, by_k, by_v] =
      graph.sdpa_backward(q, k, v, out, by_out, graph.tensor(sums),
                          fe::graph::SDPA_backward_attributes()
                              .set_name("backward")
                              .set_causal_mask(true)
                              .set_attn_scale(shapes.scale())
                              .set_deterministic_algorithm(deterministic));
  shapes.describe(by_q->set_output(true), kByQ, shapes.packed());
  shapes.describe(by_k->set_output(true), kByK, shapes.packed());
  shapes.describe(by_v->set_output(true), kByV, shapes.packed());
}

}  // namespace

struct Attention::Impl {
  Shapes shapes;
  Handle handle;
  Graph forward, backward;
  std::size_t workspace_bytes = 0;

  Impl(const Sizes& sizes, bool deterministic) : shapes(sizes) {
    describe_forward(forward, shapes);
    describe_backward(backward, shapes, deterministic);
    for (auto* graph : {&forward, &backward}) {
      check_fe(graph->build(handle.get(), {fe::HeurMode_t::A}), "no kernel for it");
      std::int64_t bytes = 0;
      check_fe(graph->get_workspace_size(bytes), "its workspace");
      workspace_bytes = std::max(workspace_bytes, static_cast<std::size_t>(bytes));
    }
  }

  using Places = std::unordered_map<std::int64_t, void*>;
  // cuDNN takes what it only reads as a pointer to what may be written, too.
  Places places(const Tensors& tensors) const {
    const auto third = [&](const void* qkv, int part) {
      auto* first = static_cast<std::uint16_t*>(const_cast<void*>(qkv));
      return static_cast<void*>(first + part * shapes.apart());
    };
    Places at{{kQ, third(tensors.qkv, 0)},
              {kK, third(tensors.qkv, 1)},
              {kV, third(tensors.qkv, 2)},
              {kOut, tensors.out},
              {kSums, tensors.sums}};
    if (tensors.by_qkv == nullptr) return at;
    at.insert({{kByOut, const_cast<void*>(tensors.by_out)},
               {kByQ, third(tensors.by_qkv, 0)},
               {kByK, third(tensors.by_qkv, 1)},
               {kByV, third(tensors.by_qkv, 2)}});
    return at;
  }

  void run(Graph& graph, const Tensors& tensors, CUstream_st* stream) {
    check_handle(fe::detail::set_stream(handle.get(), stream));
    auto at = places(tensors);
    check_fe(graph.execute(handle.get(), at, tensors.workspace), "its launch");
  }
};

Attention::Attention(const Sizes& sizes, bool deterministic) {
  LOCKSTEP_CHECK(load_cudnn(), "is_available() was not asked");
  impl_ = std::make_unique<Impl>(sizes, deterministic);
}

Attention::~Attention() = default;

void Attention::forward(const Tensors& tensors, CUstream_st* stream) {
  auto without = tensors;
  without.by_qkv = nullptr;
  impl_->run(impl_->forward, without, stream);
}

void Attention::backward(const Tensors& tensors, CUstream_st* stream) {
  impl_->run(impl_->backward, tensors, stream);
}

std::size_t Attention::workspace_bytes() const noexcept {
  return impl_->workspace_bytes;
}

bool Attention::is_available() noexcept {
  return load_cudnn();
}

}  // namespace lockstep::kernels
