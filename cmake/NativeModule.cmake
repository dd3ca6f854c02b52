# native_module(<name> <source>...): a nanobind module jax_rtopk/<name> with its type stub, installed into the package.
execute_process(
  COMMAND "${Python_EXECUTABLE}" -m nanobind --cmake_dir
  OUTPUT_VARIABLE nanobind_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
find_package(nanobind CONFIG REQUIRED)

function(native_module name)
  if(JAX_RTOPK_SANITIZE)
    set(symbols NOSTRIP)  # for what a sanitizer reports
  endif()
  # Of STABLE_ABI and FREE_THREADED nanobind takes what the building Python has: one wheel for every Python from 3.12 on,
  # and one of its own for 3.11 and each free-threaded Python. These may run our code in parallel: it keeps no state.
  # NOMINSIZE: nanobind's default is to optimise for size, kernels included.
  nanobind_add_module(${name} STABLE_ABI FREE_THREADED NB_STATIC NB_SUPPRESS_WARNINGS NOMINSIZE ${symbols} ${ARGN})
  target_link_libraries(${name} PRIVATE rtopk_options xla_ffi)
  install(TARGETS ${name} LIBRARY DESTINATION jax_rtopk)
  if(JAX_RTOPK_SANITIZE OR CMAKE_CROSSCOMPILING)
    return()  # a stub is made by importing the module, which then needs the sanitizers' runtime, or another machine
  endif()
  nanobind_add_stub(${name}_stub
    MODULE ${name}
    OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/${name}.pyi"
    PYTHON_PATH $<TARGET_FILE_DIR:${name}>
    DEPENDS ${name})
  install(FILES "${CMAKE_CURRENT_BINARY_DIR}/${name}.pyi" DESTINATION jax_rtopk)
endfunction()
