#include "lockstep/cli/detail/kubernetes.h"

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/text.h"
#include "lockstep/base/units.h"

namespace lockstep::cli {
namespace {

using Json = nlohmann::ordered_json;

// A name as Kubernetes wants it: small letters, digits and -.
std::string resource_name(const std::string& wanted, const std::string& recipe) {
  std::string name;
  for (const char c : text::lower(wanted.empty() ? "training" : wanted)) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    name += plain ? c : '-';
  }
  constexpr std::size_t kMost = 40;
  constexpr std::uint64_t kShort = 0xffffff;
  return str("lockstep-", name.substr(0, kMost), "-", hash_of(recipe) & kShort);
}

Json container_of(const Arguments& arguments) {
  const auto gpus = arguments.number("--gpus", 0).value_or(0);
  Json limits = {{"cpu", str(arguments.number("--cores", 1).value_or(1))}};
  if (gpus > 0) limits["nvidia.com/gpu"] = str(gpus);
  return {{"name", "train"},
          {"image", arguments.value("--image").value_or("lockstep:latest")},
          {"command",
           {"lockstep", "train", "/recipe/recipe.yaml", "--run-dir", "/runs/run"}},
          {"resources", {{"limits", limits}}},
          {"volumeMounts",
           {{{"name", "recipe"}, {"mountPath", "/recipe"}, {"readOnly", true}},
            {{"name", "runs"}, {"mountPath", "/runs"}}}}};
}

}  // namespace

std::string kubernetes_manifest(const Arguments& arguments, const std::string& recipe) {
  const auto name = resource_name(arguments.value("--name").value_or(""), recipe);
  const Json config_map = {{"apiVersion", "v1"},
                           {"kind", "ConfigMap"},
                           {"metadata", {{"name", name}}},
                           {"data", {{"recipe.yaml", recipe}}}};
  Json spec = {{"backoffLimit", arguments.number("--retries", 0).value_or(0)}};
  if (const auto limit = arguments.value("--time-limit")) {
    const auto time = units::parse_duration(*limit);
    if (!time) throw Error(Fault::config, "--time-limit: a time such as 2h or 30min");
    spec["activeDeadlineSeconds"] = time->count() / 1000;
  }
  spec["template"]["spec"] = {
      {"restartPolicy", "Never"},
      // Time for a checkpoint after SIGTERM.
      {"terminationGracePeriodSeconds", 60},
      {"containers", {container_of(arguments)}},
      {"volumes",
       {{{"name", "recipe"}, {"configMap", {{"name", name}}}},
        {{"name", "runs"},
         {"persistentVolumeClaim", {{"claimName", "lockstep-runs"}}}}}}};
  const Json job = {{"apiVersion", "batch/v1"},
                    {"kind", "Job"},
                    {"metadata", {{"name", name}}},
                    {"spec", spec}};
  const Json list = {
      {"apiVersion", "v1"}, {"kind", "List"}, {"items", {config_map, job}}};
  return list.dump(2) + "\n";
}

}  // namespace lockstep::cli
