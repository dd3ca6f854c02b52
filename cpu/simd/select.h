// The vectors of the instruction set that this translation unit is compiled for: RTOPK_ISA is its name and its
// namespace.
#pragma once

#ifndef RTOPK_ISA
#error "compile with -DRTOPK_ISA=avx512|avx2|neon|baseline"
#endif

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#include "cpu/simd/avx512.h"
#elif defined(__AVX2__)
#include "cpu/simd/avx2.h"
#elif defined(__aarch64__)
#include "cpu/simd/neon.h"
#else
#include "cpu/simd/baseline.h"
#endif
