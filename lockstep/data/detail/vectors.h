#pragma once

// Loops that gain from newer vector instructions: compiled for several generations of
// processors, the right one is chosen when the program starts. No fused multiply-add,
// which rounds differently: a sample is the same on every machine.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define LOCKSTEP_VECTORS __attribute__((target_clones("avx2", "ssse3", "default")))
#else
#define LOCKSTEP_VECTORS
#endif
