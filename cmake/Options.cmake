# The target `rtopk_options`: what every source of ours is compiled with.
add_library(rtopk_options INTERFACE)
target_include_directories(rtopk_options INTERFACE "${PROJECT_SOURCE_DIR}")

set(warnings -Wall -Wextra)
if(JAX_RTOPK_WERROR)
  list(APPEND warnings -Werror)
endif()

target_compile_options(rtopk_options INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:${warnings}>"
  # Early-stopped answers depend on the pivots, so every back end must round their arithmetic alike: no fused multiply-add.
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>
  $<$<COMPILE_LANGUAGE:CUDA>:--fmad=false>)

if(JAX_RTOPK_SANITIZE)
  # Of sanitized code -O3 makes so much that compiling takes five times as long.
  set(sanitizers -O1 -fsanitize=${JAX_RTOPK_SANITIZE} -fno-sanitize-recover=all)
  target_compile_options(rtopk_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${sanitizers};-fno-omit-frame-pointer;-g1>")
  target_link_options(rtopk_options INTERFACE ${sanitizers})
endif()
