#pragma once

#include <functional>
#include <string>
#include <thread>

#include "lockstep/base/files.h"

namespace lockstep::monitor::detail {

// Answers GET /metrics over HTTP with a text, one request at a time: enough for a
// scraper, and too little to be a burden or a danger to the run.
class TextServer {
 public:
  // Port 0 is any free one. Throws Fault::io if the address can not be had.
  TextServer(const std::string& address, int port, std::function<std::string()> text);
  ~TextServer();
  TextServer(const TextServer&) = delete;
  TextServer& operator=(const TextServer&) = delete;

  int port() const noexcept { return port_; }

 private:
  void serve(const std::stop_token& stop);
  void answer(int connection) const;

  std::function<std::string()> text_;  // called by the server's thread
  files::Descriptor socket_;
  files::Descriptor wake_;  // becomes readable when the server is to end
  int port_ = 0;
  std::jthread thread_;
};

}  // namespace lockstep::monitor::detail
