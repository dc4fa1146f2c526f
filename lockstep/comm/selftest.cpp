#include "lockstep/comm/selftest.h"

#include <algorithm>
#include <functional>

#include "lockstep/base/error.h"
#include "lockstep/comm/detail/first_text.h"

namespace lockstep::comm {
namespace {

using torch::Tensor;

constexpr std::int64_t kElements = 37;  // not a multiple of anything convenient

// Returns small whole numbers, so that every dtype holds them and their sums exactly;
// different for each rank and place.
std::int64_t value_of(int rank, std::int64_t index) {
  return rank % 3 + index % 5 + 1;
}

class Test {
 public:
  Test(Communicator& communicator, Votes& votes) : comm_(communicator), votes_(votes) {}

  // A row of the table: `body` runs for every dtype.
  struct Row {
    std::string name;
    std::function<void(torch::Dtype)> body;
    bool floats_only = false;
  };

  std::vector<Row> rows();

  SelftestRow run(const Row& row) {
    SelftestRow result{.collective = row.name};
    checks_ = 0;
    problem_.clear();
    for (const auto type :
         {torch::kFloat32, torch::kFloat64, torch::kHalf, torch::kBFloat16,
          torch::kInt32, torch::kInt64, torch::kUInt8}) {
      if (row.floats_only && c10::isIntegralType(type, true)) continue;
      row.body(type);
    }
    result.checks = checks_;
    result.problem = problem_;
    return result;
  }

 private:
  int rank() const { return comm_.rank(); }
  int size() const { return comm_.size(); }

  Tensor filled(torch::Dtype type, std::int64_t n,
                const std::function<std::int64_t(std::int64_t)>& value) const {
    const auto words = torch::empty({n}, torch::kInt64);
    auto* word = words.mutable_data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < n; ++i) word[i] = value(i);
    return words.to(comm_.device(), type);
  }

  Tensor own(torch::Dtype type, std::int64_t n = kElements) const {
    return filled(type, n, [&](auto i) { return value_of(rank(), i); });
  }

  void expect(const Tensor& got, const Tensor& wanted) {
    checks_ += 1;
    if (torch::equal(got, wanted) || !problem_.empty()) return;
    problem_ = str("rank ", rank(), " has another result in ",
                   c10::toString(got.scalar_type()));
  }

  std::int64_t reduced(Reduce op, std::int64_t index) const {
    std::int64_t result = value_of(0, index);
    for (int r = 1; r < size(); ++r) {
      const auto value = value_of(r, index);
      if (op == Reduce::sum) result += value;
      if (op == Reduce::max) result = std::max(result, value);
      if (op == Reduce::min) result = std::min(result, value);
    }
    return result;
  }

  void all_reduce(torch::Dtype type, Reduce op) {
    const auto t = own(type);
    comm_.all_reduce(t, op).wait();
    expect(t, filled(type, kElements, [&](auto i) { return reduced(op, i); }));
  }

  // Every rank has a multiple of the world's size, so the mean is a whole number.
  void mean(torch::Dtype type) {
    const auto t = filled(type, kElements, [&](auto i) { return size() * (i % 5); });
    comm_.all_reduce(t, Reduce::mean).wait();
    expect(t, filled(type, kElements, [&](auto i) { return size() * (i % 5); }));
  }

  void reduce_scatter(torch::Dtype type) {
    const auto in = own(type, kElements * size());
    const auto out = torch::empty_like(in.narrow(0, 0, kElements));
    comm_.reduce_scatter(out, in).wait();
    expect(out, filled(type, kElements, [&](auto i) {
             return reduced(Reduce::sum, rank() * kElements + i);
           }));
  }

  void all_gather(torch::Dtype type) {
    const auto in = own(type);
    const auto out = torch::empty({kElements * size()}, in.options());
    comm_.all_gather(out, in).wait();
    expect(out, filled(type, kElements * size(), [](auto i) {
             return value_of(static_cast<int>(i / kElements), i % kElements);
           }));
  }

  // Rank r has r elements: rank 0 has none.
  void all_gather_uneven(torch::Dtype type) {
    const auto in = own(type, rank());
    std::vector<Tensor> outs;
    for (int r = 0; r < size(); ++r) outs.push_back(torch::empty({r}, in.options()));
    comm_.all_gather(outs, in).wait();
    for (int r = 0; r < size(); ++r) {
      expect(outs[static_cast<std::size_t>(r)],
             filled(type, r, [&](auto i) { return value_of(r, i); }));
    }
  }

  void broadcast(torch::Dtype type) {
    for (int root = 0; root < size(); ++root) {
      const auto t = own(type);
      comm_.broadcast(t, root).wait();
      expect(t, filled(type, kElements, [&](auto i) { return value_of(root, i); }));
    }
  }

  void all_to_all(torch::Dtype type) {
    const auto in = own(type, kElements * size());
    const auto out = torch::empty_like(in);
    comm_.all_to_all(out, in).wait();
    expect(out, filled(type, kElements * size(), [&](auto i) {
             const int from = static_cast<int>(i / kElements);
             return value_of(from, rank() * kElements + i % kElements);
           }));
  }

  // Rank s sends r + 1 elements to rank r.
  void all_to_all_uneven(torch::Dtype type) {
    std::vector<std::int64_t> in_splits;
    for (int r = 0; r < size(); ++r) in_splits.push_back(r + 1);
    const std::vector<std::int64_t> out_splits(static_cast<std::size_t>(size()),
                                               rank() + 1);
    const auto in = own(type, size() * (size() + 1L) / 2);
    const auto out = torch::empty({size() * (rank() + 1L)}, in.options());
    comm_.all_to_all(out, in, out_splits, in_splits).wait();
    const auto begin = rank() * (rank() + 1L) / 2;
    expect(out, filled(type, out.numel(), [&](auto i) {
             const int from = static_cast<int>(i / (rank() + 1));
             return value_of(from, begin + i % (rank() + 1));
           }));
  }

  // Sends around the ring.
  void send_recv(torch::Dtype type) {
    if (size() == 1) return;
    const int from = (rank() + size() - 1) % size();
    const auto sent = own(type);
    const auto got = torch::empty_like(sent);
    if (rank() % 2 == 0) {
      auto sending = comm_.send(sent, (rank() + 1) % size(), 7);
      comm_.recv(got, from, 7).wait();
      sending.wait();
    } else {
      auto receiving = comm_.recv(got, from, 7);
      comm_.send(sent, (rank() + 1) % size(), 7).wait();
      receiving.wait();
    }
    expect(got, filled(type, kElements, [&](auto i) { return value_of(from, i); }));
  }

  // Splits even and odd ranks.
  void split(torch::Dtype type) {
    if (type != torch::kFloat32) return;
    const auto part = comm_.split(rank() % 2);
    const auto t = filled(type, 1, [](auto) { return 1; });
    part->all_reduce(t).wait();
    expect(t, filled(type, 1, [&](auto) { return (size() + 1 - rank() % 2) / 2; }));
  }

  void vote(torch::Dtype type) {
    if (type != torch::kFloat32) return;
    votes_.cast({.flags = rank() == size() - 1 ? kStop : Flags{0}, .value = rank()});
    const auto& ballots = votes_.count();
    const auto last = static_cast<std::size_t>(size() - 1);
    const bool right =
        Votes::any(ballots) == kStop && ballots[last].value == size() - 1;
    expect(torch::tensor(right), torch::tensor(true));
  }

  Communicator& comm_;
  Votes& votes_;
  int checks_ = 0;
  std::string problem_;
};

std::vector<Test::Row> Test::rows() {
  using Type = torch::Dtype;
  return {{"all_reduce sum", [this](Type t) { all_reduce(t, Reduce::sum); }},
          {"all_reduce max", [this](Type t) { all_reduce(t, Reduce::max); }},
          {"all_reduce min", [this](Type t) { all_reduce(t, Reduce::min); }},
          {"all_reduce mean", [this](Type t) { mean(t); }, true},
          {"reduce_scatter", [this](Type t) { reduce_scatter(t); }},
          {"all_gather", [this](Type t) { all_gather(t); }},
          {"all_gather uneven", [this](Type t) { all_gather_uneven(t); }},
          {"broadcast", [this](Type t) { broadcast(t); }},
          {"all_to_all", [this](Type t) { all_to_all(t); }},
          {"all_to_all uneven", [this](Type t) { all_to_all_uneven(t); }},
          {"send and recv", [this](Type t) { send_recv(t); }},
          {"split", [this](Type t) { split(t); }},
          {"vote", [this](Type t) { vote(t); }}};
}

}  // namespace

std::vector<SelftestRow> selftest(Communicator& communicator, Communicator& cpu,
                                  Votes& votes) {
  Test test(communicator, votes);
  std::vector<SelftestRow> results;
  for (const auto& row : test.rows()) {
    results.push_back(test.run(row));
    const auto first = detail::first_text(cpu, results.back().problem);
    results.back().problem = first ? first->second : "";
  }
  communicator.barrier();
  return results;
}

}  // namespace lockstep::comm
