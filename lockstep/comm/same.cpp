#include "lockstep/comm/same.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::comm {
namespace {

using wire::Fact;
using Lines = std::vector<std::string>;

// One line an item; names and values have no line breaks of their own.
std::string to_lines(const std::vector<Fact>& list) {
  std::string text;
  for (const auto& [name, value] : list) text += str(name, "\t", value, "\n");
  return text;
}

// Gathers texts of different lengths, by rank.
std::vector<std::string> gather(Communicator& cpu, const std::string& text) {
  const auto length = torch::tensor({static_cast<std::int64_t>(text.size())});
  const auto lengths = torch::empty({cpu.size()}, torch::kInt64);
  cpu.all_gather(lengths, length).wait();
  const auto mine = torch::empty({length.item<std::int64_t>()}, torch::kUInt8);
  std::copy(text.begin(), text.end(), mine.mutable_data_ptr<std::uint8_t>());
  std::vector<torch::Tensor> all;
  for (int r = 0; r < cpu.size(); ++r) {
    all.push_back(torch::empty({lengths[r].item<std::int64_t>()}, torch::kUInt8));
  }
  cpu.all_gather(all, mine).wait();
  std::vector<std::string> texts;
  for (const auto& bytes : all) {
    const auto* begin = bytes.const_data_ptr<std::uint8_t>();
    texts.emplace_back(begin, begin + bytes.numel());
  }
  return texts;
}

Lines lines_of(const std::string& text) {
  return text.empty() ? Lines{} : text::split(text.substr(0, text.size() - 1), '\n');
}

std::string item(const Lines& lines, std::size_t index) {
  if (index >= lines.size()) return "nothing";
  auto line = lines[index];
  std::replace(line.begin(), line.end(), '\t', ' ');
  return line;
}

// Returns the text of the error: each item at `index` with the ranks that have it.
std::string describe_difference(std::string_view what, const std::vector<Lines>& lists,
                                std::size_t index) {
  std::map<std::string, std::vector<std::string>> ranks_by_item;
  Lines order;
  for (std::size_t r = 0; r < lists.size(); ++r) {
    const auto text = item(lists[r], index);
    if (ranks_by_item[text].empty()) order.push_back(text);
    ranks_by_item[text].push_back(str(r));
  }
  Lines parts;
  for (const auto& text : order) {
    const auto& ranks = ranks_by_item[text];
    parts.push_back(
        str(text, " on rank", ranks.size() > 1 ? "s " : " ", text::join(ranks, ", ")));
  }
  const auto other = std::find_if(lists.begin(), lists.end(), [&](const Lines& list) {
    return list.size() != lists[0].size();
  });
  const auto sizes = other == lists.end() ? ""
                                          : str(" (they have ", lists[0].size(),
                                                " and ", other->size(), " in all)");
  return str("comm: ", what, " ", index,
             " differs between ranks: ", text::join(parts, "; "), sizes,
             "; it must be the same on every rank");
}

}  // namespace

void check_same(Communicator& cpu, std::string_view what,
                const std::vector<Fact>& list) {
  const auto texts = gather(cpu, to_lines(list));
  if (std::all_of(texts.begin(), texts.end(),
                  [&](const auto& text) { return text == texts[0]; })) {
    return;
  }
  std::vector<Lines> lists;
  for (const auto& text : texts) lists.push_back(lines_of(text));
  const auto line = [](const Lines& lines, std::size_t index) {
    return index < lines.size() ? lines[index] : std::string();
  };
  std::size_t index = 0;
  const auto same = [&](const Lines& lines) {
    return line(lines, index) == line(lists[0], index);
  };
  while (std::all_of(lists.begin(), lists.end(), same)) ++index;
  throw Error(Fault::config, describe_difference(what, lists, index));
}

std::vector<Fact> facts_of(const torch::nn::Module& module) {
  std::vector<Fact> list;
  for (const auto& parameter : module.named_parameters()) {
    const auto& t = parameter.value();
    list.push_back(
        {parameter.key(),
         ::lockstep::str(c10::toString(t.scalar_type()), " ", t.sizes(), " strides ",
                         t.strides(), t.requires_grad() ? "" : " frozen")});
  }
  return list;
}

}  // namespace lockstep::comm
