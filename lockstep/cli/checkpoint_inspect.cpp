#include <ostream>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/base/units.h"
#include "lockstep/cli/detail/checkpoint.h"
#include "lockstep/cli/detail/json_line.h"
#include "lockstep/cli/detail/output.h"
#include "lockstep/cli/detail/run_view.h"

namespace lockstep::cli {
namespace {

using Json = nlohmann::ordered_json;

// Returns "rank_0", or "rank_0 [0:12], rank_1 [12:24]".
std::string where_of(const storage::Manifest& manifest,
                     const storage::TensorRecord& tensor) {
  constexpr std::size_t kShown = 4;
  std::string where;
  for (std::size_t i = 0; i < tensor.pieces.size(); ++i) {
    const auto& piece = tensor.pieces[i];
    if (i == kShown) return str(where, ", ", tensor.pieces.size() - i, " more");
    const auto file = std::filesystem::path(manifest.files[piece.file].name).stem();
    where += str(where.empty() ? "" : ", ", file.string());
    if (tensor.pieces.size() > 1) {
      where += str(" [", piece.begin, ":", piece.begin + piece.count, "]");
    }
  }
  return tensor.order.empty()
             ? where
             : str(where, "  (order ", storage::to_text(tensor.order), ")");
}

std::string metric_text(const storage::WatchedMetric& metric) {
  return fmt::format("{} {:.6g} ({} is better)", metric.name, metric.value,
                     metric.larger_is_better ? "higher" : "lower");
}

std::vector<std::vector<std::string>> facts_of(const storage::Manifest& manifest,
                                               const std::filesystem::path& path) {
  std::vector<std::vector<std::string>> rows{
      {"checkpoint", path.string()},
      {"step", str(manifest.step)},
      {"time", short_time(manifest.time)},
      {"ranks", str(manifest.world_size)},
      {"size",
       fmt::format("{} in {} files", units::format_bytes(manifest.total_bytes()),
                   manifest.files.size())},
      {"config", storage::to_hex(manifest.config_digest())}};
  if (manifest.metric) rows.push_back({"metric", metric_text(*manifest.metric)});
  for (const auto& [name, version] : manifest.versions) rows.push_back({name, version});
  return rows;
}

Json json_of(const storage::Manifest& manifest, const std::filesystem::path& path) {
  Json json = {
      {"path", path.string()},           {"step", manifest.step},
      {"time", manifest.time},           {"world_size", manifest.world_size},
      {"bytes", manifest.total_bytes()}, {"versions", manifest.versions},
      {"config", manifest.config},       {"state", Json::parse(manifest.state)},
      {"files", Json::array()},          {"tensors", Json::array()}};
  if (manifest.metric) {
    json["metric"] = {{"name", manifest.metric->name},
                      {"value", manifest.metric->value}};
  }
  for (const auto& file : manifest.files) {
    json["files"].push_back({{"name", file.name},
                             {"size", file.size},
                             {"digest", storage::to_hex(file.digest())}});
  }
  for (const auto& tensor : manifest.tensors) {
    Json item = {
        {"name", tensor.name}, {"dtype", tensor.dtype}, {"shape", tensor.shape}};
    if (!tensor.order.empty()) item["order"] = tensor.order;
    item["pieces"] = Json::array();
    for (const auto& piece : tensor.pieces) {
      item["pieces"].push_back({{"file", manifest.files[piece.file].name},
                                {"begin", piece.begin},
                                {"count", piece.count}});
    }
    json["tensors"].push_back(std::move(item));
  }
  return json;
}

}  // namespace

int inspect_checkpoint(const Arguments& arguments, Context& context) {
  const auto place = checkpoint_place(arguments, context, arguments.operand("WHERE"));
  const auto path = one_checkpoint(place, {arguments.value("--step")}, context);
  const auto manifest = storage::verify(path, storage::Depth::quick);
  if (arguments.has("--json")) {
    context.out << json_line(json_of(manifest, path));
    return kExitOk;
  }
  context.out << printable(text::table(facts_of(manifest, path))) << "\n";
  std::vector<std::vector<std::string>> rows{
      {"TENSOR", "DTYPE", "SHAPE", "SIZE", "WHERE"}};
  for (const auto& tensor : manifest.tensors) {
    rows.push_back({tensor.name, tensor.dtype, storage::to_text(tensor.shape),
                    units::format_bytes(tensor.num_bytes()),
                    where_of(manifest, tensor)});
  }
  context.out << printable(text::table(rows, {3})) << "\n"
              << "state " << printable(Json::parse(manifest.state).dump(2)) << "\n";
  return kExitOk;
}

}  // namespace lockstep::cli
