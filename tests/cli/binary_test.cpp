// The built program: what it links and how it behaves on pipes and terminals.
#include <cstdlib>

#include <fcntl.h>
#include <unistd.h>

#include "lockstep/base/text.h"
#include "tests/cli/rig.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string program() {
  return test::binary("lockstep").string();
}

process::Output shell_with_program(const std::string& script,
                                   const std::string& environment = "") {
  return test::run(
      {"/bin/sh", "-c", environment + " L='" + program() + "'; " + script});
}

// The libraries that the program asks the loader for.
std::string needed_libraries() {
  const auto output = test::run({"readelf", "-d", program()});
  EXPECT_TRUE(output.end.ok()) << output.err;
  std::string needed;
  for (const auto& line : text::split(output.out, '\n')) {
    if (line.find("NEEDED") != std::string::npos) needed += line + "\n";
  }
  EXPECT_THAT(needed, HasSubstr("[libc.so"));
  return needed;
}

TEST(Binary, LinksNeitherTorchNorCuda) {
  for (const auto* name : {"torch", "libc10", "cuda", "nvidia", "nccl", "cublas"}) {
    EXPECT_THAT(needed_libraries(), Not(HasSubstr(name)));
  }
}

// The small libraries are inside, so that it can be carried to another machine.
TEST(Binary, NeedsNothingButTheCLibrary) {
  for (const auto* name : {"yaml", "fmt", "spdlog", "libz.", "libstdc++", "sqlite",
                           "libssl", "libcrypto", "boost"}) {
    EXPECT_THAT(needed_libraries(), Not(HasSubstr(name)));
  }
}

TEST(Binary, AReaderThatGoesAwayIsNoError) {
  const auto output =
      shell_with_program("{ \"$L\" completion bash; echo $? >&2; } | true");
  EXPECT_EQ(output.err, "0\n");
}

TEST(Binary, AResultThatCanNotBeWrittenIsAnError) {
  const auto output = shell_with_program("\"$L\" version > /dev/full");
  EXPECT_EQ(output.end.exit_status, 3);
  EXPECT_THAT(output.err, HasSubstr("cannot write the result"));
}

TEST(Binary, ErrorsAreOneLineOnStandardError) {
  const auto output = test::run({program(), "trian"});
  EXPECT_EQ(output.end.exit_status, 2);
  EXPECT_THAT(output.out, IsEmpty());
  EXPECT_EQ(output.err,
            "lockstep: error: unknown command 'trian'; did you mean 'train'?\n");
}

TEST(Binary, ColoursAreForTerminalsUnlessForced) {
  EXPECT_THAT(test::run({program(), "x"}).err, Not(HasSubstr("\x1b[")));
  EXPECT_THAT(test::run({program(), "x"}, {{"FORCE_COLOR", "1"}}).err,
              HasSubstr("\x1b["));
  EXPECT_THAT(test::run({program(), "x"}, {{"CLICOLOR_FORCE", "1"}}).err,
              HasSubstr("\x1b["));
  EXPECT_THAT(test::run({program(), "x"}, {{"FORCE_COLOR", "1"}, {"NO_COLOR", ""}}).err,
              Not(HasSubstr("\x1b[")));
  EXPECT_THAT(test::run({program(), "x", "--no-color"}, {{"FORCE_COLOR", "1"}}).err,
              Not(HasSubstr("\x1b[")));
}

// What the program writes to a terminal of the given kind.
std::string on_terminal(const std::string& kind) {
  const files::Descriptor master(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  EXPECT_TRUE(master);
  EXPECT_EQ(::grantpt(master.get()) + ::unlockpt(master.get()), 0);
  const std::string terminal = ::ptsname(master.get());
  // Open here, too: the terminal of a master without a slave reads as an error.
  const files::Descriptor slave(
      ::open(terminal.c_str(), O_RDWR | O_NOCTTY | O_CLOEXEC));
  const auto output =
      shell_with_program("\"$L\" x 2> " + terminal, "TERM=" + kind + "; export TERM;");
  EXPECT_EQ(output.end.exit_status, 2);
  std::string text(4096, '\0');
  const auto got = ::read(master.get(), text.data(), text.size());
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return text;
}

TEST(Binary, ATerminalGetsColourAndADumbOneDoesNot) {
  EXPECT_THAT(on_terminal("xterm"), HasSubstr("\x1b[1;31merror:"));
  EXPECT_THAT(on_terminal("dumb"), HasSubstr("lockstep: error:"));
}

TEST(Binary, ItsCommandLineCanBeTypedAgain) {
  EXPECT_EQ(cli::command_line("./my bin/lockstep",
                              {"train", "a b.yaml", "x=it's", "", "optim.lr=3e-4"}, {}),
            "'./my bin/lockstep' train 'a b.yaml' 'x=it'\\''s' '' optim.lr=3e-4");
}

TEST(Binary, ItsCommandLineHasTheVariablesThatSetKnobs) {
  EXPECT_EQ(cli::command_line("lockstep", {"train", "x.yaml"},
                              {{"LOCKSTEP_OPTIM_LR", "3e-4"},
                               {"LOCKSTEP_EARLY_STOP_METRIC", "a b"},
                               {"LOCKSTEP_TRAIN_STEPS", ""},
                               {"LOCKSTEP_LIBTORCH", "/opt/torch"},
                               {"OPTIM_LR", "1"}}),
            "LOCKSTEP_OPTIM_LR=3e-4 LOCKSTEP_EARLY_STOP_METRIC='a b' lockstep train "
            "x.yaml");
}

}  // namespace
}  // namespace lockstep
