#pragma once

#include <atomic>
#include <functional>
#include <memory>

// When a peer sends more than this rank expects, gloo throws on a thread of its own,
// where no caller can catch it: the process would end with SIGABRT.
namespace lockstep::comm::detail {

// True once gloo's thread of a group has thrown; that thread stands still then, and
// callers that wait for the group would wait until its timeout.
using Complaint = std::shared_ptr<std::atomic<bool>>;

// Runs `make`, which starts the threads of a group, and from then on notes in the
// result that they threw, instead of ending the process. Any other call of
// std::terminate() goes where it went before. One call at a time.
Complaint listen_to_threads(const std::function<void()>& make);

}  // namespace lockstep::comm::detail
