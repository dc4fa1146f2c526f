#pragma once

#include <vector>

#include <cublasLt.h>

#include "lockstep/kernels/gemm.h"

namespace lockstep::kernels::detail {

void check_lt(cublasStatus_t status, const char* what);

// A product in the terms of cuBLASLt, whose matrices lie column by column: there it is
// the transposed product, with the operands exchanged.
class LtCall {
 public:
  explicit LtCall(const Gemm& gemm);
  ~LtCall();
  LtCall(const LtCall&) = delete;
  LtCall& operator=(const LtCall&) = delete;

  // Returns algorithms, the one that cuBLASLt takes for the fastest first. Throws if
  // there is none.
  std::vector<cublasLtMatmulAlgo_t> guesses(cublasLtHandle_t handle, int most,
                                            std::size_t workspace_bytes) const;
  bool check(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& algo,
             cublasLtMatmulHeuristicResult_t& result) const;

  struct Launch {
    cublasLtHandle_t handle;
    const cublasLtMatmulAlgo_t* algo;
    void* workspace;
    std::size_t bytes;
    CUstream_st* stream;
  };
  cublasStatus_t run(const Launch& launch) const;

 private:
  void set_epilogue();

  const Gemm gemm_;
  cublasLtMatmulDesc_t desc_{};
  cublasLtMatrixLayout_t first_{}, second_{}, added_{}, out_{};
};

}  // namespace lockstep::kernels::detail
