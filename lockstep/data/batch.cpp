#include "lockstep/data/batch.h"

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::data {

const torch::Tensor& Batch::at(std::string_view name) const {
  if (name == "input") return inputs;
  if (name == "target") return targets;
  for (const auto& field : fields) {
    if (field.name == name) return field.tensor;
  }
  std::vector<std::string> names{"input", "target"};
  for (const auto& field : fields) names.push_back(field.name);
  throw Error(Fault::config, "data: a sample has no field '", name, "'; it has ",
              text::join(names, ", "));
}

}  // namespace lockstep::data
