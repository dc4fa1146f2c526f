#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/cli/command.h"

// What the commands of the service share: one API, asked over HTTP or inside of this
// process.
namespace lockstep::cli {

struct ServiceAnswer {
  int status = 0;
  std::string body;
};

struct FollowedLog {
  std::string job;
  std::optional<std::int64_t> rank;  // nothing: what rank 0 prints
};

class ServiceClient {
 public:
  virtual ~ServiceClient() = default;

  // Throws Error with the server's sentence for an answer that is none (400 and above).
  ServiceAnswer call(const std::string& method, const std::string& target,
                     const std::string& body = "");

  // Hands the lines of a job's log on, until the job is over. Jobs go on when their
  // server ends: the next one is waited for, and asked for the rest.
  void follow(const FollowedLog& log,
              const std::function<void(const std::string&)>& on_line);

 protected:
  // Hands the pieces of a stream on, until it ends. `last_id`: of the last event that
  // was seen, "" before the first.
  virtual void stream(const std::string& target, const std::string& last_id,
                      const std::function<void(std::string_view)>& on_piece) = 0;
  virtual ServiceAnswer ask(const std::string& method, const std::string& target,
                            const std::string& body) = 0;
};

// The server that --server or LOCKSTEP_SERVER names, with the token of LOCKSTEP_TOKEN
// or
// --token-file; else the service of this machine, as its admin.
std::unique_ptr<ServiceClient> service_client(const Arguments& arguments,
                                              Context& context);

// Options of all of these commands.
std::vector<Option> service_options(std::vector<Option> more);

// Returns the data of whole events of a stream, and keeps what is left of a piece.
class EventReader {
 public:
  std::vector<std::string> add(std::string_view piece);

  // Of the last whole event; "" before the first.
  const std::string& last_id() const noexcept { return last_id_; }

  // The stream begins again, behind last_id().
  void begin_again() { rest_.clear(); }

 private:
  std::string rest_, last_id_;
};

// Makes a command that asks for one change of a job.
struct JobAction {
  std::string name;
  std::string summary;
  std::string details;
};
Command job_action(const JobAction& action);

}  // namespace lockstep::cli
