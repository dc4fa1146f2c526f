#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/launcher/rank_environment.h"

// Reading numbers out of an environment that somebody else has made.
namespace lockstep::launcher::detail {

// A variable that was found, with the number in it.
struct Number {
  std::string name;
  int value = 0;
};

// "RANK=3": both sides of a contradiction are shown like this.
std::string shown(const Number& number);

class VariableReader {
 public:
  explicit VariableReader(const Variables& variables) : variables_(variables) {}

  bool has(std::string_view name) const;

  // "" if it is not set. An empty variable counts as not set everywhere here.
  std::string text(std::string_view name) const;
  std::string first_text(std::initializer_list<std::string_view> names) const;

  // The first that is set. Throws Fault::config unless it is a whole number >= 0.
  std::optional<Number> number(std::initializer_list<std::string_view> names) const;
  int number_or(std::string_view name, int otherwise) const;

 private:
  const Variables& variables_;
};

// MASTER_ADDR and MASTER_PORT, where they are set, into `found`.
void take_master(const VariableReader& reader, RankEnvironment& found);

// The launchers other than torchrun; nothing if this process is not theirs. A rank and
// a size are taken from the same launcher or not at all.
std::optional<RankEnvironment> detect_slurm(const VariableReader& reader);
std::optional<RankEnvironment> detect_mpi(const VariableReader& reader);
std::optional<RankEnvironment> detect_lsf(const VariableReader& reader);

// The rank and size that a launcher gave, by the names it gave them.
struct RankAndSize {
  Number rank;
  Number size;
};

// False in a batch script and in what it starts without srun: Slurm's variables are
// there, but say nothing about this process.
bool started_by_srun(const VariableReader& reader);
std::optional<RankAndSize> slurm_numbers(const VariableReader& reader);
std::optional<RankAndSize> mpi_numbers(const VariableReader& reader);

}  // namespace lockstep::launcher::detail
