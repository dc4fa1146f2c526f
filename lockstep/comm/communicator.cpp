// The part that all backends have in common: the form of a call is checked here, once.
#include "lockstep/comm/communicator.h"

#include <algorithm>
#include <array>

#include <c10/core/impl/VirtualGuardImpl.h>

#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

std::string place(const CallSite& site) {
  return str(site.file, ":", site.line);
}

// A wrong call is a mistake in the calling program.
template <typename... Parts>
void require(bool holds, const Call& call, const Parts&... parts) {
  if (holds) return;
  throw Error(Fault::internal, "comm: ", describe(call), " at ", place(call.site), ": ",
              parts...);
}

bool can_travel(torch::Dtype type) {
  constexpr std::array kTypes = {torch::kFloat64,  torch::kFloat32, torch::kHalf,
                                 torch::kBFloat16, torch::kInt64,   torch::kInt32,
                                 torch::kInt8,     torch::kUInt8};
  return std::find(kTypes.begin(), kTypes.end(), type) != kTypes.end();
}

void check_tensor(const Call& call, const torch::Tensor& t,
                  const torch::Device& device) {
  require(t.defined(), call, "a tensor is undefined");
  require(can_travel(t.scalar_type()), call,
          "this dtype is not exchanged; convert it, to int32 or float32 for example");
  require(t.is_contiguous(), call, "a tensor is not contiguous; give a contiguous one");
  require(t.device() == device, call, "a tensor is on ", t.device().str(),
          ", this rank exchanges tensors on ", device.str());
}

bool reduces(Kind kind) {
  return kind == Kind::all_reduce || kind == Kind::reduce_scatter;
}

void check_reduction(const Call& call) {
  if (!reduces(call.kind)) return;
  const auto type = call.out[0].scalar_type();
  require(call.op != Reduce::mean || !c10::isIntegralType(type, true), call,
          "integers have no mean; reduce with sum");
}

void check_sizes(const Call& call, int size) {
  if (call.kind == Kind::reduce_scatter) {
    require(call.in.numel() == size * call.out[0].numel(), call, "in has ",
            call.in.numel(), " elements, out ", call.out[0].numel(), " * ", size,
            " ranks = ", size * call.out[0].numel());
  } else if (call.kind == Kind::all_gather) {
    require(call.out[0].numel() == size * call.in.numel(), call, "out has ",
            call.out[0].numel(), " elements, in ", call.in.numel(), " * ", size,
            " ranks = ", size * call.in.numel());
  }
}

void check_peer(const Call& call, int rank, int size) {
  const bool has_peer = call.kind == Kind::broadcast || call.kind == Kind::send ||
                        call.kind == Kind::recv;
  if (!has_peer) return;
  require(call.peer >= 0 && call.peer < size, call, "rank ", call.peer,
          " is not one of ", size);
  require(call.kind == Kind::broadcast || call.peer != rank, call,
          "a rank cannot exchange with itself");
}

void check_uneven(const Call& call, int rank, int size) {
  require(static_cast<int>(call.out.size()) == size, call, "there are ",
          call.out.size(), " outs for ", size, " ranks");
  const auto& own = call.out[static_cast<std::size_t>(rank)];
  require(own.numel() == call.in.numel(), call, "outs[", rank, "] has ", own.numel(),
          " elements, in ", call.in.numel());
}

struct SplitTensor {
  const torch::Tensor& t;
  const std::vector<std::int64_t>& splits;
};

void check_splits(const Call& call, const SplitTensor& cut, int size) {
  const auto& [t, splits] = cut;
  require(t.dim() > 0, call, "a scalar cannot be cut");
  if (splits.empty()) {
    require(t.size(0) % size == 0, call, "dimension 0 has ", t.size(0),
            " rows, not a multiple of ", size, " ranks; give the lengths");
    return;
  }
  std::int64_t sum = 0;
  for (const auto length : splits) sum += length;
  require(static_cast<int>(splits.size()) == size && sum == t.size(0), call, "lengths ",
          c10::IntArrayRef(splits), " do not cut ", t.size(0), " rows into ", size);
}

}  // namespace

void Pending::wait() {
  if (!impl_) return;
  const auto impl = std::move(impl_);
  impl->wait();
}

bool Pending::done() {
  return !impl_ || impl_->done();
}

std::string_view name_of(Kind kind) noexcept {
  constexpr std::array<std::string_view, 8> kNames = {
      "all_reduce", "reduce_scatter", "all_gather", "all_gather_uneven",
      "broadcast",  "all_to_all",     "send",       "recv"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string_view name_of(Reduce op) noexcept {
  constexpr std::array<std::string_view, 4> kNames = {"sum", "mean", "max", "min"};
  return kNames[static_cast<std::size_t>(op)];
}

std::string describe(const Call& call) {
  const auto& t = call.in.defined() ? call.in : call.out.at(0);
  auto text = std::string(name_of(call.kind));
  if (reduces(call.kind)) text += str("(", name_of(call.op), ")");
  if (call.kind == Kind::broadcast) text += str(" from rank ", call.peer);
  if (call.kind == Kind::send) text += str(" to rank ", call.peer);
  if (call.kind == Kind::recv) text += str(" from rank ", call.peer);
  if (!t.defined()) return text;
  return text + ::lockstep::str(" of ", c10::toString(t.scalar_type()), " ", t.sizes());
}

Pending Communicator::checked_start(Call call) {
  check_peer(call, rank(), size());
  for (const auto& t : call.out) check_tensor(call, t, device());
  if (call.in.defined()) {
    check_tensor(call, call.in, device());
    for (const auto& t : call.out) {
      require(t.scalar_type() == call.in.scalar_type(), call, "out is ",
              c10::toString(t.scalar_type()));
    }
  }
  check_reduction(call);
  check_sizes(call, size());
  if (call.kind == Kind::all_gather_uneven) check_uneven(call, rank(), size());
  if (call.kind == Kind::all_to_all) {
    check_splits(call, {call.out[0], call.out_splits}, size());
    check_splits(call, {call.in, call.in_splits}, size());
  }
  return start(call);
}

Pending Communicator::all_reduce(const torch::Tensor& t, Reduce op, CallSite site) {
  return checked_start({.kind = Kind::all_reduce, .op = op, .out = {t}, .site = site});
}

Pending Communicator::reduce_scatter(const torch::Tensor& out, const torch::Tensor& in,
                                     Reduce op, CallSite site) {
  return checked_start(
      {.kind = Kind::reduce_scatter, .op = op, .out = {out}, .in = in, .site = site});
}

Pending Communicator::all_gather(const torch::Tensor& out, const torch::Tensor& in,
                                 CallSite site) {
  return checked_start(
      {.kind = Kind::all_gather, .out = {out}, .in = in, .site = site});
}

Pending Communicator::all_gather(std::vector<torch::Tensor> outs,
                                 const torch::Tensor& in, CallSite site) {
  return checked_start({.kind = Kind::all_gather_uneven,
                        .out = std::move(outs),
                        .in = in,
                        .site = site});
}

Pending Communicator::broadcast(const torch::Tensor& t, int root, CallSite site) {
  return checked_start(
      {.kind = Kind::broadcast, .out = {t}, .peer = root, .site = site});
}

Pending Communicator::all_to_all(const torch::Tensor& out, const torch::Tensor& in,
                                 std::vector<std::int64_t> out_splits,
                                 std::vector<std::int64_t> in_splits, CallSite site) {
  return checked_start({.kind = Kind::all_to_all,
                        .out = {out},
                        .in = in,
                        .out_splits = std::move(out_splits),
                        .in_splits = std::move(in_splits),
                        .site = site});
}

Pending Communicator::send(const torch::Tensor& t, int to, int tag, CallSite site) {
  return checked_start(
      {.kind = Kind::send, .out = {t}, .peer = to, .tag = tag, .site = site});
}

Pending Communicator::recv(const torch::Tensor& t, int from, int tag, CallSite site) {
  return checked_start(
      {.kind = Kind::recv, .out = {t}, .peer = from, .tag = tag, .site = site});
}

void Communicator::barrier(CallSite site) {
  const auto word = torch::zeros({1}, torch::dtype(torch::kInt32).device(device()));
  all_reduce(word, Reduce::sum, site).wait();
  if (device().is_cpu()) return;
  const c10::impl::VirtualGuardImpl guard(device().type());
  guard.synchronizeStream(guard.getStream(device()));
}

}  // namespace lockstep::comm
