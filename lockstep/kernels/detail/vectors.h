#pragma once

namespace lockstep::kernels::detail {

// Calls a body in a function that is built for the widest vectors of this machine, so
// that one binary uses the instructions that each machine has. `body` has to be
// inlined: mark its operator() [[gnu::always_inline]].
#if defined(__x86_64__)

template <typename Body>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void run_avx512(
    const Body& body) {
  body();
}

template <typename Body>
[[gnu::target("avx2")]] void run_avx2(const Body& body) {
  body();
}

template <typename Body>
void run_with_vectors(const Body& body) {
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq")) {
    run_avx512(body);
  } else if (__builtin_cpu_supports("avx2")) {
    run_avx2(body);
  } else {
    body();
  }
}

#else

template <typename Body>
void run_with_vectors(const Body& body) {
  body();
}

#endif

}  // namespace lockstep::kernels::detail
