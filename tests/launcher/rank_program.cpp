// A rank that does what it is told, word by word, and a launcher of such ranks.
//
//   rank_program WORD...                   as a rank
//   rank_program launch RUN RANKS WORD...  run_job() with RANKS ranks that get the
//   words
//
// A word is an action, `r1.ACTION` for rank 1 only, `a0.ACTION` for the first attempt
// only, `a0.r1.ACTION` for both. NOTES in the environment is a file that takes notes.
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lockstep/base/text.h"
#include "lockstep/launcher/job.h"
#include "lockstep/run/error_file.h"
#include "lockstep/run/heartbeat.h"

namespace lockstep {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

int number(std::string_view text) {
  return static_cast<int>(text::to_integer(text).value());
}

void note(const std::string& text) {
  const int file = ::open(variable("NOTES").c_str(),
                          O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  const auto line = text + "\n";
  if (::write(file, line.data(), line.size()) < 0) std::_Exit(99);
  ::close(file);
}

[[noreturn]] void wait_for_ever() {
  while (true) ::pause();
}

void when_it_exists(const std::string& path) {
  while (::access(path.c_str(), F_OK) != 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

class RankProgram {
 public:
  void run(std::string word) {
    if (word[0] == 'a' && word[2] == '.') {
      if (word[1] != attempt_[0]) return;
      word.erase(0, 3);
    }
    if (word[0] == 'r' && word[2] == '.') {
      if (word[1] != rank_[0]) return;
      word.erase(0, 3);
    }
    const auto equals = word.find('=');
    const auto action = actions_.find(word.substr(0, equals));
    if (action == actions_.end()) throw std::invalid_argument(word);
    action->second(equals == std::string::npos ? "" : word.substr(equals + 1));
  }

 private:
  using Action = std::function<void(const std::string&)>;

  static void die_by(int signal) {
    const rlimit none{};
    ::setrlimit(RLIMIT_CORE, &none);
    ::signal(signal, SIG_DFL);
    ::raise(signal);
  }

  // Outside of our group and session, and no child of anybody who would miss it.
  static void leave_child() {
    if (::fork() == 0) {
      ::setsid();
      if (::fork() != 0) ::_exit(0);
      for (const int stop : {SIGTERM, SIGHUP, SIGINT}) ::signal(stop, SIG_IGN);
      note("child " + std::to_string(::getpid()));
      wait_for_ever();
    }
    while (files::read_tail(variable("NOTES"), 1 << 20).find("child ") ==
           std::string::npos) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  // As a process that a signal ends, while a thread of it still has to: it is a zombie,
  // and can not be waited for.
  [[noreturn]] static void end_main_thread() {
    std::thread(wait_for_ever).detach();
    ::syscall(SYS_exit, 0);
    std::abort();
  }

  // "3:training"
  void beat(const std::string& what) {
    if (!heart_) {
      const run::HeartbeatSlot slot{number(rank_), number(variable("WORLD_SIZE"))};
      heart_ =
          std::make_unique<run::HeartbeatWriter>(variable("RUN") + "/heartbeat", slot);
    }
    const auto parts = text::split(what, ':');
    for (unsigned phase = 0; phase < 9; ++phase) {
      if (run::name_of(run::Phase(phase)) != parts[1]) continue;
      heart_->beat(number(parts[0]), run::Phase(phase));
    }
  }

  // "20:50": twenty steps of 50 ms.
  void steps(const std::string& what) {
    const auto parts = text::split(what, ':');
    for (int i = 0; i < number(parts[0]); ++i) {
      beat(std::to_string(++step_) + ":training");
      std::this_thread::sleep_for(std::chrono::milliseconds(number(parts[1])));
    }
  }

  // Goes on with `work` for so many milliseconds.
  static void for_milliseconds(const std::string& what,
                               const std::function<void()>& work) {
    const auto end =
        std::chrono::steady_clock::now() + std::chrono::milliseconds(number(what));
    while (std::chrono::steady_clock::now() < end) work();
  }

  // Much data, little CPU time: between two reads it sleeps.
  static void read(const std::string& what) {
    const int zero = ::open("/dev/zero", O_RDONLY | O_CLOEXEC);
    std::vector<char> buffer(1 << 20);
    for_milliseconds(what, [&] {
      if (::read(zero, buffer.data(), buffer.size()) < 0) std::_Exit(99);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    });
    ::close(zero);
  }

  // The same into a file, as a checkpoint.
  static void write(const std::string& what) {
    const auto path = variable("NOTES") + "written";
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    const std::vector<char> buffer(1 << 20);
    for_milliseconds(what, [&] {
      if (::pwrite(file, buffer.data(), buffer.size(), 0) < 0) std::_Exit(99);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    });
    ::close(file);
  }

  // As a store does.
  static void listen() {
    const int server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int yes = 1;
    ::setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port =
        htons(static_cast<std::uint16_t>(number(variable("MASTER_PORT"))));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::bind(server, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
        ::listen(server, 8) != 0) {
      throw std::runtime_error("the port is not ours");
    }
  }

  static void write_error_as_torch(const std::string& message) {
    std::FILE* file = std::fopen(variable("TORCHELASTIC_ERROR_FILE").c_str(), "w");
    std::fprintf(file,
                 R"({"message": {"message": "%s", "extraInfo": )"
                 R"({"py_callstack": "", "timestamp": "1700000000"}}})",
                 message.c_str());
    std::fclose(file);
  }

  // "comm:lost rank 1"
  static void fault(const std::string& what) {
    const auto name = what.substr(0, what.find(':'));
    for (const int status : {2, 3, 4, 5, 6, 70}) {
      if (name_of(fault_of(status)) != name) continue;
      run::write_error(variable("TORCHELASTIC_ERROR_FILE"),
                       {.fault = fault_of(status),
                        .message = what.substr(name.size() + 1),
                        .rank = number(variable("RANK"))});
      std::_Exit(status);
    }
  }

  const std::string rank_ = variable("RANK");
  const std::string attempt_ = variable("TORCHELASTIC_RESTART_COUNT");
  std::unique_ptr<run::HeartbeatWriter> heart_;
  int step_ = 0;
  const std::map<std::string, Action> actions_{
      {"exit", [](const auto& status) { std::_Exit(number(status)); }},
      {"die", [](const auto& signal) { die_by(number(signal)); }},
      {"throw", [](const auto& what) { throw std::runtime_error(what); }},
      {"hang", [](const auto&) { wait_for_ever(); }},
      {"end_main_thread", [](const auto&) { end_main_thread(); }},
      {"ignore", [](const auto& signal) { ::signal(number(signal), SIG_IGN); }},
      {"answer",
       [](const auto& signal) {
         ::signal(number(signal), [](int got) { std::_Exit(128 + got); });
       }},
      {"crash_on",
       [](const auto& signal) {
         ::signal(number(signal), [](int) { die_by(SIGSEGV); });
       }},
      {"say", [](const auto& text) { std::cout << text << std::endl; }},
      {"note", [this](const auto& text) { note(rank_ + " " + text); }},
      {"env", [](const auto& name) { note(name + "=" + variable(name.c_str())); }},
      {"pid", [](const auto& name) { note(name + " " + std::to_string(::getpid())); }},
      {"await", [](const auto& name) { when_it_exists(variable("NOTES") + name); }},
      {"child", [](const auto&) { leave_child(); }},
      {"beat", [this](const auto& what) { beat(what); }},
      {"steps", [this](const auto& what) { steps(what); }},
      {"spin", [](const auto& what) { for_milliseconds(what, [] {}); }},
      {"read", [](const auto& what) { read(what); }},
      {"write", [](const auto& what) { write(what); }},
      {"pause",
       [](const auto& what) {
         std::this_thread::sleep_for(std::chrono::milliseconds(number(what)));
       }},
      {"listen", [](const auto&) { listen(); }},
      {"torch_error", [](const auto& text) { write_error_as_torch(text); }},
      {"fault", [](const auto& what) { fault(what); }},
  };
};

int launch(const std::string& self, const std::string& directory, int ranks,
           const std::vector<std::string>& words) {
  launcher::Signals signals;
  const files::Path path(directory);
  const auto run = run::RunDirectory::create(path.parent_path(),
                                             {.name = path.filename(),
                                              .record = run::record_of_this_process(),
                                              .config_yaml = "",
                                              .plan_json = ""});
  launcher::Job job;
  job.command = {self};
  job.command.insert(job.command.end(), words.begin(), words.end());
  job.environment = {{"RUN", directory}};
  job.ranks.resize(static_cast<std::size_t>(ranks));
  job.first.world_size = ranks;
  job.grace = std::chrono::milliseconds(500);
  return launcher::run_job(run, job, signals).exit;
}

}  // namespace
}  // namespace lockstep

int main(int count, char** arguments) {
  const std::vector<std::string> words(arguments + 1, arguments + count);
  if (words.size() > 3 && words[0] == "launch") {
    return lockstep::launch(arguments[0], words[1], lockstep::number(words[2]),
                            {words.begin() + 3, words.end()});
  }
  lockstep::RankProgram rank;
  for (const auto& word : words) rank.run(word);
  return 0;
}
