#pragma once

#include <functional>
#include <memory>
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

class ServiceClient {
 public:
  virtual ~ServiceClient() = default;

  // Throws Error with the server's sentence for an answer that is none (400 and above).
  ServiceAnswer call(const std::string& method, const std::string& target,
                     const std::string& body = "");

  // Hands the pieces of a stream on, until it ends.
  virtual void stream(const std::string& target,
                      const std::function<void(std::string_view)>& on_piece) = 0;

 protected:
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

 private:
  std::string rest_;
};

// Makes a command that asks for one change of a job.
struct JobAction {
  std::string name;
  std::string summary;
  std::string details;
};
Command job_action(const JobAction& action);

}  // namespace lockstep::cli
