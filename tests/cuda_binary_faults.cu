// Kernels with what ours must not have, for test_cuda_binary.py: in a loop over rows, as ours have it.

extern "C" {

// A warp a row, two loads of sixteen bytes that are under way together, all lanes in step. What is asked for.
__global__ void correct(const uint4* operand, unsigned* results, int rows) {
  const unsigned warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  for (unsigned row = blockIdx.x * blockDim.x / 32 + warp; row < rows; row += gridDim.x) {
    const uint4 a = operand[row * 64 + lane], b = operand[row * 64 + lane + 32];
    results[row] = __reduce_add_sync(0xffffffffu, (a.x ^ a.y ^ a.z ^ a.w) + (b.x ^ b.y ^ b.z ^ b.w));
  }
}

// No loop over rows.
__global__ void one_row(const uint4* operand, unsigned* results, int) {
  const uint4 a = operand[threadIdx.x], b = operand[threadIdx.x + 32];
  results[threadIdx.x] = (a.x ^ a.y ^ a.z ^ a.w) + (b.x ^ b.y ^ b.z ^ b.w);
}

// Four bytes at a time.
__global__ void narrow_loads(const unsigned* operand, unsigned* results, int rows) {
  for (int row = blockIdx.x; row < rows; row += gridDim.x) {
    unsigned mixed = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) mixed ^= operand[row * 128 + j * 32 + threadIdx.x];
    results[row * 32 + threadIdx.x] = mixed;
  }
}

// The second load only begins where the first has come.
__global__ void waiting_loads(const uint4* operand, unsigned* results, int rows) {
  for (int row = blockIdx.x; row < rows; row += gridDim.x) {
    const uint4 a = operand[row * 64 + threadIdx.x];
    const uint4 b = operand[row * 64 + 32 + (a.x & 31)];
    results[row * 32 + threadIdx.x] = (a.x ^ a.y ^ a.z ^ a.w) + (b.x ^ b.y ^ b.z ^ b.w);
  }
}

// Holds sixteen values of sixteen bytes at a time.
static __device__ __forceinline__ void reverse_rows(const uint4* operand, uint4* results, int rows) {
  for (int row = blockIdx.x; row < rows; row += gridDim.x) {
    uint4 held[16];
#pragma unroll
    for (int j = 0; j < 16; ++j) held[j] = operand[(row * 16 + j) * 1024 + threadIdx.x];
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 16; ++j) results[(row * 16 + 15 - j) * 1024 + threadIdx.x] = held[j];
  }
}

// More values at a time than the registers left to it.
__global__ void __launch_bounds__(1024, 2) spilling(const uint4* operand, uint4* results, int rows) {
  reverse_rows(operand, results, rows);
}

// As many registers as that wants.
__global__ void many_registers(const uint4* operand, uint4* results, int rows) { reverse_rows(operand, results, rows); }

// An array whose places are not known at compile time.
__global__ void on_stack(const unsigned* operand, const int* places, unsigned* results, int rows) {
  for (int row = blockIdx.x; row < rows; row += gridDim.x) {
    unsigned counts[32] = {};
    const unsigned bits = operand[row * 32 + threadIdx.x];
    for (int j = 0; j < 32; ++j) counts[places[j] & 31] += bits >> j & 1;
    for (int j = 0; j < 32; ++j) results[(row * 32 + j) * 32 + threadIdx.x] = counts[j];
  }
}

// An exchange in a loop that lanes might leave at different times.
__global__ void diverging(const uint4* operand, unsigned* results, const int* rows) {
  for (int row = blockIdx.x; row < rows[threadIdx.x]; row += gridDim.x) {
    const uint4 pack = operand[row * 32 + threadIdx.x % 32];
    const unsigned mixed = __shfl_xor_sync(0xffffffffu, pack.x ^ pack.y ^ pack.z ^ pack.w, 1);
    results[row * 32 + threadIdx.x] = mixed;
  }
}
}
