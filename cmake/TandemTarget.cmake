# How every target of this project is compiled, and the three functions that declare one.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS ON)  # TRY is a statement expression
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

find_program(TANDEM_CCACHE ccache)
if(TANDEM_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${TANDEM_CCACHE})
endif()
find_program(TANDEM_MOLD mold)
if(TANDEM_MOLD)
  add_link_options(-fuse-ld=mold)
endif()
if(TANDEM_SANITIZE)
  add_compile_options(-fsanitize=${TANDEM_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all
                      # GCC 12 loses track of values that sanitizers wrap (bug 105562), and of what strings hold (105651).
                      -Wno-maybe-uninitialized -Wno-stringop-overread)
  # mold 1.10 may begin what is read-only after relocation on a page that is not there, where sanitizers leave a thread's
  # data empty.
  add_link_options(-fsanitize=${TANDEM_SANITIZE} -Wl,-z,norelro)
endif()
# Clang is for fuzzing alone; GCC's warnings are the ones that are kept at none.
set(TANDEM_WARNINGS -Wall -Wextra -Werror -Wnon-virtual-dtor -Wno-missing-field-initializers
                    # GCC 12 sees overlaps and overflows of strings that are not there (bugs 105329, 105651).
                    -Wno-restrict -Wno-stringop-overflow -Wno-array-bounds)
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  set(TANDEM_WARNINGS -w -fbracket-depth=1024)
endif()

# Folders that compute, and their tests, are compiled with -O3, CMake's own for a release. To the rest it adds half to the
# time of a build and nothing that can be measured; commands and tests run once through what others have compiled.
set(TANDEM_COMPUTING kernels model trainer bench)

function(tandem_compile_options target)
  target_compile_options(${target} PRIVATE ${TANDEM_WARNINGS})
  string(REGEX REPLACE "^(tandem|test)_" "" folder ${target})
  if(NOT folder IN_LIST TANDEM_COMPUTING)
    if(target MATCHES "^tandem_" AND NOT folder STREQUAL cli)
      set(level -O2)
    else()
      set(level -O1)
    endif()
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:${level}>)
  endif()
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR})
endfunction()

# What most files include, directly or not, and takes a second and more to read.
set(TANDEM_HEADERS <algorithm> <chrono> <filesystem> <functional> <map> <memory> <optional> <span> <string> <vector>
                   <fmt/format.h> <nlohmann/json.hpp>)

# tandem_library(NAME [FOLDER folder] [FLAT] DEPENDS target... [EXCLUDE file...] [HEADERS header...]): the library of the current
# folder or of a folder in it: all sources in it, with FLAT without those of its folders; HEADERS are precompiled too.
function(tandem_library name)
  cmake_parse_arguments(ARG "FLAT" "FOLDER" "DEPENDS;EXCLUDE;HEADERS" ${ARGN})
  set(glob GLOB_RECURSE)
  if(ARG_FLAT)
    set(glob GLOB)
  endif()
  set(root ${CMAKE_CURRENT_SOURCE_DIR})
  if(ARG_FOLDER)
    set(root ${root}/${ARG_FOLDER})
  endif()
  file(${glob} sources CONFIGURE_DEPENDS ${root}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/example/")
  foreach(file ${ARG_EXCLUDE})
    list(REMOVE_ITEM sources ${CMAKE_CURRENT_SOURCE_DIR}/${file})
  endforeach()
  add_library(tandem_${name} STATIC ${sources})
  tandem_compile_options(tandem_${name})
  if(NOT name STREQUAL kernels)  # which is compiled once for each instruction set
    target_precompile_headers(tandem_${name} PRIVATE ${TANDEM_HEADERS} ${ARG_HEADERS})
  endif()
  target_link_libraries(tandem_${name} PUBLIC ${ARG_DEPENDS})
endfunction()

# tandem_tests(NAME [FOLDER folder] DEPENDS target... [PROPERTIES property value...]): one GoogleTest program of all
# tests/FOLDER/*_test.cpp; the folder is NAME unless it is given.
function(tandem_tests name)
  cmake_parse_arguments(ARG "" "FOLDER" "DEPENDS;PROPERTIES" ${ARGN})
  set(folder ${name})
  if(ARG_FOLDER)
    set(folder ${ARG_FOLDER})
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.cpp)
  if(NOT sources)
    return()
  endif()
  set(program test_${name})
  add_executable(${program} ${sources})
  tandem_compile_options(${program})
  target_link_libraries(${program} PRIVATE ${ARG_DEPENDS} GTest::gtest_main GTest::gmock)
  target_compile_definitions(${program} PRIVATE TANDEM_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
                                                TANDEM_BINARY="${CMAKE_BINARY_DIR}/bin/tandem")
  target_precompile_headers(${program} PRIVATE ${TANDEM_HEADERS} <gtest/gtest.h> <gmock/gmock.h>)
  include(GoogleTest)
  # Parameters have names of their own; their values, printed as bytes, would change the tests' names with every start.
  gtest_discover_tests(${program} TEST_PREFIX ${name}. NO_PRETTY_VALUES PROPERTIES ${ARG_PROPERTIES} DISCOVERY_TIMEOUT 60)
endfunction()
