#include "lockstep/kernels/detail/lt_call.h"

#include "lockstep/base/error.h"

namespace lockstep::kernels::detail {
namespace {

cudaDataType_t type_of(Number number) {
  return number == Number::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

cublasLtMatrixLayout_t layout(Number number, std::int64_t rows, std::int64_t columns) {
  cublasLtMatrixLayout_t made{};
  check_lt(cublasLtMatrixLayoutCreate(&made, type_of(number),
                                      static_cast<std::uint64_t>(rows),
                                      static_cast<std::uint64_t>(columns), rows),
           "cublasLtMatrixLayoutCreate");
  return made;
}

template <typename T>
void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t name,
         const T& value) {
  check_lt(cublasLtMatmulDescSetAttribute(desc, name, &value, sizeof value),
           "cublasLtMatmulDescSetAttribute");
}

cublasLtEpilogue_t epilogue_of(const Gemm& gemm) {
  switch (gemm.shape.epilogue) {
    case Epilogue::none:
      return CUBLASLT_EPILOGUE_DEFAULT;
    case Epilogue::bias:
      return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::gelu:
      return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case Epilogue::gelu_backward:
      return gemm.vector != nullptr ? CUBLASLT_EPILOGUE_DGELU_BGRAD
                                    : CUBLASLT_EPILOGUE_DGELU;
    case Epilogue::row_sums:
      return CUBLASLT_EPILOGUE_BGRADB;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

}  // namespace

void check_lt(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(Fault::hardware, "kernels: ", what,
              " failed: ", cublasLtGetStatusString(status));
}

LtCall::LtCall(const Gemm& gemm) : gemm_(gemm) {
  const auto& shape = gemm.shape;
  check_lt(cublasLtMatmulDescCreate(&desc_, CUBLAS_COMPUTE_32F, CUDA_R_32F),
           "cublasLtMatmulDescCreate");
  set(desc_, CUBLASLT_MATMUL_DESC_TRANSA,
      shape.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(desc_, CUBLASLT_MATMUL_DESC_TRANSB,
      shape.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  first_ = shape.b_transposed ? layout(shape.number, shape.k, shape.n)
                              : layout(shape.number, shape.n, shape.k);
  second_ = shape.a_transposed ? layout(shape.number, shape.m, shape.k)
                               : layout(shape.number, shape.k, shape.m);
  added_ = layout(shape.number, shape.n, shape.m);
  out_ = layout(shape.number, shape.n, shape.m);
  set_epilogue();
}

void LtCall::set_epilogue() {
  const auto epilogue = epilogue_of(gemm_);
  set(desc_, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
  if (epilogue == CUBLASLT_EPILOGUE_DEFAULT) return;
  if (epilogue != CUBLASLT_EPILOGUE_DGELU) {
    set(desc_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, gemm_.vector);
    set(desc_, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(gemm_.shape.number));
  }
  if (gemm_.aux != nullptr) {
    set(desc_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, gemm_.aux);
    set(desc_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, gemm_.shape.n);
    set(desc_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE,
        type_of(gemm_.shape.number));
  }
}

LtCall::~LtCall() {
  for (auto* made : {first_, second_, added_, out_}) cublasLtMatrixLayoutDestroy(made);
  cublasLtMatmulDescDestroy(desc_);
}

std::vector<cublasLtMatmulAlgo_t> LtCall::guesses(cublasLtHandle_t handle, int most,
                                                  std::size_t workspace_bytes) const {
  cublasLtMatmulPreference_t preference{};
  check_lt(cublasLtMatmulPreferenceCreate(&preference), "PreferenceCreate");
  cublasLtMatmulPreferenceSetAttribute(preference,
                                       CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                       &workspace_bytes, sizeof workspace_bytes);
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<std::size_t>(most));
  int found = 0;
  cublasLtMatmulAlgoGetHeuristic(handle, desc_, first_, second_, added_, out_,
                                 preference, most, results.data(), &found);
  cublasLtMatmulPreferenceDestroy(preference);
  std::vector<cublasLtMatmulAlgo_t> algos;
  for (int i = 0; i < found; ++i) {
    const auto& result = results[static_cast<std::size_t>(i)];
    if (result.state == CUBLAS_STATUS_SUCCESS) algos.push_back(result.algo);
  }
  if (algos.empty()) {
    const auto& shape = gemm_.shape;
    throw Error(Fault::hardware, "kernels: cuBLASLt has no algorithm for a product of ",
                shape.m, " x ", shape.n, " x ", shape.k, " with epilogue ",
                static_cast<int>(shape.epilogue));
  }
  return algos;
}

bool LtCall::check(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& algo,
                   cublasLtMatmulHeuristicResult_t& result) const {
  return cublasLtMatmulAlgoCheck(handle, desc_, first_, second_, added_, out_, &algo,
                                 &result) == CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t LtCall::run(const Launch& launch) const {
  const float one = 1, beta = gemm_.shape.adds ? 1 : 0;
  const void* added = gemm_.shape.adds ? gemm_.added : gemm_.out;
  return cublasLtMatmul(launch.handle, desc_, &one, gemm_.b, first_, gemm_.a, second_,
                        &beta, added, added_, gemm_.out, out_, launch.algo,
                        launch.workspace, launch.bytes, launch.stream);
}

}  // namespace lockstep::kernels::detail
