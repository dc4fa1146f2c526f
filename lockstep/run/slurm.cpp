#include "lockstep/run/slurm.h"

#include <algorithm>
#include <optional>

#include "lockstep/base/error.h"

namespace lockstep::run::slurm {
namespace {

constexpr std::size_t kMostNodes = 65'536;  // Slurm's own limit
constexpr std::size_t kLongestList = 1 << 20;
constexpr std::size_t kLongestName = 255;  // of a host, in DNS
constexpr int kMostTasks = 1 << 20;

[[noreturn]] void refuse(std::string_view what, std::string_view list,
                         std::string_view why) {
  constexpr std::size_t kShown = 80;
  throw Error(Fault::config, "slurm: ", what, " '", list.substr(0, kShown),
              list.size() > kShown ? "...'" : "'", " ", why,
              "; is one of the SLURM_* variables set by hand?");
}

// Accepts digits only, and few enough for an int.
std::optional<int> digits(std::string_view text) {
  if (text.empty() || text.size() > 9 ||
      text.find_first_not_of("0123456789") != std::string_view::npos) {
    return std::nullopt;
  }
  return std::stoi(std::string(text));
}

class NodeList {
 public:
  explicit NodeList(std::string_view list) : list_(list) {
    if (list.size() > kLongestList) fail("is longer than 1 MiB");
  }

  std::vector<std::string> expand() {
    if (list_.empty()) return {};
    std::size_t begin = 0;
    int depth = 0;
    for (std::size_t i = 0; i <= list_.size(); ++i) {
      const char c = i < list_.size() ? list_[i] : ',';
      if (c == '[') ++depth;
      if (c == ']') --depth;
      if (depth < 0 || depth > 1) fail("has brackets that do not match");
      // A comma inside brackets separates numbers, not names.
      if (c != ',' || (depth != 0 && i < list_.size())) continue;
      if (depth != 0) fail("has brackets that do not match");
      add_entry(list_.substr(begin, i - begin));
      begin = i + 1;
    }
    return std::move(nodes_);
  }

 private:
  [[noreturn]] void fail(std::string_view why) const {
    refuse("the list of nodes", list_, why);
  }

  // Expands "rack[0-1]n[03-10]" to all combinations, the last bracket turning fastest.
  void add_entry(std::string_view entry) {
    std::vector<std::string> names{""};
    while (!entry.empty()) {
      const auto open = entry.find('[');
      for (auto& name : names) name += entry.substr(0, open);
      if (open == std::string_view::npos) break;
      const auto close = entry.find(']', open);
      names = combined(names, values(entry.substr(open + 1, close - open - 1)));
      entry.remove_prefix(close + 1);
    }
    for (auto& name : names) {
      if (name.empty() || name.size() > kLongestName) {
        fail("has a name that is empty or longer than 255 letters");
      }
      nodes_.push_back(std::move(name));
    }
    if (nodes_.size() > kMostNodes) fail("has more than 65536 nodes");
  }

  std::vector<std::string> combined(const std::vector<std::string>& left,
                                    const std::vector<std::string>& right) const {
    if (left.size() * right.size() > kMostNodes) fail("has more than 65536 nodes");
    std::vector<std::string> all;
    for (const auto& first : left) {
      if (first.size() > kLongestName) fail("has a name longer than 255 letters");
      for (const auto& second : right) all.push_back(first + second);
    }
    return all;
  }

  // Expands "10,20,25-27", with the zeros that the first number of a range begins with.
  std::vector<std::string> values(std::string_view inside) const {
    std::vector<std::string> all;
    while (true) {
      const auto comma = inside.find(',');
      const auto range = inside.substr(0, comma);
      const auto dash = range.find('-');
      const auto low = range.substr(0, dash);
      const auto first = digits(low);
      const auto last =
          dash == std::string_view::npos ? first : digits(range.substr(dash + 1));
      if (!first || !last || *last < *first) fail("has a range that is none");
      if (all.size() + static_cast<std::size_t>(*last - *first) >= kMostNodes) {
        fail("has more than 65536 nodes");
      }
      for (int number = *first; number <= *last; ++number) {
        auto text = std::to_string(number);
        if (text.size() < low.size()) text.insert(0, low.size() - text.size(), '0');
        all.push_back(std::move(text));
      }
      if (comma == std::string_view::npos) return all;
      inside.remove_prefix(comma + 1);
    }
  }

  std::string_view list_;
  std::vector<std::string> nodes_;
};

}  // namespace

std::vector<std::string> expand_nodes(std::string_view list) {
  return NodeList(list).expand();
}

std::vector<int> expand_tasks(std::string_view list) {
  const auto whole = list;
  const auto fail = [whole](std::string_view why) {
    refuse("the tasks per node", whole, why);
  };
  if (list.size() > kLongestList) fail("is longer than 1 MiB");
  std::vector<int> all;
  while (true) {
    const auto comma = list.find(',');
    auto entry = list.substr(0, comma);
    std::optional<int> times = 1;
    if (const auto open = entry.find("(x"); open != std::string_view::npos) {
      if (entry.back() != ')') fail("has a bracket that does not close");
      times = digits(entry.substr(open + 2, entry.size() - open - 3));
      entry = entry.substr(0, open);
    }
    const auto tasks = digits(entry);
    if (!tasks || !times || *times < 1 || *tasks > kMostTasks)
      fail("is not of the form 4(x2),3");
    if (all.size() + static_cast<std::size_t>(*times) > kMostNodes) {
      fail("has more than 65536 nodes");
    }
    all.insert(all.end(), static_cast<std::size_t>(*times), *tasks);
    if (comma == std::string_view::npos) return all;
    list.remove_prefix(comma + 1);
  }
}

}  // namespace lockstep::run::slurm
