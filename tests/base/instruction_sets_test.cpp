#include "lockstep/base/instruction_sets.h"

#include <cstdlib>

#include "tests/support/support.h"

namespace lockstep {
namespace {

TEST(InstructionSets, WhatIsSetStaysAndANeededLimitIsThere) {
  EXPECT_EQ(test::in_child([] {
              ::setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);
              leave_out_unusable_instructions();
              return std::string(std::getenv("ONEDNN_MAX_CPU_ISA")) == "AVX2" ? 0 : 1;
            }),
            0);
  EXPECT_EQ(test::in_child([] {
              ::unsetenv("ONEDNN_MAX_CPU_ISA");
              const bool needed = leave_out_unusable_instructions();
              return needed == (std::getenv("ONEDNN_MAX_CPU_ISA") != nullptr) ? 0 : 1;
            }),
            0);
}

}  // namespace
}  // namespace lockstep
