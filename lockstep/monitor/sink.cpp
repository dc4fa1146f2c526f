#include "lockstep/monitor/sink.h"

#include "lockstep/base/str.h"

namespace lockstep::monitor {

// Each function is in the source of its sink.
#define LOCKSTEP_DECLARE(name) \
  std::unique_ptr<Sink> make_##name##_sink(const SinkContext& context);
LOCKSTEP_SINKS(LOCKSTEP_DECLARE)
#undef LOCKSTEP_DECLARE

std::unique_ptr<Sink> make_sink(config::Sink kind, const SinkContext& context) {
  switch (kind) {
#define LOCKSTEP_CASE(name) \
  case config::Sink::name:  \
    return make_##name##_sink(context);
    LOCKSTEP_SINKS(LOCKSTEP_CASE)
#undef LOCKSTEP_CASE
    case config::Sink::console:
      break;
  }
  return nullptr;
}

std::vector<std::pair<std::string, double>> numbers_of(const Metrics& metrics) {
  std::vector<std::pair<std::string, double>> numbers{{"loss", metrics.loss}};
  for (const auto& field : metrics.more) {
    if (const auto value = run::number_of(field))
      numbers.emplace_back(field.name, *value);
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
