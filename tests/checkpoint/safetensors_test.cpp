#include "lockstep/checkpoint/safetensors.h"

#include <nlohmann/json.hpp>

#include "tests/support/oracle.h"

namespace lockstep::checkpoint {
namespace {

std::uint64_t little_endian(const std::string& bytes) {
  std::uint64_t value = 0;
  for (int i = 7; i >= 0; --i) {
    value = value << 8 | static_cast<std::uint8_t>(bytes[static_cast<std::size_t>(i)]);
  }
  return value;
}

NamedTensors every_dtype() {
  torch::manual_seed(1);
  const auto base = torch::randn({2, 3, 4, 5}) * 10;
  return {{"half", base.to(torch::kFloat16)},
          {"double", base.to(torch::kFloat64)},
          {"float", base},
          {"bfloat", base.to(torch::kBFloat16)},
          {"int", base.to(torch::kInt32)},
          {"long", base.to(torch::kInt64)},
          {"byte", base.abs().to(torch::kUInt8)},
          {"bool", base.gt(0)},
          {"scalar", torch::tensor(1.5F)},
          {"empty", torch::zeros({0, 3})},
          {"channels_last", base.contiguous(torch::MemoryFormat::ChannelsLast)},
          {"transposed", base.transpose(0, 3)}};
}

TEST(Safetensors, HeaderCoversTheFileWithoutHoles) {
  const files::TemporaryDirectory folder;
  const auto file = folder.path() / "x.safetensors";
  write_safetensors(file, every_dtype());
  const auto bytes = test::read_file(file);
  const auto length = little_endian(bytes);
  EXPECT_EQ(length % 8, 0u);
  const auto header = nlohmann::json::parse(bytes.substr(8, length));
  EXPECT_EQ(header["__metadata__"]["format"], "pt");
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    ranges.emplace_back(entry["data_offsets"][0], entry["data_offsets"][1]);
  }
  std::sort(ranges.begin(), ranges.end());
  std::uint64_t at = 0;
  for (const auto& [begin, end] : ranges) {
    EXPECT_EQ(begin, at);
    at = end;
  }
  EXPECT_EQ(8 + length + at, bytes.size());
}

TEST(Safetensors, PythonReadsEveryDtypeAndLayout) {
  LOCKSTEP_NEEDS_ORACLE();
  const files::TemporaryDirectory folder;
  const auto file = folder.path() / "x.safetensors";
  write_safetensors(file, every_dtype());
  test::expect_oracle_agrees("safetensors_read.py", {file.string()});
}

TEST(Safetensors, StateHasPythonsNames) {
  torch::nn::Sequential net(torch::nn::Linear(2, 3), torch::nn::BatchNorm1d(3));
  std::vector<std::string> names;
  for (const auto& [name, tensor] : state_of(*net)) names.push_back(name);
  EXPECT_THAT(names, testing::UnorderedElementsAre(
                         "0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean",
                         "1.running_var", "1.num_batches_tracked"));
}

TEST(Safetensors, TwoTensorsOfOneNameAreOurBug) {
  const files::TemporaryDirectory folder;
  test::error_text(Fault::internal, [&] {
    write_safetensors(folder.path() / "x",
                      {{"a", torch::ones({1})}, {"a", torch::ones({1})}});
  });
}

TEST(Safetensors, AFullDiskLeavesTheOldFile) {
  const files::TemporaryDirectory folder;
  const auto file = folder.path() / "x.safetensors";
  write_safetensors(file, {{"a", torch::ones({4})}});
  const auto before = test::read_file(file);
  const int status = test::in_child([&] {
    test::limit_file_size(4096);
    try {
      write_safetensors(file, {{"a", torch::ones({100000})}});
    } catch (const Error& error) {
      return error.fault() == Fault::io ? 0 : 1;
    }
    return 2;
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(test::read_file(file), before);
  EXPECT_EQ(test::names_in(folder.path()).size(), 1u);
}

}  // namespace
}  // namespace lockstep::checkpoint
