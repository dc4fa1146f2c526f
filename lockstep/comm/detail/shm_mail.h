#pragma once

#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/comm/detail/shm_collective.h"

namespace lockstep::comm::detail {

// send() and recv() of one rank. Messages between two ranks keep their order; one that
// comes before its recv() is kept aside if a recv() of another tag waits.
class Mail {
 public:
  explicit Mail(const Board& board);

  void post(std::shared_ptr<Operation> operation);

  // Moves one chunk each way with every rank; returns false if there is none to move.
  bool advance();

  bool empty() const noexcept { return under_way_ == 0; }
  std::vector<int> missing() const;  // the ranks that messages wait for
  void fail(const std::string& why);

 private:
  using Posted = std::deque<std::shared_ptr<Operation>>;

  struct Sending {
    Posted messages;
    std::uint64_t position = 0;  // in the first of them
  };
  struct Receiving {
    Posted posted;
    std::map<int, std::deque<std::vector<char>>> aside;  // by tag
    // The message that is coming in: for one of `posted`, or to be kept aside.
    bool active = false;
    std::uint64_t position = 0, message_bytes = 0;
    std::int64_t tag = 0;
    std::shared_ptr<Operation> wanted_by;
    std::vector<char> bytes;
  };

  bool send_chunk(int to);
  bool receive_chunk(int from);
  void begin_message(Receiving& state, const Mailbox::Header& header);
  void end_message(Receiving& state);
  static Posted::iterator first_with_tag(Receiving& state);
  bool take_aside(Receiving& state, Operation& operation);
  void deliver(Operation& operation, const std::vector<char>& bytes);

  const Board& board_;
  std::vector<Sending> to_;
  std::vector<Receiving> from_;
  std::size_t under_way_ = 0;
};

}  // namespace lockstep::comm::detail
