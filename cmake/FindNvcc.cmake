# Sets JAX_RTOPK_NVCC to the nvcc to use, looked up on PATH, in CUDA_HOME, in /usr/local/cuda and in the PyPI package nvidia-cuda-nvcc.
execute_process(
  COMMAND "${Python_EXECUTABLE}" -c
    "import glob, sys; print(';'.join(p for d in sys.path for p in glob.glob(d + '/nvidia/*/bin')), end='')"
  OUTPUT_VARIABLE pypi_nvcc_dirs)
find_program(JAX_RTOPK_NVCC nvcc
  PATHS ENV PATH "$ENV{CUDA_HOME}/bin" /usr/local/cuda/bin ${pypi_nvcc_dirs}
  NO_DEFAULT_PATH
  DOC "The CUDA compiler")
mark_as_advanced(JAX_RTOPK_NVCC)

# The PyPI packages have no folder where nvcc and CMake look for libraries.
cmake_path(GET JAX_RTOPK_NVCC PARENT_PATH nvcc_root)
cmake_path(GET nvcc_root PARENT_PATH nvcc_root)
if(EXISTS "${nvcc_root}/lib/libcudart_static.a" AND NOT EXISTS "${nvcc_root}/lib64")
  set(CMAKE_CUDA_FLAGS_INIT "-L${nvcc_root}/lib")
  set(nvcc_include "${nvcc_root}/include")
  link_directories("${nvcc_root}/lib")
endif()
