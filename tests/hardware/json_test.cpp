#include "lockstep/hardware/json.h"

#include "tests/hardware/fake_machine.h"

namespace lockstep {
namespace {

using hardware::from_json;
using hardware::Machine;
using ::testing::HasSubstr;

std::string refusal(const std::string& text) {
  return test::error_text(Fault::config, [&] { from_json(text, "node.json"); });
}

Machine full_machine() {
  auto state = test::fake_gpus(2);
  state["gpus"][0]["processes"] = {{{"pid", 1}, {"memory", 5}}};
  state["gpus"][0]["nvlinks"] = {test::fake_pci(1)};
  state["topology"] = {{0, 10}, {10, 0}};
  const test::FakeMachine machine(state);
  machine.file("sys/class/net/eth0/type", "1\n");
  machine.file("sys/devices/system/node/online", "0\n");
  machine.file("sys/devices/system/cpu/cpu0/cache/index0/level", "1\n");
  auto full = hardware::inspect("/", machine.root());
  full.measured.emplace();
  full.measured->gpus.emplace_back();
  full.measured->pairs.emplace_back();
  full.measured->collectives.emplace_back();
  return full;
}

TEST(MachineJson, ReadsBackToTheSame) {
  for (const auto& machine : {full_machine(), Machine{}, hardware::inspect(".")}) {
    const auto text = to_json(machine);
    EXPECT_EQ(to_json(from_json(text, "x")), text);
  }
}

TEST(MachineJson, HasEveryFieldEvenWithoutAValue) {
  const auto json = test::Json::parse(to_json(full_machine()));
  EXPECT_EQ(json.at("format"), 1);
  EXPECT_EQ(json.at("gpus").at(0).at("status").at("utilization_percent"), 0);
  EXPECT_EQ(json.at("gpus").at(1).at("multiprocessors"), 132);
  EXPECT_TRUE(json.at("gpus").at(0).at("numa_node").is_null());
  EXPECT_EQ(json.at("gpu_pairs").at(0).at("path"), "switch");
  EXPECT_TRUE(json.at("cgroup_cores").is_null());
}

TEST(MachineJson, ASmallOneWrittenByHandIsEnough) {
  const auto machine = from_json(
      R"({"physical_cores": 32, "gpus": [{"name": "A"}, {"name": "B",
          "memory_total_bytes": "24GB", "compute_major": 8}]})",
      "node.json");
  EXPECT_EQ(machine.physical_cores, 32);
  EXPECT_EQ(machine.gpus.at(1).memory_total_bytes, 24'000'000'000);
  EXPECT_EQ(machine.gpus.at(1).index, 1);
  EXPECT_EQ(machine.gpus.at(1).nvml_index, 1);
  EXPECT_EQ(machine.sockets, 1);
}

TEST(MachineJson, WhatIsWrongIsNamedWithItsPlace) {
  EXPECT_THAT(refusal("{"), HasSubstr("node.json is not JSON"));
  EXPECT_THAT(refusal("[]"), HasSubstr("node.json: [] is not an object"));
  EXPECT_THAT(refusal(R"({"gpus": 3})"), HasSubstr("node.json: gpus: 3 is not a list"));
  EXPECT_THAT(refusal(R"({"gpus": [{}, 4]})"),
              HasSubstr("gpus[1]: 4 is not an object"));
  EXPECT_THAT(
      refusal(R"({"gpus": [{"memory_total_bytes": "24G"}]})"),
      HasSubstr("gpus[0].memory_total_bytes: \"24G\" is not a number of bytes"));
  EXPECT_THAT(refusal(R"({"sockets": -1})"), HasSubstr("sockets: -1 is not a whole"));
  EXPECT_THAT(refusal(R"({"sockets": 1.5})"), HasSubstr("sockets: 1.5 is not a whole"));
  EXPECT_THAT(refusal(R"({"sockets": 99999999999})"), HasSubstr("is not a whole"));
  EXPECT_THAT(refusal(R"({"disk": {"writable": 1}})"),
              HasSubstr("disk.writable: 1 is not true or false"));
  EXPECT_THAT(refusal(R"({"hostname": 1})"), HasSubstr("hostname: 1 is not text"));
}

TEST(MachineJson, WhatHasNeitherCoresNorGpusIsNoMachine) {
  for (const auto* text : {"{}", R"({"hostname": "a"})", R"({"gpus": []})"}) {
    EXPECT_THAT(
        refusal(text),
        HasSubstr("node.json: neither physical_cores nor gpus, so this does not "
                  "describe a machine; `lockstep hardware --json` makes such a file"));
  }
  EXPECT_EQ(from_json(R"({"physical_cores": 8})", "x").logical_cores, 8);
  EXPECT_EQ(from_json(R"({"logical_cores": 4})", "x").physical_cores, 4);
}

TEST(MachineJson, AnUnknownNameIsRefusedWithASuggestion) {
  EXPECT_THAT(refusal(R"({"gpus": [{"memory_total_byte": 1}]})"),
              HasSubstr("gpus[0].memory_total_byte: there is no such field; did you "
                        "mean 'memory_total_bytes'?"));
  EXPECT_THAT(refusal(R"({"colour": 1})"), HasSubstr("docs/hardware.md"));
}

TEST(MachineJson, ANewerFormatIsRefused) {
  EXPECT_THAT(refusal(R"({"format": 2})"), HasSubstr("use a newer Lockstep"));
}

TEST(MachineJson, AMissingFileIsAnErrorOfTheFile) {
  EXPECT_THAT(test::error_text(Fault::io, [] { hardware::load("/no/such.json"); }),
              HasSubstr("/no/such.json"));
}

// Every name in the JSON stands in the document that describes it.
void expect_documented(const test::Json& json, const std::string& document) {
  if (json.is_array() && !json.empty()) expect_documented(json.at(0), document);
  if (!json.is_object()) return;
  for (const auto& [name, value] : json.items()) {
    EXPECT_THAT(document, HasSubstr("`" + name + "`"));
    expect_documented(value, document);
  }
}

TEST(MachineJson, TheDocumentNamesEveryField) {
  const auto document = test::read_file(test::source_root() / "docs/hardware.md");
  expect_documented(test::Json::parse(to_json(full_machine())), document);
}

}  // namespace
}  // namespace lockstep
