#include "lockstep/comm/detail/shm_buffers.h"

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep::comm::detail {
namespace {

// Returns the numbers of the ranks' descriptors, -1 for one that has none.
std::vector<std::int64_t> exchanged(Communicator& over, std::int64_t own_descriptor,
                                    std::int64_t num_bytes) {
  const auto mine = torch::tensor({own_descriptor, num_bytes}, torch::kInt64);
  const auto all = torch::empty({2L * over.size()}, torch::kInt64);
  over.all_gather(all, mine).wait();
  const auto* words = all.const_data_ptr<std::int64_t>();
  std::vector<std::int64_t> descriptors;
  for (int r = 0; r < over.size(); ++r) {
    descriptors.push_back(words[2 * r]);
    if (words[2 * r + 1] == num_bytes) continue;
    throw Error(Fault::config, "comm: empty_buffer: rank ", r, " asks for ",
                words[2 * r + 1], " bytes, rank ", over.rank(), " for ", num_bytes);
  }
  return descriptors;
}

bool on_all(Communicator& over, bool own) {
  const auto word = torch::tensor({own ? 1 : 0}, torch::kInt32);
  over.all_reduce(word, Reduce::min).wait();
  return word.item<int>() == 1;
}

}  // namespace

// Every rank makes its own memory, so that its pages are near its cores, and opens
// those of the others through /proc before the descriptors are closed.
std::shared_ptr<SharedBuffer> Buffers::make(Communicator& over, const Board& board,
                                            std::size_t num_bytes) {
  std::vector<SharedMemory> of_ranks(static_cast<std::size_t>(over.size()));
  auto& own = of_ranks[static_cast<std::size_t>(over.rank())];
  std::string problem;
  const auto attempt = [&](const auto& body) {
    try {
      if (problem.empty()) body();
    } catch (const Error& error) {
      problem = error.what();
      log::warning("comm", str(problem, "; buffers stay private, which is slower"));
    }
  };
  attempt([&] { own = SharedMemory::create_nameless(num_bytes); });
  const auto descriptors =
      exchanged(over, own.descriptor(), static_cast<std::int64_t>(num_bytes));
  for (std::size_t r = 0; r < of_ranks.size(); ++r) {
    if (&of_ranks[r] == &own || descriptors[r] < 0) continue;
    const auto path = SharedMemory::path_for_others(board.slot(static_cast<int>(r)).pid,
                                                    static_cast<int>(descriptors[r]));
    attempt([&] { of_ranks[r] = SharedMemory::open(path, num_bytes); });
  }
  if (!on_all(over, problem.empty())) return nullptr;
  own.close_file();
  const auto* begin = own.data();
  auto buffer = std::make_shared<SharedBuffer>(next_id_++, std::move(of_ranks));
  std::erase_if(by_begin_,
                [](const auto& entry) { return entry.second.buffer.expired(); });
  by_begin_[begin] = {num_bytes, buffer};
  return buffer;
}

std::optional<BufferPlace> Buffers::find(const torch::Tensor& t, int rank) const {
  const auto* data = static_cast<const char*>(t.const_data_ptr());
  auto at = by_begin_.upper_bound(data);
  if (at == by_begin_.begin()) return std::nullopt;
  --at;
  const auto offset = static_cast<std::size_t>(data - at->first);
  if (offset + t.nbytes() > at->second.num_bytes) return std::nullopt;
  auto buffer = at->second.buffer.lock();
  if (!buffer || buffer->data(rank) != at->first) return std::nullopt;
  return BufferPlace{std::move(buffer), offset};
}

}  // namespace lockstep::comm::detail
