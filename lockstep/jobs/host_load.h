#pragma once

#include <set>
#include <string>

namespace lockstep::jobs {

// Returns the seconds in which these CPUs were not idle, of the text of /proc/stat,
// whose unit is 1 / ticks_per_second.
double busy_seconds(const std::string& stat, const std::set<int>& cpus,
                    double ticks_per_second);

// Measures how much of the CPUs that this process may use was taken by others, from its
// making on: by processes that are neither this one nor its children.
class OtherLoad {
 public:
  OtherLoad();

  // Returns a share of all of them, 0 to 1; children that still run count as others.
  double share() const;

 private:
  struct Moment {
    double wall = 0;
    double busy = 0;
    double own = 0;
  };
  Moment now() const;

  std::set<int> cpus_;
  Moment begin_;
};

}  // namespace lockstep::jobs
