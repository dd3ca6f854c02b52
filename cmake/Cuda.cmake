# The module `_cuda`, when it is wanted, nvcc is found and there are sources for it.
if(NOT JAX_RTOPK_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "jax_rtopk: JAX_RTOPK_CUDA must be AUTO, ON or OFF, got '${JAX_RTOPK_CUDA}'.")
endif()
if(JAX_RTOPK_CUDA STREQUAL "OFF")
  message(STATUS "jax_rtopk: without CUDA kernels (JAX_RTOPK_CUDA=OFF)")
  return()
endif()

include(FindNvcc)
if(NOT JAX_RTOPK_NVCC)
  if(JAX_RTOPK_CUDA STREQUAL "ON")
    message(FATAL_ERROR
      "jax_rtopk: JAX_RTOPK_CUDA=ON needs nvcc, which is neither on PATH, nor under CUDA_HOME, nor in this Python's site-packages. "
      "Install the CUDA toolkit (12.0 or newer) and put its bin folder on PATH or set CUDA_HOME; "
      "or set JAX_RTOPK_CUDA=OFF to build the CPU kernels only.")
  endif()
  message(STATUS "jax_rtopk: without CUDA kernels (JAX_RTOPK_CUDA=AUTO and no nvcc on PATH, in CUDA_HOME or in site-packages)")
  return()
endif()

file(GLOB cuda_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/cuda/*.cu" "${PROJECT_SOURCE_DIR}/cuda/*.cc")
if(NOT cuda_sources)
  message(STATUS "jax_rtopk: without CUDA kernels (no sources in cuda/)")
  return()
endif()
message(STATUS "jax_rtopk: CUDA kernels for ${JAX_RTOPK_CUDA_ARCHS} with ${JAX_RTOPK_NVCC}")

# Machine code for each architecture; code for the newest is also kept as PTX, which later GPUs compile when it is loaded.
set(real_archs ${JAX_RTOPK_CUDA_ARCHS})
list(SORT real_archs COMPARE NATURAL)
list(GET real_archs -1 newest)
list(TRANSFORM real_archs APPEND "-real")
set(CMAKE_CUDA_ARCHITECTURES ${real_archs} ${newest}-virtual)
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
# cudart is linked statically, so that the module needs no CUDA library: it loads beside jax-cuda12 and jax-cuda13 and where there is no GPU.
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
set(CMAKE_CUDA_COMPILER "${JAX_RTOPK_NVCC}")
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)

native_module(_cuda ${cuda_sources})
target_link_libraries(_cuda PRIVATE CUDA::cudart_static)
target_compile_options(_cuda PRIVATE
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>
  $<$<COMPILE_LANGUAGE:CUDA>:-lineinfo>)
if(JAX_RTOPK_WERROR)
  target_compile_options(_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>)
endif()
