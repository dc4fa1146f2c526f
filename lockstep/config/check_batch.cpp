// global = per_rank * ranks, per_rank = micro * accumulation, as far as they are named.
#include "lockstep/base/str.h"
#include "lockstep/config/detail/checker.h"

namespace lockstep::config::detail {
namespace {

struct Named {
  Count global, per_rank, micro, accumulation, ranks;
};

// Returns whether a = b * c is possible, where each may be unknown.
bool is_product(const Count& a, const Count& b, const Count& c) {
  if (!a) return true;
  if (b && c) return *a == *b * *c;
  const auto& known = b ? b : c;
  return !known || *a % *known == 0;
}

// Returns the samples of a rank, as far as they follow from the named knobs.
Count share_of(const Named& named) {
  if (named.per_rank || !named.global || !named.ranks) return named.per_rank;
  return *named.global % *named.ranks == 0 ? Count(*named.global / *named.ranks)
                                           : Count();
}

bool agree(const Named& named) {
  return is_product(named.global, named.per_rank, named.ranks) &&
         is_product(share_of(named), named.micro, named.accumulation);
}

// Returns the value of one knob nearest to its own with which all of them agree, a
// larger one if there is one.
Count nearest(Named named, Count Named::*knob) {
  constexpr std::int64_t kFarthest = 1 << 20;
  const auto now = *(named.*knob);
  for (const int way : {1, -1}) {
    for (std::int64_t far = 1; far <= kFarthest; ++far) {
      const auto value = now + way * far;
      if (value < 1 || static_cast<double>(value) > kLargestBatch) break;
      named.*knob = value;
      if (agree(named)) return value;
    }
  }
  return std::nullopt;
}

std::string advice(const Named& named, Count Named::*knob) {
  const auto value = nearest(named, knob);
  return value ? str("; choose ", *value) : "; leave one of them auto";
}

// A product that a knob has to equal.
struct Product {
  std::string key;
  Count Named::*knob;
  std::string shown;  // "66", or how a follows from it: "66 / parallel.ranks 3 = 22"
  std::string part, times;
  Count a, b, c;
};

void check_product(Checker& check, const Product& p, const Named& named) {
  if (is_product(p.a, p.b, p.c)) return;
  if (p.b && p.c) {
    check.refuse(
        p.key, str(p.shown, ", but ", p.part, " * ", p.times, " = ", *p.b, " * ", *p.c,
                   " = ", *p.b * *p.c, "; leave one of them auto"));
    return;
  }
  const auto known = p.b ? *p.b : *p.c;
  const auto& name = p.b ? p.part : p.times;
  check.refuse(p.key, str(p.shown, " is not a multiple of ", name, "=", known, ": ",
                          *p.a, " = ", *p.a / known, " * ", known, " + ", *p.a % known,
                          advice(named, p.knob)));
}

}  // namespace

void check_batch(Checker& check, const Config& config) {
  const auto& batch = config.batch;
  const Named named{.global = count_of(batch.global),
                    .per_rank = count_of(batch.per_rank),
                    .micro = count_of(batch.micro),
                    .accumulation = count_of(batch.accumulation),
                    .ranks = count_of(config.parallel.ranks)};
  const auto share = share_of(named);
  if (share) {
    const bool derived = !named.per_rank;
    const bool divided = derived && *named.ranks > 1;
    check_product(check,
                  {.key = derived ? "batch.global" : "batch.per_rank",
                   .knob = derived ? &Named::global : &Named::per_rank,
                   .shown = divided ? str(*named.global, " / parallel.ranks ",
                                          *named.ranks, " = ", *share)
                                    : str(*share),
                   .part = "batch.micro",
                   .times = "batch.accumulation",
                   .a = share,
                   .b = named.micro,
                   .c = named.accumulation},
                  named);
  }
  if (!named.global) return;
  check_product(check,
                {.key = "batch.global",
                 .knob = &Named::global,
                 .shown = str(*named.global),
                 .part = "batch.per_rank",
                 .times = "parallel.ranks",
                 .a = named.global,
                 .b = named.per_rank,
                 .c = named.ranks},
                named);
}

}  // namespace lockstep::config::detail
