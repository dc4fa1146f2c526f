#include "lockstep/run/error_file.h"

#include "tests/support/support.h"

namespace lockstep {
namespace {

TEST(ErrorFile, ReadsBack) {
  const files::TemporaryDirectory directory;
  const auto path = directory.path() / "error_rank_0.json";
  for (const auto fault : {Fault::config, Fault::hardware, Fault::io, Fault::comm,
                           Fault::diverged, Fault::internal}) {
    const std::string message = "data: 'x: y' is missing; install \"it\"\n2nd line";
    run::write_error(path, {.fault = fault, .message = message, .rank = 3});
    const auto error = run::read_error(path);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->fault, fault);
    EXPECT_EQ(error->message, message);
    EXPECT_EQ(error->rank, 3);
  }
}

TEST(ErrorFile, HasTheFormThatTorchrunReads) {
  const files::TemporaryDirectory directory;
  const auto path = directory.path() / "error_rank_0.json";
  ManualClock clock;
  run::write_error(path, {.fault = Fault::io, .message = "disk full"}, clock);
  EXPECT_EQ(test::read_file(path),
            "{\n"
            "  \"message\": {\n"
            "    \"message\": \"lockstep.Fault.io: disk full\",\n"
            "    \"extraInfo\": {\n"
            "      \"timestamp\": \"1700000000\"\n"
            "    }\n"
            "  },\n"
            "  \"fault\": \"io\",\n"
            "  \"rank\": 0,\n"
            "  \"time\": 1700000000.0\n"
            "}\n");
}

TEST(ErrorFile, TheFilesOfPyTorchAreRead) {
  const files::TemporaryDirectory directory;
  const auto path = directory.path() / "error.json";
  for (const auto* text :
       {R"({"message": {"message": "RuntimeError: boom", "extraInfo":
             {"py_callstack": "Traceback ...", "timestamp": "1700000001"}}})",
        R"({"message": "RuntimeError: boom", "timestamp": 1700000001})",
        R"({"message": {"message": "RuntimeError: boom", "errorCode": 1, "extraInfo":
             {"timestamp": 1700000001}}, "timestamp": 5})"}) {
    test::write_file(path, text);
    const auto error = run::read_error(path);
    ASSERT_TRUE(error) << text;
    EXPECT_EQ(error->message, "RuntimeError: boom");
    EXPECT_EQ(error->time, 1700000001.0) << text;
    EXPECT_EQ(error->fault, Fault::internal);
  }
}

TEST(ErrorFile, AMissingOrDamagedOneIsNothing) {
  const files::TemporaryDirectory directory;
  const auto path = directory.path() / "error_rank_0.json";
  EXPECT_EQ(run::read_error(path), std::nullopt);
  for (const auto* text : {"", "{", "{\"message\": 3}", "{\"message\": {}}", "[]"}) {
    test::write_file(path, text);
    EXPECT_EQ(run::read_error(path), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace lockstep
