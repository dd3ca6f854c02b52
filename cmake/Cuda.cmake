# The module `_cuda`, when it is wanted and nvcc is found.
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
      "jax_rtopk: JAX_RTOPK_CUDA=ON needs nvcc, which is neither on PATH, nor under CUDA_HOME or /usr/local/cuda, nor in this Python's site-packages. "
      "Install the CUDA toolkit (12.0 or newer) and put its bin folder on PATH or set CUDA_HOME; "
      "or set JAX_RTOPK_CUDA=OFF to build the CPU kernels only.")
  endif()
  message(STATUS "jax_rtopk: without CUDA kernels (JAX_RTOPK_CUDA=AUTO and no nvcc on PATH, in CUDA_HOME, in /usr/local/cuda or in site-packages)")
  return()
endif()

file(GLOB cuda_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/cuda/*.cu" "${PROJECT_SOURCE_DIR}/cuda/*.cc")

# The default list is for the newest nvcc: drop what this one does not know.
execute_process(COMMAND "${JAX_RTOPK_NVCC}" --list-gpu-arch OUTPUT_VARIABLE known_archs)
set(cuda_archs)
foreach(arch IN LISTS JAX_RTOPK_CUDA_ARCHS)
  if(known_archs MATCHES "compute_${arch}[^0-9]")
    list(APPEND cuda_archs ${arch})
  else()
    message(WARNING "jax_rtopk: ${JAX_RTOPK_NVCC} does not know the CUDA architecture ${arch}: left out")
  endif()
endforeach()
if(NOT cuda_archs)
  message(FATAL_ERROR
    "jax_rtopk: JAX_RTOPK_CUDA_ARCHS must name CUDA architectures that nvcc knows, such as 80;90, got '${JAX_RTOPK_CUDA_ARCHS}'.")
endif()
message(STATUS "jax_rtopk: CUDA kernels for ${cuda_archs} with ${JAX_RTOPK_NVCC}")

# Machine code for each architecture; code for the newest is also kept as PTX, which later GPUs compile when it is loaded.
set(real_archs ${cuda_archs})
list(SORT real_archs COMPARE NATURAL)
list(GET real_archs -1 newest)
list(TRANSFORM real_archs APPEND "-real")
set(CMAKE_CUDA_ARCHITECTURES ${real_archs} ${newest}-virtual)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
# cudart is linked statically, so that the module needs no CUDA library: it loads beside jax-cuda12 and jax-cuda13 and where there is no GPU.
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
set(CMAKE_CUDA_COMPILER "${JAX_RTOPK_NVCC}")
enable_language(CUDA)
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  # A CMake that is older than nvcc does not know that this nvcc can do C++20.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
endif()

native_module(_cuda ${cuda_sources})
list(JOIN cuda_archs " " archs_text)
target_compile_definitions(_cuda PRIVATE "JAX_RTOPK_CUDA_ARCHS=\"${archs_text}\"")
# For the sources that g++ compiles. Not find_package(CUDAToolkit): it insists on the shared cudart, which PyPI's toolkit lacks.
target_include_directories(_cuda SYSTEM PRIVATE ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES} ${nvcc_include})
target_compile_options(_cuda PRIVATE
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  # A third of the size. Older toolkits serve drivers that cannot unpack it.
  target_compile_options(_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:--compress-mode=size>)
endif()
if(JAX_RTOPK_WERROR)
  target_compile_options(_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>)
endif()
