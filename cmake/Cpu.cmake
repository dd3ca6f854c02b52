# The module `_cpu`.
file(GLOB cpu_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/cpu/*.cc")
set(isa_sources "${PROJECT_SOURCE_DIR}/cpu/kernels_isa.cc" "${PROJECT_SOURCE_DIR}/cpu/sparse_isa.cc")
list(REMOVE_ITEM cpu_sources ${isa_sources})
native_module(_cpu ${cpu_sources})

# By default GCC stops inlining where a source has grown by 40 %, and many kernels are in one: 4 % more instructions.
set(inline_more --param=inline-unit-growth=300)

# cpu_isa(<isa> <flag>...): the kernels compiled for one instruction set, in a namespace of that name (RTOPK_ISA). Which
# one runs is decided by cpu/kernels.cc, which must check for every flag given here; no other source may have them.
#
# Call it with the smallest instruction set first: of an inline function that several objects hold, such as a template
# of the standard library, the linker keeps the first one, and that one must run on every machine.
function(cpu_isa isa)
  add_library(kernels_${isa} OBJECT ${isa_sources})
  target_compile_definitions(kernels_${isa} PRIVATE RTOPK_ISA=${isa})
  target_compile_options(kernels_${isa} PRIVATE ${ARGN} $<$<CXX_COMPILER_ID:GNU>:${inline_more}>)
  target_link_libraries(kernels_${isa} PRIVATE rtopk_options)
  target_sources(_cpu PRIVATE $<TARGET_OBJECTS:kernels_${isa}>)
endfunction()

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64|ARM64)$")
  cpu_isa(neon)
else()
  cpu_isa(baseline)
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$")
  cpu_isa(avx2 -mavx2 -mbmi2 -mpopcnt)
  cpu_isa(avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mbmi2 -mpopcnt)
endif()
