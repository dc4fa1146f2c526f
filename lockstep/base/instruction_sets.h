#pragma once

namespace lockstep {

// Keeps LibTorch's libraries from instructions that this machine names and can not use.
// A virtual machine may show AMX and hide how its tiles look (CPUID's leaf 0x1D): then
// oneDNN sets them up as empty, and a product in bf16 ends the process with SIGILL.
// Sets ONEDNN_MAX_CPU_ISA for this process and its children, unless it is set. To be
// called before LibTorch computes anything. Returns whether it had to.
bool leave_out_unusable_instructions();

}  // namespace lockstep
