// Facts of NVIDIA's data sheets and architecture papers: products without sparsity that
// sum in fp32, at boost clock, and the bandwidth of the memory.
#include <algorithm>
#include <array>

#include "lockstep/base/text.h"
#include "lockstep/planner/rates.h"

namespace lockstep::planner {
namespace {

constexpr double kTera = 1e12;
constexpr double kGiga = 1e9;

constexpr SheetRates sheet(std::string_view name, double half, double tf32, double fp32,
                           double memory) {
  return {name, half * kTera, tf32 * kTera, fp32 * kTera, memory * kGiga};
}

// The first entry that is found in the name counts: longer names come first.
constexpr std::array kSheets = {
    sheet("b200", 2250, 1125, 75, 8000),
    sheet("h200", 989, 495, 67, 4800),
    sheet("h100 pcie", 756, 378, 51, 2000),
    sheet("h100 nvl", 835, 418, 60, 3900),
    sheet("h100", 989, 495, 67, 3350),
    sheet("a100-sxm4-40gb", 312, 156, 19.5, 1555),
    sheet("a100-pcie-40gb", 312, 156, 19.5, 1555),
    sheet("a100 80gb pcie", 312, 156, 19.5, 1935),
    sheet("a100", 312, 156, 19.5, 2039),
    sheet("a40", 150, 75, 37.4, 696),
    sheet("a30", 165, 82, 10.3, 933),
    sheet("a10g", 70, 35, 31.5, 600),
    sheet("a10", 125, 62.5, 31.2, 600),
    sheet("l40s", 362, 183, 91.6, 864),
    sheet("l40", 181, 90.5, 90.5, 864),
    sheet("l4", 121, 60, 30.3, 300),
    sheet("v100-pcie", 112, 0, 14, 900),
    sheet("v100", 125, 0, 15.7, 900),
    sheet("t4", 65, 0, 8.1, 320),
    sheet("rtx 6000 ada", 364, 182, 91.1, 960),
    sheet("rtx a6000", 155, 77.4, 38.7, 768),
    sheet("rtx 5090", 210, 105, 105, 1792),
    sheet("rtx 4090", 165, 82.6, 82.6, 1008),
    sheet("rtx 4080", 97.5, 48.7, 48.7, 717),
    sheet("rtx 3090", 71, 35.6, 35.6, 936),
    sheet("rtx 3080", 59.5, 29.8, 29.8, 760),
};

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

// Finds whole words: "l4" is not in "rtx l400", and "t4" not in "nvt40".
bool has_word(std::string_view text, std::string_view word) {
  for (auto at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    const auto end = at + word.size();
    const bool begins = at == 0 || !is_letter_or_digit(text[at - 1]);
    const bool ends = end == text.size() || !is_letter_or_digit(text[end]);
    if (begins && ends) return true;
  }
  return false;
}

}  // namespace

std::optional<SheetRates> sheet_of(std::string_view gpu_name) {
  const auto name = text::lower(gpu_name);
  const auto found =
      std::find_if(kSheets.begin(), kSheets.end(),
                   [&](const SheetRates& rates) { return has_word(name, rates.name); });
  return found == kSheets.end() ? std::nullopt : std::optional(*found);
}

}  // namespace lockstep::planner
