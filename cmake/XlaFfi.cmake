# The target `xla_ffi`: the XLA FFI headers of the jaxlib that the building Python sees.
#
# Under pip's build isolation that is the jaxlib pinned in pyproject.toml, with --no-build-isolation the installed one.
# This is the folder that jax.ffi.include_dir() names; jaxlib is only located, not imported, so jax need not be there.
find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module OPTIONAL_COMPONENTS Development.SABIModule)

execute_process(
  COMMAND "${Python_EXECUTABLE}" -c
    "from importlib.util import find_spec; print(find_spec('jaxlib').submodule_search_locations[0] + '/include', end='')"
  OUTPUT_VARIABLE xla_ffi_include
  ERROR_QUIET)
if(NOT EXISTS "${xla_ffi_include}/xla/ffi/api/ffi.h")
  message(FATAL_ERROR
    "jax_rtopk: the build needs the XLA FFI headers that ship in jaxlib, and ${Python_EXECUTABLE} has no jaxlib with them. "
    "Install one (pip install jaxlib), or build without --no-build-isolation.")
endif()
message(STATUS "jax_rtopk: XLA FFI headers from ${xla_ffi_include}")

add_library(xla_ffi INTERFACE)
# SYSTEM: the headers do not compile warning-free.
target_include_directories(xla_ffi SYSTEM INTERFACE "${xla_ffi_include}")
