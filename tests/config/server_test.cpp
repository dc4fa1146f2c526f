#include "lockstep/config/server.h"

#include "lockstep/base/files.h"
#include "tests/support/support.h"

namespace lockstep::config {
namespace {

using ::testing::HasSubstr;

LoadedServer server_with(const std::vector<std::string>& words) {
  std::vector<Override> overrides;
  for (const auto& word : words) overrides.push_back(parse_override(word));
  return load_server("", overrides);
}

TEST(ServerConfig, ListensOnALoopbackUnlessToldOtherwise) {
  EXPECT_TRUE(is_loopback(ServerConfig().http.address));
  for (const auto* address : {"127.0.0.1", "127.3.2.1", "localhost", "::1"}) {
    EXPECT_TRUE(is_loopback(address)) << address;
  }
  for (const auto* address : {"0.0.0.0", "::", "10.0.0.1", "127.0.0.1.example.org",
                              "127.1", "127.0.0.999", "", "128.0.0.1"}) {
    EXPECT_FALSE(is_loopback(address)) << address;
  }
}

TEST(ServerConfig, AnotherAddressNeedsTlsOrAProxy) {
  EXPECT_THAT(
      test::error_text(Fault::config,
                       [] { validate(server_with({"http.address=0.0.0.0"}), false); }),
      HasSubstr("http.certificate"));
  validate(server_with({"http.address=0.0.0.0", "http.behind_proxy=true"}), false);
  validate(server_with({"http.address=0.0.0.0", "http.certificate=/c", "http.key=/k"}),
           false);
  EXPECT_THAT(
      test::error_text(Fault::config,
                       [] { validate(server_with({"http.certificate=/c"}), false); }),
      HasSubstr("http.key"));
}

TEST(ServerConfig, WithoutTokensOnlyALoopbackWillDo) {
  validate(server_with({}), true);
  EXPECT_THAT(test::error_text(Fault::config,
                               [] {
                                 validate(server_with({"http.address=0.0.0.0",
                                                       "http.behind_proxy=true"}),
                                          true);
                               }),
              HasSubstr("--insecure-local"));
}

TEST(ServerConfig, AFileIsReadAsRecipesAre) {
  const files::TemporaryDirectory folder;
  const auto file = folder.path() / "server.yaml";
  test::write_file(file,
                   "http: {port: 9000}\nprovided:\n  inputs: {fashion: /data/f}\n");
  const std::vector<Override> overrides{{"http.threads", "3"}};
  const auto loaded = load_server(file, overrides);
  EXPECT_EQ(loaded.config.http.port, 9000);
  EXPECT_EQ(loaded.config.http.threads, 3);
  EXPECT_EQ(loaded.config.provided.inputs.at("fashion"), "/data/f");
  test::write_file(file, "http: {prot: 9000}\n");
  EXPECT_THAT(test::error_text(Fault::config, [&] { load_server(file, {}); }),
              HasSubstr("did you mean 'http.port'"));
}

TEST(ServerConfig, TheReferenceIsCurrent) {
  EXPECT_EQ(test::read_file(test::source_root() / "docs" / "reference" / "server.md"),
            server_reference_markdown())
      << "build/bin/lockstep serve --reference > docs/reference/server.md";
}

}  // namespace
}  // namespace lockstep::config
