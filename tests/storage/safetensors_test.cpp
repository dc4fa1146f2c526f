#include "lockstep/storage/safetensors.h"

#include "tests/storage/support/small_checkpoint.h"
#include "tests/support/oracle.h"

namespace lockstep::test {
namespace {

// A file of that header and `data_bytes` zeros.
std::string file_of(const std::string& json, std::size_t data_bytes = 0) {
  std::string length(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) {
    length[i] = static_cast<char>(json.size() >> (8 * i) & 0xFF);
  }
  return length + json + std::string(data_bytes, '\0');
}

std::string refusal(const std::string& bytes) {
  return error_text(Fault::io, [&] {
    storage::parse_safetensors(bytes, static_cast<std::int64_t>(bytes.size()), "x");
  });
}

TEST(SafetensorsHeader, WhatIsWrittenIsRead) {
  std::vector<storage::SafetensorsEntry> entries = {
      {"b", "F32", {2, 3}}, {"ü \"quoted\"", "BF16", {}}, {"none", "I8", {0, 5}}};
  std::sort(entries.begin(), entries.end(), storage::comes_before);
  storage::place(entries);
  auto bytes = storage::header_text(entries, {{"who", "me"}});
  EXPECT_EQ(bytes.size() % 8, 0u);
  bytes += std::string(26, '\0');
  const auto header =
      storage::parse_safetensors(bytes, static_cast<std::int64_t>(bytes.size()), "x");
  EXPECT_EQ(header.entries.size(), 3u);
  EXPECT_EQ(header.metadata.at("format"), "pt");
  EXPECT_EQ(header.metadata.at("who"), "me");
  ASSERT_NE(header.find("ü \"quoted\""), nullptr);
  EXPECT_EQ(header.find("ü \"quoted\"")->begin, 24);
  EXPECT_EQ(header.find("b")->shape, (storage::Shape{2, 3}));
}

TEST(SafetensorsHeader, WhatTheFormatDoesNotHaveIsRefusedWithTheReason) {
  using testing::HasSubstr;
  const auto entry = [](const std::string& fields) {
    return "{\"a\":{" + fields + "}}";
  };
  EXPECT_THAT(refusal(""), HasSubstr("0 bytes"));
  EXPECT_THAT(refusal(std::string(8, '\xFF')), HasSubstr("the limit is 100000000"));
  EXPECT_THAT(refusal(file_of("{}").substr(0, 9)), HasSubstr("should have 2 bytes"));
  EXPECT_THAT(refusal(file_of("[]")), HasSubstr("no object"));
  EXPECT_THAT(refusal(file_of("{} x")), HasSubstr("not JSON from byte"));
  EXPECT_THAT(refusal(file_of("{\"a\":1}")), HasSubstr("a number stands where"));
  EXPECT_THAT(refusal(file_of("{}", 3)), HasSubstr("end at byte 0 of 3"));
  EXPECT_THAT(
      refusal(file_of(entry(R"("dtype":"F31","shape":[],"data_offsets":[0,4])"), 4)),
      HasSubstr("dtype 'F31'"));
  EXPECT_THAT(
      refusal(file_of(entry(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"), 4)),
      HasSubstr("F32 [2] has 8 bytes"));
  EXPECT_THAT(
      refusal(file_of(entry(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])"), 4)),
      HasSubstr("negative"));
  EXPECT_THAT(
      refusal(file_of(entry(R"("dtype":"F32","shape":[1.5],"data_offsets":[0,4])"), 4)),
      HasSubstr("1.5 stands where"));
  EXPECT_THAT(
      refusal(file_of(entry(
          R"("dtype":"U8","shape":[4294967296,4294967296,16],"data_offsets":[0,0])"))),
      HasSubstr("impossible"));
  EXPECT_THAT(refusal(file_of(
                  entry(R"("dtype":"F32","shape":[],"data_offsets":[0,4],"x":1)"), 4)),
              HasSubstr("field 'x'"));
  EXPECT_THAT(refusal(file_of(entry(R"("dtype":"F32","shape":[])"), 4)),
              HasSubstr("has no dtype, shape"));
  EXPECT_THAT(
      refusal(file_of(
          entry(R"("dtype":"F32","dtype":"F32","shape":[],"data_offsets":[0,4])"), 4)),
      HasSubstr("'dtype' comes twice"));
  EXPECT_THAT(
      refusal(file_of(entry(R"("dtype":"F4","shape":[3],"data_offsets":[0,2])"), 2)),
      HasSubstr("impossible"));
  EXPECT_THAT(refusal(file_of(R"({"__metadata__":{"a":1}})")),
              HasSubstr("a number stands where"));
  EXPECT_THAT(refusal(file_of(R"({"__metadata__":{"a":{}}})")),
              HasSubstr("an object stands where"));
}

TEST(SafetensorsHeader, HolesOverlapsAndTwinsAreRefused) {
  const auto two = [](const std::string& second, const std::string& offsets) {
    return R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},")" + second +
           R"(":{"dtype":"U8","shape":[4],"data_offsets":)" + offsets + "}}";
  };
  const auto whole = file_of(two("b", "[4,8]"), 8);
  EXPECT_EQ(
      storage::parse_safetensors(whole, static_cast<std::int64_t>(whole.size()), "x")
          .entries.size(),
      2u);
  EXPECT_THAT(refusal(file_of(two("b", "[5,9]"), 9)), testing::HasSubstr("hole"));
  EXPECT_THAT(refusal(file_of(two("b", "[3,7]"), 7)),
              testing::HasSubstr("inside a tensor"));
  EXPECT_THAT(refusal(file_of(two("a", "[4,8]"), 8)),
              testing::HasSubstr("'a' comes twice"));
  EXPECT_THAT(refusal(file_of(two("b", "[4,8]"), 9)),
              testing::HasSubstr("end at byte 8 of 9"));
}

TEST(SafetensorsHeader, EveryDtypeOfTheFormatIsKnown) {
  for (const auto* name : {"BOOL", "U8",   "I8",  "F8_E5M2", "F8_E4M3", "I16",    "U16",
                           "F16",  "BF16", "I32", "U32",     "F32",     "C64",    "F64",
                           "I64",  "U64",  "F4",  "F6_E2M3", "F6_E3M2", "F8_E8M0"}) {
    EXPECT_TRUE(storage::bits_of(name).has_value()) << name;
  }
  EXPECT_EQ(storage::bits_of("f32"), std::nullopt);
  EXPECT_EQ(storage::num_bytes("F4", 4), 2);
  EXPECT_EQ(storage::num_bytes("F4", 3), std::nullopt);
}

TEST(SafetensorsHeader, PythonOpensTheFilesOfACheckpoint) {
  LOCKSTEP_NEEDS_ORACLE();
  const files::TemporaryDirectory folder;
  const auto place = save_small(storage::FileSystem::real(), folder.path(),
                                {.step = 1, .seed = 1, .ranks = 2});
  expect_oracle_agrees("safetensors_open.py",
                       {(place / "rank_0.safetensors").string(),
                        (place / "rank_1.safetensors").string()});
}

}  // namespace
}  // namespace lockstep::test
