# Finds LibTorch, checks it, and offers it as the target lockstep_libtorch.
#
# Not find_package(Torch): the package of a CUDA build refuses a machine without a CUDA
# toolkit, though everything but our kernels can be built and run there.
set(LOCKSTEP_TORCH_VERSION 2.11.0)
set(remedy "unset LOCKSTEP_LIBTORCH and run scripts/setup.sh, which fetches the right one")

# The one that is named, else one on CMAKE_PREFIX_PATH, else the one that setup.sh fetched.
set(LOCKSTEP_LIBTORCH "" CACHE PATH "Folder of LibTorch (it has lib/ and include/)")
set(LOCKSTEP_TORCH_ROOT "${LOCKSTEP_LIBTORCH}")
if(NOT LOCKSTEP_TORCH_ROOT)
  set(LOCKSTEP_TORCH_ROOT "$ENV{LOCKSTEP_LIBTORCH}")
endif()
set(version_header torch/csrc/api/include/torch/version.h)
if(NOT LOCKSTEP_TORCH_ROOT)
  set(cache "$ENV{XDG_CACHE_HOME}")
  if(NOT cache)
    set(cache "$ENV{HOME}/.cache")
  endif()
  find_path(torch_include NAMES ${version_header} NO_CACHE
    PATHS ${cache}/lockstep/libtorch-${LOCKSTEP_TORCH_VERSION}-gpu/torch/include
          ${cache}/lockstep/libtorch-${LOCKSTEP_TORCH_VERSION}/torch/include
    NO_CMAKE_SYSTEM_PATH NO_SYSTEM_ENVIRONMENT_PATH)
  if(NOT torch_include)
    message(FATAL_ERROR "LibTorch ${LOCKSTEP_TORCH_VERSION} was not found: LOCKSTEP_LIBTORCH "
      "is not set and CMAKE_PREFIX_PATH has none; run scripts/setup.sh, which fetches it")
  endif()
  get_filename_component(LOCKSTEP_TORCH_ROOT "${torch_include}" DIRECTORY)
endif()
set(include_folder "${LOCKSTEP_TORCH_ROOT}/include")
foreach(file include/${version_header} lib/libtorch_cpu.so lib/libc10.so)
  if(NOT EXISTS "${LOCKSTEP_TORCH_ROOT}/${file}")
    message(FATAL_ERROR "'${LOCKSTEP_TORCH_ROOT}' is not a folder of LibTorch: it has no "
      "${file}; ${remedy}")
  endif()
endforeach()

# Where the numbers stand has moved between versions: older ones have them in the first.
set(version_lines)
foreach(header ${version_header} torch/headeronly/version.h)
  if(EXISTS "${include_folder}/${header}")
    file(STRINGS "${include_folder}/${header}" lines
      REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) +[0-9]+")
    list(APPEND version_lines ${lines})
  endif()
endforeach()
list(TRANSFORM version_lines REPLACE ".*_(MAJOR|MINOR|PATCH) +([0-9]+).*" "\\2")
list(JOIN version_lines "." found_version)
if(NOT found_version STREQUAL LOCKSTEP_TORCH_VERSION)
  message(FATAL_ERROR "LibTorch in '${LOCKSTEP_TORCH_ROOT}' is version '${found_version}'; "
    "Lockstep needs ${LOCKSTEP_TORCH_VERSION}; ${remedy}")
endif()
file(STRINGS "${LOCKSTEP_TORCH_ROOT}/lib/libc10.so" new_abi REGEX "__cxx11" LIMIT_COUNT 1)
if(NOT new_abi)
  message(FATAL_ERROR "LibTorch in '${LOCKSTEP_TORCH_ROOT}' was built with the old C++ ABI "
    "(no __cxx11 symbols in libc10.so); Lockstep needs the cxx11 ABI; ${remedy}")
endif()
foreach(header ProcessGroup.hpp ProcessGroupGloo.hpp TCPStore.hpp)
  if(NOT EXISTS "${include_folder}/torch/csrc/distributed/c10d/${header}")
    message(FATAL_ERROR "LibTorch in '${LOCKSTEP_TORCH_ROOT}' has no c10d headers "
      "(${header}): it was built without distributed support; ${remedy}")
  endif()
endforeach()
message(STATUS "LibTorch ${found_version} in ${LOCKSTEP_TORCH_ROOT}")

add_library(lockstep_libtorch INTERFACE)
target_include_directories(lockstep_libtorch SYSTEM INTERFACE
  ${include_folder} ${include_folder}/torch/csrc/api/include)
target_link_libraries(lockstep_libtorch INTERFACE
  ${LOCKSTEP_TORCH_ROOT}/lib/libtorch_cpu.so ${LOCKSTEP_TORCH_ROOT}/lib/libc10.so
  Threads::Threads)
# What the CUDA libraries themselves need is resolved where the program runs.
set(LOCKSTEP_TORCH_LINK_OPTIONS -Wl,--allow-shlib-undefined)
target_link_options(lockstep_libtorch INTERFACE ${LOCKSTEP_TORCH_LINK_OPTIONS})
# Programs too, which CMake gives -fPIE: all that share the precompiled header must agree.
target_compile_options(lockstep_libtorch INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fPIC>)
# Without it ccache can not cache what uses the precompiled header.
if(CCACHE AND CMAKE_CXX_COMPILER_ID STREQUAL GNU AND NOT CMAKE_DISABLE_PRECOMPILE_HEADERS)
  target_compile_options(lockstep_libtorch INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
endif()

include(${CMAKE_CURRENT_LIST_DIR}/Cuda.cmake)

# The one precompiled header of the data plane.
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/torch_pch.cpp
  CONTENT "// The precompiled header needs a source.\n")
add_library(lockstep_torch_pch OBJECT ${CMAKE_BINARY_DIR}/torch_pch.cpp)
target_link_libraries(lockstep_torch_pch PUBLIC lockstep_libtorch PRIVATE lockstep_flags)
target_precompile_headers(lockstep_torch_pch PRIVATE <torch/torch.h>)
