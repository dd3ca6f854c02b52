# Sets JAX_RTOPK_NVCC to the nvcc to use, looked up on PATH, in CUDA_HOME, and in the PyPI package nvidia-cuda-nvcc.
execute_process(
  COMMAND "${Python_EXECUTABLE}" -c
    "import glob, sys; print(';'.join(p for d in sys.path for p in glob.glob(d + '/nvidia/*/bin')), end='')"
  OUTPUT_VARIABLE pypi_nvcc_dirs)
find_program(JAX_RTOPK_NVCC nvcc
  HINTS ENV PATH
  PATHS "$ENV{CUDA_HOME}/bin" /usr/local/cuda/bin ${pypi_nvcc_dirs}
  DOC "The CUDA compiler")
mark_as_advanced(JAX_RTOPK_NVCC)
