#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/server/http.h"
#include "lockstep/server/rate_limit.h"
#include "lockstep/service/service.h"

namespace lockstep::server {

struct Route;

struct RouterOptions {
  // Everybody is this one, without a token: loopback only, by --insecure-local.
  std::optional<service::Identity> everybody = {};
};

// What tests and the documents look at.
struct RouteInfo {
  std::string method;
  std::string path;
  std::string operation;
  bool is_open = false;  // to everybody, without a token
  bool changes = false;
  bool for_admins = false;
};

// From requests to the service: finds the route, asks who it is, checks limits and the
// body by its schema, answers, and writes the audit log.
//
// Threads: any.
class Router : public Handler {
 public:
  Router(service::Service& service, RouterOptions options);
  ~Router() override;

  AwaitedRequest expect(std::string_view method, std::string_view target) override;
  std::optional<Response> refuse_sender(const Request& head) override;
  Response handle(const Request& request) override;
  Response refuse(int status, std::string_view why) override;

  // Answers a request of somebody who is known: a command on this machine.
  Response handle_as(const Request& request, const service::Identity& who);

  std::vector<RouteInfo> routes() const;
  std::string openapi() const;

  // Returns what is wrong with an answer by the schema of its route, "" if nothing is.
  std::string response_problem(const std::string& method, const std::string& path,
                               const Response& response) const;

 private:
  struct Match;
  struct AuditedCall;

  // `methods` gets those that the path has, if the wanted one is not among them.
  std::optional<Match> find(std::string_view method, std::string_view target,
                            std::vector<std::string>& methods) const;
  Response answer(const Request& request,
                  const std::optional<service::Identity>& known);
  service::Identity identify(const Request& request);
  Response call(const Match& match, const Request& request,
                const service::Identity& who);
  Response call_and_audit(const Match& match, const Request& request,
                          const service::Identity& who);
  void audit(const Route& route, const service::Identity& who, const AuditedCall& call);
  void audit_refusal(const Match& match, const service::Identity& who,
                     const service::Refusal& refusal);
  void audit_failure(const Match& match, const service::Identity& who);
  void limit(const Route& route, const service::Identity& who);
  Response count_stream(Response response, const service::Identity& who);

  service::Service& service_;
  const RouterOptions options_;
  std::vector<Route> routes_;
  std::vector<std::vector<std::string>> patterns_;  // the paths of routes, split
  struct Counts;
  std::unique_ptr<Counts> counts_;
  RateLimit rates_;
};

}  // namespace lockstep::server
