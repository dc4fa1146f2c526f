#include "lockstep/inference/script_notes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

// A task of which the name alone is asked for.
class NotedTask : public task::Task {
 public:
  std::string_view name() const noexcept override { return "classification"; }
  const std::vector<task::LossSpec>& losses() const noexcept override {
    return losses_;
  }
  task::Sums sums(const Named&, const Named&, const task::Pass&) const override {
    return {};
  }

 private:
  std::vector<task::LossSpec> losses_;
};

// Names of a table that is in Latin-1.
TEST(ScriptNotes, NamesOfClassesNeedNotBeUtf8) {
  const data::SampleSpec spec{
      .shape = {2}, .dtype = torch::kFloat32, .class_names = {"caf\xE9", "tea"}};
  const Named inputs{{"input", torch::zeros({3, 2})}};
  const Named outputs{{"output", torch::zeros({3, 2})}};
  const auto notes = nlohmann::json::parse(
      inference::script_notes({NotedTask(), spec, inputs, outputs}));
  EXPECT_EQ(notes.at("class_names").at(0), "caf\xEF\xBF\xBD");
  EXPECT_EQ(notes.at("class_names").at(1), "tea");
  EXPECT_EQ(notes.at("inputs").at(0).at("shape").dump(), "[\"batch\",2]");
}

}  // namespace
}  // namespace lockstep
