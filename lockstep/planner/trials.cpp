#include "lockstep/planner/trials.h"

#include <algorithm>
#include <cmath>

namespace lockstep::planner {

std::vector<Correction::Trial> factors_of_trials(const run::ModelDescription& model,
                                                 const hardware::Machine& machine) {
  std::vector<Correction::Trial> factors;
  if (model.cpu_model != machine.cpu_model) return factors;
  for (const auto& trial : model.trials) {
    config::Config config;
    config.parallel.device = config::Device::cpu;
    config.parallel.threads = trial.threads;
    config.precision.mode = config::Precision::fp32;
    const auto predicted =
        time_cost({config, machine, model, {}}, {.micro = trial.samples}).compute;
    if (predicted > 0 && trial.seconds > 0) {
      factors.push_back(
          {static_cast<double>(trial.threads), trial.seconds / predicted});
    }
  }
  return factors;
}

double Correction::time_with(double threads) const {
  if (runs > 0 || trials.empty()) return time;
  const auto distance = [&](const Trial& trial) {
    return std::abs(std::log(trial.threads / std::max(threads, 1e-3)));
  };
  return std::min_element(trials.begin(), trials.end(),
                          [&](const Trial& one, const Trial& other) {
                            return distance(one) < distance(other);
                          })
      ->factor;
}

}  // namespace lockstep::planner
