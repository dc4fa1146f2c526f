#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/units.h"
#include "lockstep/config/auto.h"
#include "lockstep/config/enums.h"
#include "lockstep/config/load.h"

// The knobs of `lockstep serve`. They are declared as those of a recipe are, and stand
// in a file of their own: server.yaml.
namespace lockstep::config {

enum class Executor { local, slurm };

constexpr std::array<std::string_view, 2> names_of(Executor) {
  return {"local", "slurm"};
}

struct HttpConfig {
  std::string address = "127.0.0.1";
  int port = 8477;
  std::string certificate;
  std::string key;
  bool behind_proxy = false;
  int threads = 2;
  int max_connections = 2048;
  units::Duration idle_timeout{std::chrono::seconds(75)};
  units::Duration request_timeout{std::chrono::seconds(20)};
};

template <typename Visitor>
void describe(HttpConfig& c, Visitor& v) {
  v.field(
      "address", c.address,
      {.help = "Address to listen on. Any but a loopback needs http.certificate, or "
               "http.behind_proxy.",
       .is_local = true});
  v.field("port", c.port,
          {.help = "Port to listen on; 0: a free one, which the log names.",
           .range = between(0, 65535)});
  v.field("certificate", c.certificate,
          {.help = "PEM file with the chain of the server's certificate: TLS.",
           .is_local = true});
  v.field("key", c.key,
          {.help = "PEM file with the certificate's private key.", .is_local = true});
  v.field("behind_proxy", c.behind_proxy,
          {.help = "A proxy in front of the server ends TLS: plain HTTP is accepted on "
                   "any address."});
  v.field("threads", c.threads,
          {.help = "Threads that answer requests; connections do not have one each.",
           .range = between(1, 64),
           .unit = Unit::threads});
  v.field("max_connections", c.max_connections,
          {.help = "The most open connections; further ones wait.",
           .range = between(1, 100000)});
  v.field("idle_timeout", c.idle_timeout,
          {.help = "Keep-alive: an idle connection is closed after this time."});
  v.field("request_timeout", c.request_timeout,
          {.help = "Timeout of reading a request and of sending an answer."});
}

struct LimitsConfig {
  std::int64_t header_bytes = 16 << 10;
  std::int64_t body_bytes = 2 << 20;
  int json_depth = 32;
  std::int64_t part_bytes = 32 << 20;
  std::int64_t bodies_bytes = 256 << 20;
  std::int64_t upload_bytes = std::int64_t{64} << 30;
  int requests_per_minute = 1200;
  int changes_per_minute = 240;
  int streams_per_token = 256;
  int failed_logins_per_minute = 60;
};

template <typename Visitor>
void describe(LimitsConfig& c, Visitor& v) {
  v.field("header_bytes", c.header_bytes,
          {.help = "The most bytes of the request line and headers.",
           .range = between(1024, 1 << 20),
           .unit = Unit::bytes});
  v.field("body_bytes", c.body_bytes,
          {.help = "The most bytes of a request's body, except parts of uploads.",
           .range = between(1024, 1 << 30),
           .unit = Unit::bytes});
  v.field("json_depth", c.json_depth,
          {.help = "The deepest nesting of lists and objects in a body.",
           .range = between(4, 256)});
  v.field("part_bytes", c.part_bytes,
          {.help = "The most bytes of one part of an upload.",
           .range = between(1024, 1 << 30),
           .unit = Unit::bytes});
  v.field("bodies_bytes", c.bodies_bytes,
          {.help = "The most bytes of bodies above 64 KiB in flight, all together; one "
                   "beyond that is answered with 503.",
           .range = at_least(1024),
           .unit = Unit::bytes});
  v.field("upload_bytes", c.upload_bytes,
          {.help = "The most bytes of an uploaded file.",
           .range = at_least(1024),
           .unit = Unit::bytes});
  v.field("requests_per_minute", c.requests_per_minute,
          {.help = "Rate limit of a token, for each route; more requests are answered "
                   "with 429.",
           .range = between(1, 10'000'000)});
  v.field("changes_per_minute", c.changes_per_minute,
          {.help = "Rate limit of a token, for requests that change something.",
           .range = between(1, 10'000'000)});
  v.field(
      "streams_per_token", c.streams_per_token,
      {.help = "The most open event streams of a token.", .range = between(1, 100000)});
  v.field("failed_logins_per_minute", c.failed_logins_per_minute,
          {.help = "Rate limit of an address for requests with a wrong token; beyond "
                   "it all its requests without a valid one are answered with 429.",
           .range = between(1, 1'000'000)});
}

struct QueueConfig {
  Executor executor = Executor::local;
  Auto<int> cores;
  std::vector<int> gpu_ids;
  bool use_gpus = true;
  units::Duration grace{std::chrono::seconds(30)};
  units::Duration retry_delay{std::chrono::seconds(5)};
  bool resume_after_reboot = false;
  int max_gpu_celsius = 90;
  std::string slurm_partition;
  units::Duration slurm_interval{std::chrono::seconds(5)};
  std::map<std::string, std::string> unix_users;
};

template <typename Visitor>
void describe(QueueConfig& c, Visitor& v) {
  v.field("executor", c.executor,
          {.help = "Who runs jobs: this machine, or Slurm (sbatch, squeue, sacct, "
                   "scancel)."});
  v.field("cores", c.cores,
          {.help = "CPU cores that jobs share; auto: all of this machine.",
           .range = between(1, 4096)});
  v.field("gpu_ids", c.gpu_ids,
          {.help = "GPUs that jobs share, as CUDA counts them; empty: all."});
  v.field("use_gpus", c.use_gpus, {.help = "false: jobs run on CPUs only."});
  v.field("grace", c.grace,
          {.help = "Grace period for a checkpoint when a job is cancelled or paused; "
                   "then it is killed."});
  v.field("retry_delay", c.retry_delay,
          {.help = "Wait before the first retry of a failed job; it doubles, up to 32 "
                   "times this."});
  v.field(
      "resume_after_reboot", c.resume_after_reboot,
      {.help = "Jobs that ran when the machine went down are resumed automatically; "
               "false: they stay interrupted until somebody resumes them."});
  v.field("max_gpu_celsius", c.max_gpu_celsius,
          {.help = "GPUs hotter than this (in degrees Celsius) get no job.",
           .range = between(30, 120)});
  v.field("slurm_partition", c.slurm_partition,
          {.help = "Partition for sbatch; empty: Slurm's default.", .is_local = true});
  v.field(
      "slurm_interval", c.slurm_interval,
      {.help =
           "How often Slurm is polled for the state of jobs, in one query for all."});
  v.field(
      "unix_users", c.unix_users,
      {.help = "Unix users that jobs run as, by the user who submits them; \"*\" is "
               "everybody else, and without it they may not submit: {ada: ada, "
               "\"*\": guest}. Empty: all run as the server. Needs a server that "
               "root starts.",
       .is_local = true});
}

struct QuotaConfig {
  int jobs_per_user = 1000;
  int highest_priority = 0;
  int running_per_user = 0;
  double gpu_hours_per_user = 0;
  std::int64_t disk_bytes_per_user = 0;
};

template <typename Visitor>
void describe(QuotaConfig& c, Visitor& v) {
  v.field("jobs_per_user", c.jobs_per_user,
          {.help = "The most unfinished jobs of a user.", .range = at_least(1)});
  v.field("highest_priority", c.highest_priority,
          {.help = "Highest priority that users may give to their jobs; admins may "
                   "give any up to 100.",
           .range = between(-100, 100)});
  v.field("running_per_user", c.running_per_user,
          {.help = "The most jobs of a user that run at a time; 0: no limit.",
           .range = at_least(0)});
  v.field("gpu_hours_per_user", c.gpu_hours_per_user,
          {.help = "The most GPU-hours of a user over the last 30 days; beyond it jobs "
                   "wait. 0: no limit.",
           .range = at_least(0)});
  v.field(
      "disk_bytes_per_user", c.disk_bytes_per_user,
      {.help = "The most bytes of runs, uploads and kept requests of a user; beyond "
               "it none is accepted. 0: no limit.",
       .range = at_least(0),
       .unit = Unit::bytes});
}

struct StoreConfig {
  std::string dir;
  units::Duration keep_runs{};
  units::Duration keep_uploads{};
  std::string log;
  std::int64_t log_bytes = 16 << 20;
};

template <typename Visitor>
void describe(StoreConfig& c, Visitor& v) {
  v.field("dir", c.dir,
          {.help = "Folder of the database, jobs and uploads; empty: lockstep/server "
                   "in the state directory of the user.",
           .is_local = true});
  v.field("keep_runs", c.keep_runs,
          {.help = "A finished job is removed after this time, with its run directory; "
                   "0s: never."});
  v.field("keep_uploads", c.keep_uploads,
          {.help = "An uploaded file that no job uses is removed after this time; 0s: "
                   "never."});
  v.field("log", c.log,
          {.help = "File for the log of the server; empty: standard error.",
           .is_local = true});
  v.field("log_bytes", c.log_bytes,
          {.help = "The log is moved to .1, .2, .3 at this size.",
           .range = at_least(4096),
           .unit = Unit::bytes});
}

struct ProvidedConfig {
  std::map<std::string, std::string> inputs;
  std::string models_dir;
};

template <typename Visitor>
void describe(ProvidedConfig& c, Visitor& v) {
  v.field("inputs", c.inputs,
          {.help = "Names for files and folders of this machine, which jobs may use by "
                   "these names: {fashion: /data/fashion}.",
           .is_local = true});
  v.field(
      "models_dir", c.models_dir,
      {.help = "Folder of models that jobs may name (models.dir of recipes); empty: "
               "the usual one.",
       .is_local = true});
}

struct WebhookConfig {
  std::string url;
  std::string secret_file;
};

template <typename Visitor>
void describe(WebhookConfig& c, Visitor& v) {
  v.field("url", c.url,
          {.help = "URL that changes of jobs are posted to (JSON); empty: none.",
           .is_local = true});
  v.field(
      "secret_file", c.secret_file,
      {.help = "File with the key of the signature (HMAC-SHA256).", .is_local = true});
}

// Every knob of the server.
struct ServerConfig {
  HttpConfig http;
  LimitsConfig limits;
  QueueConfig queue;
  QuotaConfig quota;
  StoreConfig store;
  ProvidedConfig provided;
  WebhookConfig webhook;
};

template <typename Visitor>
void describe(ServerConfig& c, Visitor& v) {
  v.section("http", c.http, "Where the server listens, and how.");
  v.section("limits", c.limits, "Limits on requests.");
  v.section("queue", c.queue, "The queue: what jobs run on, and how they end.");
  v.section("quota", c.quota, "Quotas of users.");
  v.section("store", c.store, "Storage: what is kept, where and for how long.");
  v.section("provided", c.provided, "Files of this machine that jobs may use by name.");
  v.section("webhook", c.webhook, "Notifications of changes.");
}

struct LoadedServer {
  ServerConfig config;
  std::map<std::string, Source> sources;
};

// Loads server.yaml ("": only defaults) and the overrides. Throws as load() does.
LoadedServer load_server(const std::filesystem::path& file,
                         std::span<const Override> overrides);

// Throws Fault::config for an address that needs TLS and has none, and for a
// certificate without its key. `insecure_local`: no tokens, loopback only.
void validate(const LoadedServer& loaded, bool insecure_local);

// Returns whether only this machine can reach the address.
bool is_loopback(std::string_view address);

// Returns the text of docs/reference/server.md.
std::string server_reference_markdown();

}  // namespace lockstep::config
