# Decides what of CUDA this build has:
#   LOCKSTEP_WITH_CUDA     LibTorch's CUDA library is linked: training on a GPU works
#   LOCKSTEP_WITH_KERNELS  our own kernels are compiled; else kernels/no_cuda.cpp stands in
set(LOCKSTEP_WITH_CUDA OFF)
set(LOCKSTEP_WITH_KERNELS OFF)
set(LOCKSTEP_NVCC_ROOT "$ENV{LOCKSTEP_NVCC_ROOT}" CACHE PATH "Folder of a CUDA 13 toolkit (it has bin/nvcc)")

set(gpu_visible OFF)
if(EXISTS /dev/nvidiactl OR EXISTS /dev/dxg)
  set(gpu_visible ON)
endif()
if(LOCKSTEP_CUDA STREQUAL "off" OR (LOCKSTEP_CUDA STREQUAL "auto" AND NOT gpu_visible))
  message(STATUS "CUDA: not built (LOCKSTEP_CUDA=${LOCKSTEP_CUDA}, GPU visible: ${gpu_visible})")
  return()
endif()

# What was asked for happens or is refused; what is only hoped for may be left out.
function(lockstep_no_cuda reason)
  if(LOCKSTEP_CUDA STREQUAL "on")
    message(FATAL_ERROR "LOCKSTEP_CUDA=on, but ${reason}")
  endif()
  message(STATUS "CUDA: ${reason}")
endfunction()

set(torch_cuda ${LOCKSTEP_TORCH_ROOT}/lib/libtorch_cuda.so)
if(NOT EXISTS ${torch_cuda})
  lockstep_no_cuda("LibTorch in '${LOCKSTEP_TORCH_ROOT}' is a CPU build (no libtorch_cuda.so)")
  return()
endif()
set(LOCKSTEP_WITH_CUDA ON)
# Nothing names a symbol of torch_cuda, so the linker would drop it and CUDA would look absent.
target_link_libraries(lockstep_libtorch INTERFACE
  -Wl,--no-as-needed ${torch_cuda} ${LOCKSTEP_TORCH_ROOT}/lib/libc10_cuda.so -Wl,--as-needed)
# The wheels of cudart, beside the one of torch: what c10's CUDA headers include, and the
# runtime library that LibTorch itself loads. Kernels must use that one too, not a copy.
set(wheels ${LOCKSTEP_TORCH_ROOT}/../nvidia/cu13)
set(cudart ${wheels}/lib/libcudart.so.13)
if(EXISTS ${wheels}/include/cuda_runtime_api.h)
  target_include_directories(lockstep_libtorch SYSTEM INTERFACE ${wheels}/include)
endif()

if(NOT CMAKE_CUDA_COMPILER)
  find_program(nvcc nvcc NO_CACHE HINTS ${LOCKSTEP_NVCC_ROOT}/bin $ENV{CUDA_HOME}/bin
    PATHS /usr/local/cuda/bin)
  if(NOT nvcc)
    lockstep_no_cuda("there is no nvcc, so our kernels are left out and LibTorch's are used")
    return()
  endif()
  set(CMAKE_CUDA_COMPILER ${nvcc})
endif()
execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --version OUTPUT_VARIABLE nvcc_version)
if(NOT nvcc_version MATCHES "release 13\\.")
  lockstep_no_cuda("${CMAKE_CUDA_COMPILER} is not nvcc 13, so our kernels are left out and LibTorch's are used")
  return()
endif()

if(NOT LOCKSTEP_CUDA_ARCHITECTURES STREQUAL "auto")
  set(CMAKE_CUDA_ARCHITECTURES ${LOCKSTEP_CUDA_ARCHITECTURES})
elseif(gpu_visible)
  set(CMAKE_CUDA_ARCHITECTURES native)
else()
  set(CMAKE_CUDA_ARCHITECTURES 80 90a)
endif()
enable_language(CUDA)
set(CMAKE_CUDA_STANDARD 17)
if(EXISTS ${cudart})
  set(CMAKE_CUDA_RUNTIME_LIBRARY None)
  target_link_libraries(lockstep_libtorch INTERFACE ${cudart})
else()
  set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
endif()
set(LOCKSTEP_WITH_KERNELS ON)
message(STATUS "CUDA: ${CMAKE_CUDA_COMPILER}, architectures ${CMAKE_CUDA_ARCHITECTURES}")
