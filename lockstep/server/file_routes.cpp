// /v1/files: what jobs train on, sent in parts.
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/server/detail/route.h"

namespace lockstep::server {
namespace {

using service::Refusal;
using service::Refused;

Json upload_json(const service::Upload& upload) {
  return {{"id", upload.id},
          {"name", upload.name},
          {"kind", upload.kind},
          {"bytes", upload.bytes},
          {"received", upload.received},
          {"complete", upload.complete},
          {"sha256", upload.sha256},
          {"created", iso_time(WallTime(std::chrono::milliseconds(upload.created)))}};
}

Response create_upload(service::Service& service, Call& call) {
  const auto config = service.config();
  service::NewUpload wanted{.name = call.body.value("name", ""),
                            .kind = call.body.at("kind").get<std::string>(),
                            .bytes = call.body.at("bytes").get<std::int64_t>(),
                            .sha256 = call.body.at("sha256").get<std::string>()};
  service::Uploads::check(wanted);
  if (wanted.bytes > config.limits.upload_bytes) {
    throw Refusal(Refused::too_large,
                  "bytes: more than limits.upload_bytes=", config.limits.upload_bytes);
  }
  service.check_disk(call.who.user, wanted.bytes);
  const auto upload = service.uploads().create(call.who, wanted);
  call.target = upload.id;
  return json_response(upload_json(upload));
}

Response add_part(service::Service& service, Call& call) {
  if (!call.query.contains("offset")) {
    throw Refusal(Refused::invalid, "offset: say where in the file this part begins");
  }
  return json_response(upload_json(service.uploads().add_part(
      call.who, call.id(), {call.number("offset", 0), call.request.body})));
}

}  // namespace

std::vector<Route> file_routes(service::Service& service) {
  std::vector<Route> routes;
  routes.push_back(
      {.method = "POST",
       .path = "/v1/files",
       .operation = "createFile",
       .summary = "Create an upload; then send its parts.",
       .access = Access::user,
       .changes = true,
       .body = Body::json,
       .request = ref("NewUpload"),
       .response = ref("Upload"),
       .status = 201,
       .answer = [&service](Call& call) { return create_upload(service, call); }});
  routes.push_back(
      {.method = "GET",
       .path = "/v1/files",
       .operation = "listFiles",
       .summary = "List your uploads, newest first; an admin sees those of all users.",
       .response = list_of(ref("Upload")),
       .answer = [&service](Call& call) {
         Json items = Json::array();
         for (const auto& upload : service.uploads().list(call.who)) {
           items.push_back(upload_json(upload));
         }
         return json_response({{"items", std::move(items)}});
       }});
  routes.push_back(
      {.method = "GET",
       .path = "/v1/files/{id}",
       .operation = "getFile",
       .summary = "Get an upload: its size and how much of it has arrived.",
       .response = ref("Upload"),
       .answer = [&service](Call& call) {
         return json_response(upload_json(service.uploads().find(call.who, call.id())));
       }});
  routes.push_back(
      {.method = "PUT",
       .path = "/v1/files/{id}/parts",
       .operation = "addPart",
       .summary = "Upload the next part of a file.",
       .access = Access::user,
       .changes = true,
       .is_long = true,
       .body = Body::bytes,
       .response = ref("Upload"),
       .query = {{"offset",
                  "Byte offset of this part in the file.",
                  {{"type", "integer"}, {"minimum", 0}}}},
       .answer = [&service](Call& call) { return add_part(service, call); }});
  routes.push_back({.method = "DELETE",
                    .path = "/v1/files/{id}",
                    .operation = "removeFile",
                    .summary = "Delete an uploaded file.",
                    .access = Access::user,
                    .changes = true,
                    .response = {{"type", "object"}},
                    .answer = [&service](Call& call) {
                      service.uploads().remove(call.who, call.id());
                      return json_response({{"removed", call.id()}});
                    }});
  return routes;
}

}  // namespace lockstep::server
