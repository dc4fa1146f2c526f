#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/run/rank_environment.h"

// Reads numbers out of an environment that another program has made.
namespace lockstep::run::detail {

// A variable that was found, with the number in it.
struct Number {
  std::string name;
  int value = 0;
};

// Returns "RANK=3": both sides of a contradiction are shown like this.
std::string shown(const Number& number);

class VariableReader {
 public:
  explicit VariableReader(const Variables& variables) : variables_(variables) {}

  bool has(std::string_view name) const;

  // Returns "" if it is not set. An empty variable counts as not set everywhere here.
  std::string text(std::string_view name) const;
  std::string first_text(std::initializer_list<std::string_view> names) const;

  // Returns the first one set. Throws Fault::config unless it is a whole number >= 0.
  std::optional<Number> number(std::initializer_list<std::string_view> names) const;
  int number_or(std::string_view name, int otherwise) const;

 private:
  const Variables& variables_;
};

// Copies MASTER_ADDR and MASTER_PORT, where they are set, into `found`.
void take_master(const VariableReader& reader, RankEnvironment& found);

// These detect other launchers than torchrun; nothing if this process is not theirs. A
// rank and a size are taken from the same launcher or not at all.
std::optional<RankEnvironment> detect_slurm(const VariableReader& reader);
std::optional<RankEnvironment> detect_mpi(const VariableReader& reader);
std::optional<RankEnvironment> detect_lsf(const VariableReader& reader);

// The rank and size of a launcher, under its own names.
struct RankAndSize {
  Number rank;
  Number size;
};

// Returns false in a batch script and in programs it starts without srun: Slurm's
// variables are there, but say nothing about this process.
bool started_by_srun(const VariableReader& reader);
std::optional<RankAndSize> slurm_numbers(const VariableReader& reader);
std::optional<RankAndSize> mpi_numbers(const VariableReader& reader);

}  // namespace lockstep::run::detail
