# Finds LibTorch in a Python environment: the wheel `torch`, with no CUDA toolkit, since only its CPU part is linked.
#
# Looks into TANDEM_TORCH (a variable or of the environment: an environment's folder, or that of the package), the environment
# that is active, .venv, the one that scripts/with-torch makes, and where python3 would find it.
# Gives Torch_FOUND, Torch_VERSION, Torch_FOLDER and the target Torch::Torch. Also for losses of your own: docs/custom-loss.md.
set(places "${TANDEM_TORCH}" "$ENV{TANDEM_TORCH}" "$ENV{VIRTUAL_ENV}" "${CMAKE_SOURCE_DIR}/.venv")
if(DEFINED ENV{XDG_CACHE_HOME})
  list(APPEND places "$ENV{XDG_CACHE_HOME}/tandem/torch")
else()
  list(APPEND places "$ENV{HOME}/.cache/tandem/torch")
endif()
set(Torch_FOLDER "")
foreach(place ${places})
  file(GLOB packages "${place}" "${place}/torch" "${place}/lib/python3*/site-packages/torch")
  foreach(package ${packages})
    if(NOT Torch_FOLDER AND EXISTS "${package}/include/torch/csrc/api/include/torch/torch.h")
      set(Torch_FOLDER "${package}")
    endif()
  endforeach()
endforeach()
if(NOT Torch_FOLDER)
  execute_process(COMMAND python3 -c "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
                  OUTPUT_VARIABLE package OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(package AND EXISTS "${package}/include/torch/csrc/api/include/torch/torch.h")
    set(Torch_FOLDER "${package}")
  endif()
endif()
if(Torch_FOLDER)
  file(STRINGS "${Torch_FOLDER}/include/torch/headeronly/version.h" line REGEX "define TORCH_VERSION \"")
  if(line MATCHES "\"([0-9.]+)")
    set(Torch_VERSION "${CMAKE_MATCH_1}")
  endif()
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Torch REQUIRED_VARS Torch_FOLDER VERSION_VAR Torch_VERSION
                                  REASON_FAILURE_MESSAGE "set TANDEM_TORCH to the environment that has the wheel")
if(Torch_FOUND AND NOT TARGET Torch::Torch)
  get_filename_component(site "${Torch_FOLDER}" DIRECTORY)
  add_library(Torch::Torch INTERFACE IMPORTED GLOBAL)
  target_include_directories(Torch::Torch SYSTEM INTERFACE "${Torch_FOLDER}/include" "${Torch_FOLDER}/include/torch/csrc/api/include")
  # Of CUDA it needs the runtime and CUPTI, wheels of their own that lie beside it.
  target_link_libraries(Torch::Torch INTERFACE "${Torch_FOLDER}/lib/libtorch_cpu.so" "${Torch_FOLDER}/lib/libc10.so")
  target_link_options(Torch::Torch INTERFACE "LINKER:--allow-shlib-undefined" "LINKER:-rpath,${Torch_FOLDER}/lib:${site}/nvidia/cu13/lib")
endif()
