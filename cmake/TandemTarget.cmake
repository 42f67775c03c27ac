# How every target of this project is compiled, and the three functions that declare one.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS ON)  # TRY is a statement expression
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

find_program(TANDEM_CCACHE ccache)
if(TANDEM_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros
                                  CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${TANDEM_CCACHE})
endif()
if(TANDEM_SANITIZE)
  add_compile_definitions(TANDEM_SANITIZED)
  add_compile_options(-fsanitize=${TANDEM_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all
                      # GCC 12 loses track of values that sanitizers wrap (bug 105562), and of what strings hold (105651).
                      -Wno-maybe-uninitialized -Wno-stringop-overread)
  add_link_options(-fsanitize=${TANDEM_SANITIZE})
endif()
option(TANDEM_JUMBO "Compile the files of a folder together" ON)
# Clang is for fuzzing and its sanitizers alone; GCC's warnings are the ones that are kept at none.
set(TANDEM_WARNINGS -Wall -Wextra -Werror -Wnon-virtual-dtor -Wno-missing-field-initializers
                    # GCC 12 sees overlaps and overflows of strings that are not there (bugs 105329, 105651).
                    -Wno-restrict -Wno-stringop-overflow -Wno-array-bounds)
if(NOT TANDEM_JUMBO)
  # Nor what strings and variants hold, where it compiles a file by itself (bugs 105562, 105651).
  list(APPEND TANDEM_WARNINGS -Wno-maybe-uninitialized -Wno-stringop-overread)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  set(TANDEM_WARNINGS -w -fbracket-depth=1024)
  # Checks that take more than a third of the time to compile: addresses that are null are seen by the address sanitizer, and
  # those of any alignment are taken by the processors that this runs on.
  add_compile_options(-fno-sanitize=null,alignment,vptr)
endif()

# Folders that compute are compiled with -O3, CMake's own for a release. To the rest it adds half to the time of a build and
# nothing that can be measured; commands and tests run once through what others have compiled.
set(TANDEM_COMPUTING tandem_kernels tandem_learn tandem_bench)

function(tandem_compile_options target)
  target_compile_options(${target} PRIVATE ${TANDEM_WARNINGS})
  if(NOT target IN_LIST TANDEM_COMPUTING)
    set(level -O2)
    if(target MATCHES "^test_|^tandem$|^tandem_cli$")
      set(level -O1)
    endif()
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:${level}>)
  endif()
  # Their tests would take minutes more without, as clang compiles the rest for sanitizers.
  if(target MATCHES "^(tandem|test)_(base|kernels|collectives|weights_sync)$")
    target_compile_options(${target} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O1>)
  endif()
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR})
endfunction()

# Jumbo builds compile the files of a folder together, a few at a time, so that headers and templates are read once for all of
# them. scripts/check-syntax keeps each file able to stand alone.
set(TANDEM_JUMBO_FILES 24 CACHE STRING "At most so many together")

function(tandem_jumbo target)
  if(NOT TANDEM_JUMBO)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # GCC 12 takes a file that is included for a header, and loses track of optional values (bug 105562); dev shows both warnings.
  target_compile_options(${target} PRIVATE -Wno-subobject-linkage -Wno-maybe-uninitialized)
  get_target_property(sources ${target} SOURCES)
  foreach(source ${sources})
    if(source MATCHES "\\.cpp$")
      get_filename_component(folder ${source} DIRECTORY)
      list(APPEND folders ${folder})
      string(MD5 key ${folder})
      list(APPEND in_${key} ${source})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES folders)
  foreach(folder ${folders})
    string(MD5 key ${folder})
    file(RELATIVE_PATH name ${PROJECT_SOURCE_DIR} ${folder})
    string(MAKE_C_IDENTIFIER "${name}" name)
    # Groups of equal size, so that none is left with a file or two.
    list(LENGTH in_${key} count)
    math(EXPR groups "(${count} + ${TANDEM_JUMBO_FILES} - 1) / ${TANDEM_JUMBO_FILES}")
    set(index 0)
    foreach(source ${in_${key}})
      math(EXPR group "${index} * ${groups} / ${count}")
      set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${name}_${group})
      math(EXPR index "${index} + 1")
    endforeach()
  endforeach()
endfunction()

# What most files include, directly or not, and takes a second and more to read.
set(TANDEM_HEADERS <algorithm> <chrono> <filesystem> <functional> <map> <memory> <optional> <span> <string> <vector>
                   <fmt/format.h>)

# tandem_library(NAME [FOLDER folder] [FLAT] DEPENDS target... [EXCLUDE file...] [HEADERS header...]): the library of the current
# folder or of a folder in it: all sources in it, with FLAT without those of its folders; HEADERS are precompiled too.
function(tandem_library name)
  cmake_parse_arguments(ARG "FLAT" "FOLDER" "DEPENDS;EXCLUDE;HEADERS" ${ARGN})
  set(folder ${CMAKE_CURRENT_SOURCE_DIR})
  if(ARG_FOLDER)
    string(APPEND folder /${ARG_FOLDER})
  endif()
  set(glob GLOB_RECURSE)
  if(ARG_FLAT)
    set(glob GLOB)
  endif()
  file(${glob} sources CONFIGURE_DEPENDS ${folder}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/example/")
  foreach(file ${ARG_EXCLUDE})
    list(REMOVE_ITEM sources ${folder}/${file})
  endforeach()
  add_library(tandem_${name} STATIC ${sources})
  tandem_compile_options(tandem_${name})
  if(NOT TANDEM_JUMBO AND NOT name STREQUAL kernels)  # which is compiled once for each instruction set
    target_precompile_headers(tandem_${name} PRIVATE ${TANDEM_HEADERS} ${ARG_HEADERS})
  endif()
  target_link_libraries(tandem_${name} PUBLIC ${ARG_DEPENDS})
  tandem_jumbo(tandem_${name})
endfunction()

# tandem_tests(NAME [FOLDER folder] DEPENDS target... [ALONE] [PROPERTIES property value...]): one GoogleTest program of all
# tests/FOLDER/*_test.cpp; the folder is NAME unless it is given. ALONE: not as a jumbo build.
function(tandem_tests name)
  cmake_parse_arguments(ARG "ALONE" "FOLDER" "DEPENDS;PROPERTIES" ${ARGN})
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
  if(NOT TARGET tandem_broken_suites)
    add_library(tandem_broken_suites OBJECT ${CMAKE_SOURCE_DIR}/tests/broken_suites.cpp)
    target_compile_options(tandem_broken_suites PRIVATE ${TANDEM_WARNINGS})
    target_link_libraries(tandem_broken_suites PRIVATE GTest::gtest)
  endif()
  target_link_libraries(${program} PRIVATE ${ARG_DEPENDS} tandem_broken_suites GTest::gtest_main GTest::gmock)
  target_compile_definitions(${program} PRIVATE TANDEM_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
                                                TANDEM_BINARY="${CMAKE_BINARY_DIR}/bin/tandem")
  if(NOT TANDEM_JUMBO OR ARG_ALONE)
    target_precompile_headers(${program} PRIVATE ${TANDEM_HEADERS} <gtest/gtest.h> <gmock/gmock.h>)
  endif()
  if(NOT ARG_ALONE)  # each file has shapes of its own under the same short names
    tandem_jumbo(${program})
  endif()
  include(GoogleTest)
  # Parameters have names of their own; their values, printed as bytes, would change the tests' names with every start.
  gtest_discover_tests(${program} TEST_PREFIX ${name}. NO_PRETTY_VALUES PROPERTIES ${ARG_PROPERTIES} DISCOVERY_TIMEOUT 60)
endfunction()
