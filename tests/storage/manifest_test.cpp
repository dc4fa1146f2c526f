#include "lockstep/storage/manifest.h"

#include "tests/storage/support/small_checkpoint.h"

namespace lockstep::test {
namespace {

storage::Manifest two_files() {
  storage::Manifest manifest = small_head({.step = 7, .loss = 0.25});
  manifest.files = {{"a.safetensors", 100, std::vector<storage::Digest>(2)},
                    {"b.safetensors", 64, std::vector<storage::Digest>(1)}};
  manifest.tensors = {{"x", "F32", {4, 5}, {1, 0}, {{0, 0, 12, 40}, {1, 12, 8, 0}}}};
  return manifest;
}

std::string refusal(const std::function<void(storage::Manifest&)>& change) {
  auto manifest = two_files();
  change(manifest);
  return error_text(Fault::io, [&] { storage::check(manifest, "here"); });
}

TEST(Manifest, TextKeepsEverything) {
  auto manifest = two_files();
  manifest.config = "line: 1\n\ttab \"quote\" ü\n";
  manifest.state = R"({"a":[1,2.5,null],"b":18446744073709551615,"c":0.1})";
  const auto text = storage::to_text(manifest);
  const auto read = storage::manifest_from_text(text, "here");
  EXPECT_EQ(storage::to_text(read), text);
  EXPECT_EQ(read.state, manifest.state);
  EXPECT_EQ(read.config, manifest.config);
  EXPECT_EQ(read.metric->value, 0.25);
  EXPECT_EQ(read.find("x")->order, (storage::Order{1, 0}));
  EXPECT_EQ(read.find("x")->pieces[1].offset, 0);
  EXPECT_EQ(read.find("y"), nullptr);
}

TEST(Manifest, WhatDoesNotCoverATensorExactlyOnceIsRefused) {
  using testing::HasSubstr;
  EXPECT_THAT(refusal([](auto& m) { m.tensors[0].pieces[1].begin = 13; }),
              HasSubstr("no piece begins at 13"));
  EXPECT_THAT(refusal([](auto& m) { m.tensors[0].pieces[0].count = 11; }),
              HasSubstr("elements 11 to 12 are missing"));
  EXPECT_THAT(refusal([](auto& m) { m.tensors[0].pieces[0].count = 13; }),
              HasSubstr("elements 12 to 13 come twice"));
  EXPECT_THAT(refusal([](auto& m) { m.tensors[0].pieces.pop_back(); }),
              HasSubstr("elements 12 to 20 are missing"));
  EXPECT_THAT(refusal([](auto& m) { m.tensors[0].pieces[0].count = -1; }),
              HasSubstr("no piece"));
}

TEST(Manifest, WhatCanNotBeIsRefused) {
  using testing::HasSubstr;
  EXPECT_THAT(refusal([](auto& m) { m.tensors[0].pieces[0].offset = 60; }),
              HasSubstr("48 bytes at 60 are not in 'a.safetensors', which has 100"));
  EXPECT_THAT(refusal([](auto& m) {
                m.tensors[0].order = {0, 0};
              }),
              HasSubstr("order"));
  EXPECT_THAT(refusal([](auto& m) {
                m.tensors[0].order = {0, 1};
              }),
              HasSubstr("order"));
  EXPECT_THAT(refusal([](auto& m) { m.tensors[0].dtype = "F33"; }), HasSubstr("F33"));
  EXPECT_THAT(refusal([](auto& m) {
                m.tensors[0].shape = {1LL << 62, 8};
              }),
              HasSubstr("impossible"));
  EXPECT_THAT(refusal([](auto& m) { m.files[0].name = "../a"; }), HasSubstr("'../a'"));
  EXPECT_THAT(refusal([](auto& m) { m.files[0].name = "manifest.json"; }),
              HasSubstr("manifest.json"));
  EXPECT_THAT(refusal([](auto& m) { m.files[1].name = "a.safetensors"; }),
              HasSubstr("listed twice"));
  EXPECT_THAT(refusal([](auto& m) { m.files[0].blocks.pop_back(); }),
              HasSubstr("1 digests for 2 blocks"));
  EXPECT_THAT(refusal([](auto& m) { m.block_bytes = 65; }), HasSubstr("65"));
  EXPECT_THAT(refusal([](auto& m) { m.tensors.push_back(m.tensors[0]); }),
              HasSubstr("twice"));
  EXPECT_THAT(refusal([](auto& m) { m.step = -1; }), HasSubstr("-1"));
  EXPECT_THAT(refusal([](auto& m) { m.metric->value = NAN; }), HasSubstr("nan"));
}

TEST(Manifest, ANewerFormatAsksForANewerProgram) {
  auto text = storage::to_text(two_files());
  const std::string old = "\"format\": 1,";
  text.replace(text.find(old), old.size(), "\"format\": 2,");
  // As a newer program would have written it.
  const auto rest = text.substr(text.find('\n') + 1);
  text =
      str("{\"digest\": \"", storage::to_hex(storage::digest_of(rest)), "\",\n", rest);
  EXPECT_THAT(
      error_text(Fault::config, [&] { storage::manifest_from_text(text, "here"); }),
      testing::HasSubstr("format 2 is newer than 1"));
}

// What another program might have written: to_text() with a part of it replaced.
std::string refused_text(const std::string& part, const std::string& by) {
  auto text = storage::to_text(two_files());
  const auto at = text.find(part);
  EXPECT_NE(at, std::string::npos) << text;
  text.replace(at, part.size(), by);
  const auto rest = text.substr(text.find('\n') + 1);
  text =
      str("{\"digest\": \"", storage::to_hex(storage::digest_of(rest)), "\",\n", rest);
  return error_text(Fault::io, [&] { storage::manifest_from_text(text, "here"); });
}

TEST(Manifest, TheStepsOfTheStateAreItsStep) {
  auto manifest = two_files();
  manifest.state = R"({"steps":7})";
  EXPECT_NO_THROW(storage::manifest_from_text(storage::to_text(manifest), "here"));
  for (const std::string steps : {"6", "7.5", "\"7\"", "null"}) {
    manifest.state = str("{\"steps\":", steps, "}");
    EXPECT_EQ(
        error_text(
            Fault::io,
            [&] { storage::manifest_from_text(storage::to_text(manifest), "here"); }),
        str("here: state.steps is ", steps, ", but step is 7"));
  }
}

TEST(Manifest, WhatIsWrongWithATensorNamesTheTensor) {
  EXPECT_EQ(refused_text("[4,5]", "[4,\"5\"]"),
            "here: tensor 'x': '\"5\"' stands where a whole number should");
  EXPECT_EQ(refused_text("\"shape\":[4,5]", "\"form\":[4,5]"),
            "here: tensor 'x': key 'shape' not found");
  EXPECT_EQ(refused_text("\"dtype\":\"F32\"", "\"dtype\":32"),
            "here: tensor 'x': type must be string, but is number");
  EXPECT_EQ(refused_text("\"file\":\"a.safetensors\"", "\"file\":\"c\""),
            "here: tensor 'x': it is in a file 'c' that is not listed");
  EXPECT_EQ(refused_text("{\"name\":\"x\"", "{\"called\":\"x\""),
            "here: tensors[0]: key 'name' not found");
  EXPECT_EQ(refused_text("{\"name\":\"x\"", "}{\"name\":\"x\"").find("json.exception"),
            std::string::npos);
}

TEST(Manifest, DigestsArePrintedAsXxhsumDoes) {
  // The digest of nothing, as the specification of XXH3 has it.
  EXPECT_EQ(storage::to_hex(storage::digest_of(std::string_view())),
            "99aa06d3014798d86001c324468d497f");
  const storage::Digest digest{0x0123456789abcdefULL, 0xfedcba9876543210ULL};
  EXPECT_EQ(storage::digest_from_hex("0123456789abcdeffedcba9876543210"), digest);
  EXPECT_EQ(storage::digest_from_hex("0123456789ABCDEFfedcba9876543210"), std::nullopt);
  EXPECT_EQ(storage::digest_from_hex("0123"), std::nullopt);
}

}  // namespace
}  // namespace lockstep::test
