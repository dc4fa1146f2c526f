// The execution of a collective of `local` once all ranks have come.
#include "lockstep/comm/detail/local_execution.h"

namespace lockstep::comm::detail {
namespace {

using torch::Tensor;

// Halves are summed in float: rounding once, not once a rank.
Tensor reduced(const std::vector<Tensor>& parts, Reduce op, const torch::Device& at) {
  const auto type = parts[0].scalar_type();
  const bool half = type == torch::kHalf || type == torch::kBFloat16;
  const auto wide = half ? torch::kFloat32 : type;
  auto sum = parts[0].to(at, wide, /*non_blocking=*/false, /*copy=*/true);
  for (std::size_t r = 1; r < parts.size(); ++r) {
    const auto part = parts[r].to(at, wide);
    if (op == Reduce::max) {
      sum = torch::maximum(sum, part);
    } else if (op == Reduce::min) {
      sum = torch::minimum(sum, part);
    } else {
      sum.add_(part);
    }
  }
  if (op == Reduce::mean) sum.div_(static_cast<std::int64_t>(parts.size()));
  return sum.to(type);
}

// Carries out one collective for all ranks; the streams have been put in order.
class Execution {
 public:
  Execution(const std::vector<Call>& calls, const torch::Device& at) : at_(at) {
    for (const auto& call : calls) calls_.push_back(&call);
  }

  void run() const {
    switch (calls_[0]->kind) {
      case Kind::all_reduce:
        return all_reduce();
      case Kind::reduce_scatter:
        return reduce_scatter();
      case Kind::all_gather:
        return all_gather();
      case Kind::all_gather_uneven:
        return all_gather_uneven();
      case Kind::broadcast:
        return broadcast();
      default:
        return all_to_all();
    }
  }

 private:
  std::size_t size() const { return calls_.size(); }
  Reduce op() const { return calls_[0]->op; }

  void all_reduce() const {
    std::vector<Tensor> parts;
    for (const auto* call : calls_) parts.push_back(call->out[0]);
    const auto sum = reduced(parts, op(), at_);
    for (const auto* call : calls_) call->out[0].copy_(sum);
  }

  void reduce_scatter() const {
    std::vector<Tensor> parts;
    for (const auto* call : calls_) parts.push_back(call->in.view(-1));
    const auto sum = reduced(parts, op(), at_);
    const auto slices = sum.chunk(static_cast<std::int64_t>(size()));
    for (std::size_t r = 0; r < size() && sum.numel() > 0; ++r) {
      calls_[r]->out[0].view(-1).copy_(slices[r]);
    }
  }

  void all_gather() const {
    for (const auto* to : calls_) {
      const auto out = to->out[0].view(-1);
      std::int64_t at = 0;
      for (const auto* from : calls_) {
        const auto n = from->in.numel();
        out.narrow(0, at, n).copy_(from->in.view(-1));
        at += n;
      }
    }
  }

  void all_gather_uneven() const {
    for (const auto* to : calls_) {
      for (std::size_t r = 0; r < size(); ++r) {
        to->out[r].view(-1).copy_(calls_[r]->in.view(-1));
      }
    }
  }

  void broadcast() const {
    const auto& root = calls_[static_cast<std::size_t>(calls_[0]->peer)]->out[0];
    for (const auto* call : calls_) {
      if (!call->out[0].is_same(root)) call->out[0].copy_(root);
    }
  }

  static std::vector<Tensor> cut(const Tensor& t, const std::vector<std::int64_t>& by,
                                 std::size_t size) {
    const auto even = t.size(0) / static_cast<std::int64_t>(size);
    return t.split_with_sizes(by.empty() ? std::vector<std::int64_t>(size, even) : by);
  }

  void all_to_all() const {
    for (std::size_t to = 0; to < size(); ++to) {
      const auto out = cut(calls_[to]->out[0], calls_[to]->out_splits, size());
      for (std::size_t from = 0; from < size(); ++from) {
        const auto& call = *calls_[from];
        out[from].copy_(cut(call.in, call.in_splits, size())[to]);
      }
    }
  }

  std::vector<const Call*> calls_;
  torch::Device at_;
};

}  // namespace

void execute(const std::vector<Call>& calls, const torch::Device& at) {
  Execution(calls, at).run();
}

}  // namespace lockstep::comm::detail
