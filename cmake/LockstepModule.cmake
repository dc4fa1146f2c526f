# One folder, one target lockstep::<name>, one namespace.
#
#   lockstep_module(optim TORCH DEPENDS base config SOURCES sgd.cpp LIBRARIES lockstep_zlib)
#
# A module can depend only on modules declared above it in lockstep/CMakeLists.txt, so
# there are no cycles; a module without TORCH can not depend on one with it. APART: its
# sources are never joined, because a program links some of them only.
function(lockstep_module name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "TORCH;APART" "" "DEPENDS;SOURCES;LIBRARIES")
  foreach(dep IN LISTS arg_DEPENDS)
    if(NOT TARGET lockstep_${dep})
      message(FATAL_ERROR "lockstep/${name}: '${dep}' is not a module declared above it")
    endif()
    get_target_property(dep_torch lockstep_${dep} LOCKSTEP_TORCH)
    if(dep_torch AND NOT arg_TORCH)
      message(FATAL_ERROR "lockstep/${name} is control plane, '${dep}' links LibTorch")
    endif()
  endforeach()

  add_library(lockstep_${name} STATIC ${arg_SOURCES})
  add_library(lockstep::${name} ALIAS lockstep_${name})
  set_target_properties(lockstep_${name} PROPERTIES LOCKSTEP_TORCH ${arg_TORCH})
  target_include_directories(lockstep_${name} PUBLIC ${PROJECT_SOURCE_DIR})
  list(TRANSFORM arg_DEPENDS PREPEND lockstep:: OUTPUT_VARIABLE targets)
  target_link_libraries(lockstep_${name} PUBLIC ${targets}
                        PRIVATE lockstep_flags ${arg_LIBRARIES})
  if(arg_TORCH)
    target_link_libraries(lockstep_${name} PUBLIC lockstep_libtorch)
    target_precompile_headers(lockstep_${name} REUSE_FROM lockstep_torch_pch)
  endif()

  if(LOCKSTEP_UNITY AND NOT arg_APART)
    # At the end of the folder's file, when the properties of all sources are known.
    cmake_language(EVAL CODE "cmake_language(DEFER CALL lockstep_unify lockstep_${name})")
  endif()

  string(REPLACE ";" " " arrows "${arg_DEPENDS}")
  set(plane control)
  if(arg_TORCH)
    set(plane data)
  endif()
  file(APPEND ${CMAKE_BINARY_DIR}/layers.txt "${plane} ${name}: ${arrows}\n")
endfunction()

# Joins the sources of a target, up to sixteen at a time and as many in each part, so that
# a cold build reads the headers a sixteenth as often. A source with flags of its own stays
# alone. Not UNITY_BUILD: its sources include by absolute path, which ccache can not share
# between two checkouts.
function(lockstep_unify target)
  get_target_property(sources ${target} SOURCES)
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  set(alone)
  set(joined)
  foreach(source IN LISTS sources)
    set(own_flags)
    foreach(property COMPILE_DEFINITIONS COMPILE_OPTIONS INCLUDE_DIRECTORIES)
      get_source_file_property(value ${source} ${property})
      if(value)
        list(APPEND own_flags ${property})
      endif()
    endforeach()
    if(own_flags OR NOT source MATCHES "\\.cpp$" OR IS_ABSOLUTE ${source})
      list(APPEND alone ${source})
    else()
      list(APPEND joined ${source})
    endif()
  endforeach()

  list(LENGTH joined count)
  math(EXPR parts "(${count} + 15) / 16")
  set(part 0)
  while(joined)
    math(EXPR size "(${count} + ${parts} - 1) / ${parts}")
    list(SUBLIST joined 0 ${size} batch)
    list(REMOVE_ITEM joined ${batch})
    list(TRANSFORM batch REPLACE "(.+)" "#include \"${folder}/\\1\"\n")
    list(JOIN batch "" includes)
    set(unity ${CMAKE_CURRENT_BINARY_DIR}/${target}_${part}.cpp)
    file(CONFIGURE OUTPUT ${unity} CONTENT "${includes}")
    list(APPEND alone ${unity})
    math(EXPR part "${part} + 1")
  endwhile()
  set_target_properties(${target} PROPERTIES SOURCES "${alone}")
  # It warns of anonymous types in files that another includes, which these are not.
  target_compile_options(${target} PRIVATE
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-subobject-linkage>)
endfunction()

# One test folder, one executable, one link; a unity build, because the test framework's
# headers cost more than the tests.
#
#   lockstep_tests(optim LABEL torch MODULES optim SOURCES sgd_test.cpp)
function(lockstep_tests name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "TORCH" "LABEL;TIMEOUT" "MODULES;SOURCES;LIBRARIES")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  # Not UNITY_BUILD: its source includes by absolute path, which ccache can not share
  # between two checkouts.
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  list(TRANSFORM arg_SOURCES REPLACE "(.+)" "#include \"${folder}/\\1\"\n" OUTPUT_VARIABLE unity)
  list(JOIN unity "" unity)
  file(CONFIGURE OUTPUT test_${name}.cpp CONTENT "${unity}")
  add_executable(test_${name} ${CMAKE_CURRENT_BINARY_DIR}/test_${name}.cpp)
  target_include_directories(test_${name} PRIVATE ${PROJECT_SOURCE_DIR})
  set_target_properties(test_${name} PROPERTIES
                        RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  list(TRANSFORM arg_MODULES PREPEND lockstep:: OUTPUT_VARIABLE targets)
  target_link_libraries(test_${name} PRIVATE lockstep_test_support ${targets}
                        lockstep_flags ${arg_LIBRARIES})
  if(arg_TORCH)
    target_precompile_headers(test_${name} REUSE_FROM lockstep_torch_pch)
    target_link_options(test_${name} PRIVATE ${LOCKSTEP_TORCH_LINK_OPTIONS})
  endif()
  # One thread each: threads of tests that run side by side spin against each other.
  gtest_discover_tests(test_${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS "${arg_LABEL}" TIMEOUT ${arg_TIMEOUT} ENVIRONMENT OMP_NUM_THREADS=1)
endfunction()
