#pragma once

#include <atomic>
#include <functional>
#include <memory>

// When a peer sends more than this rank expects, gloo throws on a thread of its own,
// where nobody can catch it: the process would end with SIGABRT.
namespace lockstep::comm::detail {

// Whether gloo's thread of a group has thrown; that thread stands still then, and what
// waits for the group would wait until its timeout.
using Complaint = std::shared_ptr<std::atomic<bool>>;

// Runs `make`, which starts the threads of a group, and from then on notes in the
// result what they throw, instead of ending the process. Whatever else ends in
// std::terminate() goes where it went before. One call at a time.
Complaint listen_to_threads(const std::function<void()>& make);

}  // namespace lockstep::comm::detail
