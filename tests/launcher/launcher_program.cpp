// The programs that the launcher's tests start as ranks, by the name of what they do.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <signal.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/launcher/spawn.h"
#include "tests/launcher/chatter.h"

namespace lockstep {
namespace {

bool write_blocks(int fd, std::string& pending, std::size_t block) {
  while (pending.size() >= block && !pending.empty()) {
    const auto done = ::write(fd, pending.data(), std::min(block, pending.size()));
    if (done <= 0) return false;
    pending.erase(0, static_cast<std::size_t>(done));
  }
  return true;
}

// Both streams at once, as fast as they are read, in blocks that end anywhere in a
// line, as those of the C library do.
int chatter(int rank, long bytes) {
  constexpr std::size_t kBlock = 4096 * 3 - 1;
  std::string out, err;
  long written = 0;
  for (int number = 0; written < bytes; ++number) {
    out += test::chatter_line(rank, 'o', number);
    err += test::chatter_line(rank, 'e', number);
    written += static_cast<long>(test::chatter_line(rank, 'o', number).size() * 2);
    if (!write_blocks(STDOUT_FILENO, out, kBlock) ||
        !write_blocks(STDERR_FILENO, err, kBlock)) {
      return 1;
    }
  }
  return write_blocks(STDOUT_FILENO, out, 1) && write_blocks(STDERR_FILENO, err, 1) ? 0
                                                                                    : 1;
}

using run::RankEnvironment;

// What a rank of spawn() does; `words` are the arguments behind "spawn RANKS".
void act(const run::RankEnvironment& rank, const std::vector<std::string>& words) {
  const auto does = [&](std::string_view what) {
    return !words.empty() && words[0] == what;
  };
  const bool last = rank.rank == rank.world_size - 1;
  if (does("say")) {
    std::printf("%s:", run::describe(rank).c_str());
    for (const auto& word : words) std::printf(" <%s>", word.c_str());
    std::printf("\n");
  }
  if (does("fault") && last) throw Error(Fault::config, "model: no such thing");
  if (does("throw") && last) throw std::out_of_range("an index of 7");
  if (does("throw_number") && last) throw 7;
  if (does("segfault") && last) ::raise(SIGSEGV);
  if (does("exit") && last) std::exit(std::atoi(words[1].c_str()));
  if (does("wait")) {
    std::printf("pid %d\n", static_cast<int>(::getpid()));
    std::fflush(stdout);
    while (true) ::pause();
  }
  if (does("nested")) launcher::spawn(2, [](const run::RankEnvironment&) {});
  if (does("again")) {  // a program of its own, which has ranks of its own
    const auto program = str(words[1], " spawn 2 say again");
    if (std::system(program.c_str()) != 0) throw Error(Fault::io, "again: failed");
  }
}

int spawn(int ranks, const std::vector<std::string>& words) {
  const auto function = [&](const run::RankEnvironment& rank) { act(rank, words); };
  try {
    return launcher::spawn(ranks, function);
  } catch (const Error& error) {
    std::fprintf(stderr, "spawn threw: %s\n", error.what());
    return 90;
  }
}

}  // namespace
}  // namespace lockstep

int main(int count, char** arguments) {
  if (count == 4 && std::string_view(arguments[1]) == "chatter") {
    return lockstep::chatter(std::atoi(arguments[2]), std::atol(arguments[3]));
  }
  if (count >= 3 && std::string_view(arguments[1]) == "spawn") {
    return lockstep::spawn(std::atoi(arguments[2]), {arguments + 3, arguments + count});
  }
  std::fprintf(stderr, "launcher_program: what?\n");
  return 2;
}
