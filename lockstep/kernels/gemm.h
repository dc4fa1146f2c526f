#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/kernels/dropout.h"

struct CUstream_st;  // cudaStream_t, without the CUDA headers

// Products of matrices with what comes right after them, by cuBLASLt. Numbers are f32
// or bf16; sums are float.
namespace lockstep::kernels {

enum class Epilogue {
  none,
  bias,           // out = product + vector
  gelu,           // aux = product + vector, out = gelu(aux)
  gelu_backward,  // out = product * gelu'(aux), vector = the sums of out's columns
  row_sums,       // vector = the sums of a's columns, `a` being transposed
};

// What an algorithm is chosen for. Matrices lie row by row: `a` is (m, k), or (k, m) if
// transposed; `b` is (k, n), or (n, k); `out` is (m, n).
struct GemmShape {
  std::int64_t m = 0, n = 0, k = 0;
  bool a_transposed = false, b_transposed = false;
  Number number = Number::f32;
  Epilogue epilogue = Epilogue::none;
  bool adds = false;  // out = product + added

  bool operator==(const GemmShape&) const = default;
};

struct Gemm {
  GemmShape shape;
  void* out = nullptr;
  const void* a = nullptr;
  const void* b = nullptr;
  const void* added = nullptr;  // may be `out`
  void* vector = nullptr;
  void* aux = nullptr;  // (m, n)
};

// Holds cuBLASLt's state and the algorithm for each shape: its first guess, unless
// tune() has measured which one is the fastest here.
//
// Threads: one at a time. Lifetime: launches may be under way when it ends, the
//          workspace outlives them.
class Gemms {
 public:
  // `workspace` is on the current device.
  Gemms(void* workspace, std::size_t bytes);
  ~Gemms();
  Gemms(const Gemms&) = delete;
  Gemms& operator=(const Gemms&) = delete;

  // Launches on `stream`; does not wait.
  void run(const Gemm& gemm, CUstream_st* stream);

  // Times what cuBLASLt offers and keeps the fastest. Overwrites all outputs, and
  // waits.
  struct Tuned {
    GemmShape shape;
    int tried = 0;
    float guess_ms = 0;    // cuBLASLt's first choice
    float fastest_ms = 0;  // what is used from now on
    std::string algorithm;
  };
  Tuned tune(const Gemm& gemm, CUstream_st* stream);

  // The choices as text, to be kept for this machine and version, and read back. Lines
  // of another version or device are left out: those shapes have to be tuned again.
  std::string choices() const;
  void use_choices(const std::string& text);
  bool is_tuned(const GemmShape& shape) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Returns whether this build has them.
bool gemms_available() noexcept;

}  // namespace lockstep::kernels
