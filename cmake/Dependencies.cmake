# Every outside library, once. Small ones are linked in statically, so that the binaries
# can be carried to another machine that has LibTorch.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)

find_program(CCACHE ccache)
if(CCACHE)
  # Sloppiness: what ccache needs to be told to cache precompiled headers. Base and hash
  # directory: a clone in another place finds what this one compiled.
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros
    CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${launcher})
endif()

# Warnings are errors, for our own sources only: libraries are system headers.
add_library(lockstep_flags INTERFACE)
target_compile_options(lockstep_flags INTERFACE
  # Designated initialisers leave fields out on purpose.
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Werror -Wno-missing-field-initializers>)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # g++ 12 sees overlaps in std::string's own operator+ that are not there (GCC bug 105651).
  target_compile_options(lockstep_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()
if(LOCKSTEP_SANITIZE)
  add_compile_options(-fsanitize=${LOCKSTEP_SANITIZE} -fno-omit-frame-pointer -g)
  add_link_options(-fsanitize=${LOCKSTEP_SANITIZE})
  if(LOCKSTEP_SANITIZE MATCHES thread AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # It does not see fences, and g++ warns of each.
    target_compile_options(lockstep_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-tsan>)
  endif()
endif()

# lockstep_static(<target> <pkg-config module> <library>): the static archive of a package.
function(lockstep_static target module library)
  pkg_check_modules(${target}_pc REQUIRED ${module})
  find_library(${target}_archive NAMES lib${library}.a HINTS ${${target}_pc_LIBDIR} REQUIRED)
  add_library(${target} INTERFACE)
  target_include_directories(${target} SYSTEM INTERFACE ${${target}_pc_INCLUDE_DIRS})
  target_link_libraries(${target} INTERFACE ${${target}_archive})
endfunction()
lockstep_static(lockstep_yaml yaml-cpp yaml-cpp)
lockstep_static(lockstep_zlib zlib z)
lockstep_static(lockstep_sqlite sqlite3 sqlite3)
target_link_libraries(lockstep_sqlite INTERFACE ${CMAKE_DL_LIBS} m Threads::Threads)
lockstep_static(lockstep_openssl_crypto libcrypto crypto)
target_link_libraries(lockstep_openssl_crypto INTERFACE ${CMAKE_DL_LIBS} Threads::Threads)
lockstep_static(lockstep_openssl libssl ssl)
target_link_libraries(lockstep_openssl INTERFACE lockstep_openssl_crypto)
if(LOCKSTEP_DATA_PLANE)
  # Headers only: Debian's archives of these are not position independent, so the shared
  # libraries are loaded at run time, by whoever meets such an image.
  pkg_check_modules(lockstep_images_pc REQUIRED libturbojpeg libpng)
  add_library(lockstep_images INTERFACE)
  target_include_directories(lockstep_images SYSTEM INTERFACE
    ${lockstep_images_pc_INCLUDE_DIRS})
  target_link_libraries(lockstep_images INTERFACE ${CMAKE_DL_LIBS})
endif()

# Header-only: fmt, spdlog (over that fmt), nlohmann-json.
add_library(lockstep_fmt INTERFACE)
target_compile_definitions(lockstep_fmt INTERFACE FMT_HEADER_ONLY SPDLOG_FMT_EXTERNAL)
target_link_libraries(lockstep_fmt INTERFACE Threads::Threads)

# Header-only: Boost.Beast and what it stands on.
find_package(Boost 1.74 REQUIRED)
add_library(lockstep_beast INTERFACE)
target_include_directories(lockstep_beast SYSTEM INTERFACE ${Boost_INCLUDE_DIRS})
target_link_libraries(lockstep_beast INTERFACE lockstep_openssl Threads::Threads)

if(LOCKSTEP_TESTS)
  find_package(GTest REQUIRED)
  include(GoogleTest)
endif()
if(LOCKSTEP_DATA_PLANE)
  include(${CMAKE_CURRENT_LIST_DIR}/LibTorch.cmake)
endif()
