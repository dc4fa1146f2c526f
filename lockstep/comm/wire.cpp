#include "lockstep/comm/wire.h"

#include <limits>

namespace lockstep::comm::wire {
namespace {

constexpr std::string_view kHello = "lockstep hello 1";
constexpr std::string_view kVerdict = "lockstep verdict 1";

[[noreturn]] void malformed(std::string_view why) {
  throw Error(Fault::comm, "comm: a message in the store is not one of ours: ", why,
              "; another job uses the same address and port?");
}

class WireWriter {
 public:
  void number(std::int64_t value) {
    for (int byte = 0; byte < 8; ++byte) {
      bytes_ += static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * byte));
    }
  }
  void text(std::string_view value) {
    value = value.substr(0, kLongestText);
    number(static_cast<std::int64_t>(value.size()));
    bytes_ += value;
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class WireReader {
 public:
  WireReader(std::string_view bytes, std::string_view magic) : rest_(bytes) {
    if (bytes.size() > kLongestMessage) malformed("it is too long");
    if (text() != magic) malformed(str("it does not start with '", magic, "'"));
  }

  std::int64_t number() {
    if (rest_.size() < 8) malformed("it is cut short");
    std::uint64_t value = 0;
    for (int byte = 7; byte >= 0; --byte) {
      value = value << 8 |
              static_cast<unsigned char>(rest_[static_cast<std::size_t>(byte)]);
    }
    rest_.remove_prefix(8);
    return static_cast<std::int64_t>(value);
  }

  int small_number() {
    const auto value = number();
    if (value < 0 || value > std::numeric_limits<int>::max()) {
      malformed("a number is out of range");
    }
    return static_cast<int>(value);
  }

  std::string text() {
    const auto length = number();
    if (length < 0 || static_cast<std::uint64_t>(length) > kLongestText ||
        static_cast<std::uint64_t>(length) > rest_.size()) {
      malformed("a text is too long");
    }
    std::string value(rest_.substr(0, static_cast<std::size_t>(length)));
    rest_.remove_prefix(value.size());
    return value;
  }

  void end() const {
    if (!rest_.empty()) malformed("there is more than was expected");
  }

 private:
  std::string_view rest_;
};

}  // namespace

std::string encode(const Hello& hello) {
  if (hello.facts.size() > kMostFacts) {
    throw Error(Fault::config, "comm: ", hello.facts.size(),
                " facts are to be compared; at most ", kMostFacts, " can be");
  }
  for (const auto& fact : hello.facts) {
    if (fact.name.size() + fact.value.size() <= kLongestFact) continue;
    throw Error(Fault::config, "comm: the fact '", fact.name, "' has ",
                fact.value.size(), " bytes; give a hash of it");
  }
  WireWriter out;
  out.text(kHello);
  for (const std::int64_t value :
       {static_cast<std::int64_t>(hello.rank),
        static_cast<std::int64_t>(hello.world_size),
        static_cast<std::int64_t>(hello.node), hello.pid, hello.instance}) {
    out.number(value);
  }
  out.text(hello.host);
  out.text(hello.machine);
  out.number(static_cast<std::int64_t>(hello.facts.size()));
  for (const auto& fact : hello.facts) {
    out.text(fact.name);
    out.text(fact.value);
  }
  return out.take();
}

Hello decode_hello(std::string_view bytes) {
  WireReader in(bytes, kHello);
  Hello hello;
  hello.rank = in.small_number();
  hello.world_size = in.small_number();
  hello.node = in.small_number();
  hello.pid = in.number();
  hello.instance = in.number();
  hello.host = in.text();
  hello.machine = in.text();
  const auto facts = in.number();
  if (facts < 0 || static_cast<std::uint64_t>(facts) > kMostFacts) {
    malformed("it has too many facts");
  }
  for (std::int64_t i = 0; i < facts; ++i) {
    auto name = in.text();
    hello.facts.push_back({std::move(name), in.text()});
  }
  in.end();
  return hello;
}

std::string encode(const Verdict& verdict) {
  WireWriter out;
  out.text(kVerdict);
  out.text(verdict.problem);
  out.number(exit_status(verdict.fault));
  out.number(verdict.one_machine ? 1 : 0);
  return out.take();
}

Verdict decode_verdict(std::string_view bytes) {
  WireReader in(bytes, kVerdict);
  Verdict verdict;
  verdict.problem = in.text();
  verdict.fault = fault_of(in.small_number());
  verdict.one_machine = in.number() != 0;
  in.end();
  return verdict;
}

}  // namespace lockstep::comm::wire
