#include "lockstep/comm/detail/failure_board.h"

#include <algorithm>
#include <future>
#include <thread>

#include "lockstep/base/error.h"

namespace lockstep::comm::detail {
namespace {

std::string failure_key(int rank) {
  return str("failed_", rank);
}

constexpr std::chrono::seconds kPatienceWithPeers{10};

// A store may be out of reach with the peers, even for the rank that holds it when the
// interface of its address is down, and c10d waits for some answers without a limit.
// The thread that asks may outlive the group.
std::string ask_within(std::chrono::seconds limit,
                       std::function<std::string()> question) {
  std::promise<std::string> promise;
  auto answer = promise.get_future();
  std::thread([question = std::move(question), promise = std::move(promise)]() mutable {
    try {
      promise.set_value(question());
    } catch (const std::exception&) {
      promise.set_value("");  // the store is gone, or a rank does not come
    }
  }).detach();
  return answer.wait_for(limit) == std::future_status::ready ? answer.get() : "";
}

bool somebody_told(const FailureBoard& board) {
  int r = 0;
  while (r < board.size && !board.store->check({failure_key(r)})) ++r;
  return r < board.size;
}

// `waits`: the others will fail, too.
std::string difference_in_store(const FailureBoard& board, const Asked& own,
                                bool waits) {
  for (int r = 0; r < board.size; ++r) {
    if (r == board.rank) continue;
    if (waits) board.store->wait({failure_key(r)}, kPatienceWithPeers);
    if (!board.store->check({failure_key(r)})) continue;
    const auto text = board.store->get_to_str(failure_key(r));
    const auto end = std::min(text.find('\n'), text.size());
    const Asked its{text.substr(0, end), text.substr(std::min(end + 1, text.size()))};
    if (its.signature == own.signature) continue;
    return r < board.rank ? difference({r, its}, {board.rank, own})
                          : difference({board.rank, own}, {r, its});
  }
  return "";
}

}  // namespace

std::string difference_from_peers(const FailureBoard& board, const Asked& own,
                                  const FailureFound& found) {
  const bool first = found.is_first;
  try {
    const auto told =
        ask_within(kPatienceWithPeers, [board, own, first]() -> std::string {
          if (!first && !somebody_told(board)) return "";
          board.store->set(failure_key(board.rank), own.signature + "\n" + own.place);
          return "told";
        });
    if (told.empty()) return "";
    if (first) found.when_told();
    return ask_within(2 * kPatienceWithPeers, [board, own, first] {
      return difference_in_store(board, own, first);
    });
  } catch (const std::exception&) {
    return "";  // no thread could be started
  }
}

}  // namespace lockstep::comm::detail
