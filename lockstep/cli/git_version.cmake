# Writes `header` with the commit of the checkout `source`, only if it has changed:
#
#   cmake -Dsource=DIR -Dheader=FILE -P git_version.cmake
#
# A tree without git (a tarball, also one inside another checkout) says "unknown".
cmake_minimum_required(VERSION 3.25)

set(version "")
find_program(git NAMES git)
if(git AND EXISTS "${source}/.git")
  # No optional locks: a build must not get in the way of a git command beside it.
  execute_process(
    COMMAND ${git} --no-optional-locks -C "${source}" describe --always --dirty --exclude *
    OUTPUT_VARIABLE version OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT version)
  set(version unknown)
endif()
file(CONFIGURE OUTPUT "${header}" CONTENT "#pragma once
#define LOCKSTEP_GIT \"${version}\"
")
