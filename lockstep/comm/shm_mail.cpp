#include "lockstep/comm/detail/shm_mail.h"

#include <algorithm>
#include <cstring>

namespace lockstep::comm::detail {
namespace {

char* bytes_of(const Operation& operation) {
  return static_cast<char*>(operation.call.out[0].data_ptr());
}

std::uint64_t length_of(const Operation& operation) {
  return operation.call.out[0].nbytes();
}

void put(char* to, const char* from, std::uint64_t num_bytes) {
  if (num_bytes > 0) std::memcpy(to, from, num_bytes);
}

}  // namespace

Mail::Mail(const Board& board)
    : board_(board),
      to_(static_cast<std::size_t>(board.size())),
      from_(static_cast<std::size_t>(board.size())) {}

void Mail::post(std::shared_ptr<Operation> operation) {
  const auto peer = static_cast<std::size_t>(operation->call.peer);
  ++under_way_;
  if (operation->call.kind == Kind::send) {
    to_[peer].messages.push_back(std::move(operation));
  } else if (!take_aside(from_[peer], *operation)) {
    from_[peer].posted.push_back(std::move(operation));
  }
}

bool Mail::advance() {
  bool moved = false;
  for (int r = 0; r < board_.size() && under_way_ > 0; ++r) {
    moved |= send_chunk(r);
    moved |= receive_chunk(r);
  }
  if (moved) board_.bell().ring();
  return moved;
}

bool Mail::send_chunk(int to) {
  auto& state = to_[static_cast<std::size_t>(to)];
  auto& box = board_.mailbox(board_.rank(), to);
  const auto number = box.sent.load(std::memory_order_relaxed);
  if (state.messages.empty() ||
      number - box.taken.load(std::memory_order_acquire) == kMailDepth) {
    return false;
  }
  auto& message = *state.messages.front();
  const auto all = length_of(message);
  const auto length =
      std::min<std::uint64_t>(board_.mail_bytes(), all - state.position);
  box.headers[number % kMailDepth] = {message.call.tag, static_cast<std::int64_t>(all)};
  put(board_.mail(board_.rank(), to, number), bytes_of(message) + state.position,
      length);
  box.sent.store(number + 1, std::memory_order_release);
  state.position += length;
  if (state.position == all) {
    message.finish();
    state.messages.pop_front();
    state.position = 0;
    --under_way_;
  }
  return true;
}

bool Mail::receive_chunk(int from) {
  auto& state = from_[static_cast<std::size_t>(from)];
  if (state.posted.empty()) return false;
  auto& box = board_.mailbox(from, board_.rank());
  const auto number = box.taken.load(std::memory_order_relaxed);
  if (box.sent.load(std::memory_order_acquire) == number) return false;
  if (!state.active) begin_message(state, box.headers[number % kMailDepth]);
  const auto length = std::min<std::uint64_t>(board_.mail_bytes(),
                                              state.message_bytes - state.position);
  auto* place = state.wanted_by ? bytes_of(*state.wanted_by) : state.bytes.data();
  put(place + state.position, board_.mail(from, board_.rank(), number), length);
  box.taken.store(number + 1, std::memory_order_release);
  state.position += length;
  if (state.position == state.message_bytes) end_message(state);
  return true;
}

Mail::Posted::iterator Mail::first_with_tag(Receiving& state) {
  return std::find_if(state.posted.begin(), state.posted.end(),
                      [&](const auto& one) { return one->call.tag == state.tag; });
}

void Mail::begin_message(Receiving& state, const Mailbox::Header& header) {
  state.active = true;
  state.position = 0;
  state.tag = header.tag;
  state.message_bytes = static_cast<std::uint64_t>(header.message_bytes);
  const auto first = first_with_tag(state);
  if (first != state.posted.end() && length_of(**first) == state.message_bytes) {
    state.wanted_by = *first;
  } else {
    state.bytes.resize(state.message_bytes);
  }
}

void Mail::end_message(Receiving& state) {
  state.active = false;
  const auto first = first_with_tag(state);
  if (first == state.posted.end()) {
    state.aside[static_cast<int>(state.tag)].push_back(std::move(state.bytes));
    state.bytes.clear();
    return;
  }
  if (state.wanted_by) {
    state.wanted_by->finish();
    state.wanted_by.reset();
    --under_way_;
  } else {
    deliver(**first, state.bytes);
    state.bytes.clear();
  }
  state.posted.erase(first);
}

bool Mail::take_aside(Receiving& state, Operation& operation) {
  const auto found = state.aside.find(operation.call.tag);
  if (found == state.aside.end() || found->second.empty()) return false;
  deliver(operation, found->second.front());
  found->second.pop_front();
  return true;
}

void Mail::deliver(Operation& operation, const std::vector<char>& bytes) {
  --under_way_;
  if (bytes.size() == length_of(operation)) {
    put(bytes_of(operation), bytes.data(), bytes.size());
    operation.finish();
    return;
  }
  operation.fail(str("rank ", operation.call.peer, " sent ", bytes.size(),
                     " bytes, and ", length_of(operation), " were expected"));
}

std::vector<int> Mail::missing() const {
  std::vector<int> ranks;
  for (int r = 0; r < board_.size(); ++r) {
    const auto index = static_cast<std::size_t>(r);
    if (!to_[index].messages.empty() || !from_[index].posted.empty()) {
      ranks.push_back(r);
    }
  }
  return ranks;
}

void Mail::fail(const std::string& why) {
  for (auto& state : to_) {
    for (const auto& one : state.messages) one->fail(why);
    state = {};
  }
  for (auto& state : from_) {
    for (const auto& one : state.posted) one->fail(why);
    state = {};
  }
  under_way_ = 0;
}

}  // namespace lockstep::comm::detail
