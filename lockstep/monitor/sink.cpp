#include "lockstep/monitor/sink.h"

#include "lockstep/base/str.h"

namespace lockstep::monitor {

std::unique_ptr<Sink> make_sink(config::Sink kind, const SinkContext& context) {
  switch (kind) {
    case config::Sink::jsonl:
      return make_jsonl_sink(context);
    case config::Sink::csv:
      return make_csv_sink(context);
    case config::Sink::tensorboard:
      return make_tensorboard_sink(context);
    case config::Sink::prometheus:
      return make_prometheus_sink(context);
    case config::Sink::wandb:
      return make_wandb_sink(context);
    default:
      return nullptr;
  }
}

std::vector<std::pair<std::string, double>> numbers_of(const Metrics& metrics) {
  std::vector<std::pair<std::string, double>> numbers{{"loss", metrics.loss}};
  for (const auto& field : metrics.more) {
    if (const auto value = number_of(field)) numbers.emplace_back(field.name, *value);
  }
  return numbers;
}

std::string tag_of(Split split, std::string_view metric) {
  return str(name_of(split), "/", metric);
}

std::string tag_of(const Reading& reading) {
  return reading.gpu ? str("gpu", *reading.gpu, "/", reading.name)
                     : str("host/", reading.name);
}

}  // namespace lockstep::monitor
