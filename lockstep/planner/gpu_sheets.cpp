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

// A row as the sheets have it: TFLOPS, and GB a second.
struct SheetRow {
  std::string_view name;
  double half, tf32, fp32;
  double memory;

  SheetRates rates() const {
    return {name, half * kTera, tf32 * kTera, fp32 * kTera, memory * kGiga};
  }
};

// The first entry that is found in the name counts: longer names come first.
constexpr std::array kSheets = {
    SheetRow{"b200", 2250, 1125, 75, 8000},
    SheetRow{"h200", 989, 495, 67, 4800},
    SheetRow{"h100 pcie", 756, 378, 51, 2000},
    SheetRow{"h100 nvl", 835, 418, 60, 3900},
    SheetRow{"h100", 989, 495, 67, 3350},
    SheetRow{"a100-sxm4-40gb", 312, 156, 19.5, 1555},
    SheetRow{"a100-pcie-40gb", 312, 156, 19.5, 1555},
    SheetRow{"a100 80gb pcie", 312, 156, 19.5, 1935},
    SheetRow{"a100", 312, 156, 19.5, 2039},
    SheetRow{"a40", 150, 75, 37.4, 696},
    SheetRow{"a30", 165, 82, 10.3, 933},
    SheetRow{"a10g", 70, 35, 31.5, 600},
    SheetRow{"a10", 125, 62.5, 31.2, 600},
    SheetRow{"l40s", 362, 183, 91.6, 864},
    SheetRow{"l40", 181, 90.5, 90.5, 864},
    SheetRow{"l4", 121, 60, 30.3, 300},
    SheetRow{"v100-pcie", 112, 0, 14, 900},
    SheetRow{"v100", 125, 0, 15.7, 900},
    SheetRow{"t4", 65, 0, 8.1, 320},
    SheetRow{"rtx 6000 ada", 364, 182, 91.1, 960},
    SheetRow{"rtx a6000", 155, 77.4, 38.7, 768},
    SheetRow{"rtx 5090", 210, 105, 105, 1792},
    SheetRow{"rtx 4090", 165, 82.6, 82.6, 1008},
    SheetRow{"rtx 4080", 97.5, 48.7, 48.7, 717},
    SheetRow{"rtx 3090", 71, 35.6, 35.6, 936},
    SheetRow{"rtx 3080", 59.5, 29.8, 29.8, 760},
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

std::optional<SheetRates> find_sheet(std::string_view gpu_name) {
  const auto name = text::lower(gpu_name);
  const auto found =
      std::find_if(kSheets.begin(), kSheets.end(),
                   [&](const SheetRow& row) { return has_word(name, row.name); });
  return found == kSheets.end() ? std::nullopt : std::optional(found->rates());
}

}  // namespace lockstep::planner
