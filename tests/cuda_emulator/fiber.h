// Fibers: stacks that a CUDA thread of the emulator runs on, and the switch between them.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <new>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace emulator {

// A stack of its own. Memory is reserved, not touched: a page costs something only once a kernel reaches it. The lowest
// page is a guard.
class Stack {
 public:
  static constexpr std::size_t kBytes = 256 * 1024, kGuard = 4096;

  Stack() : base_(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    if (base_ == MAP_FAILED) throw std::bad_alloc();
    mprotect(base_, kGuard, PROT_NONE);
  }
  ~Stack() { munmap(base_, kBytes); }
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;

  char* bottom() const { return static_cast<char*>(base_); }
  char* top() const { return bottom() + kBytes; }

 private:
  void* base_;
};

#if defined(__x86_64__)

// Where a fiber stopped: its stack pointer; the registers that a call preserves lie on its stack.
struct Context {
  void* stack_pointer = nullptr;
};

extern "C" void jax_rtopk_emulator_switch(void** save, void* load);

// Ten instructions, against the two system calls of swapcontext: kernels switch at each collective of each lane.
asm(R"(
.text
.type jax_rtopk_emulator_switch, @function
.weak jax_rtopk_emulator_switch
.hidden jax_rtopk_emulator_switch
jax_rtopk_emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size jax_rtopk_emulator_switch, . - jax_rtopk_emulator_switch
)");

inline void switch_context(Context& from, Context& to) {
  jax_rtopk_emulator_switch(&from.stack_pointer, to.stack_pointer);
}

inline void make_context(Context& context, const Stack& stack, void (*entry)()) {
  auto* slot = reinterpret_cast<std::uintptr_t*>(stack.top()) - 2;
  slot[0] = reinterpret_cast<std::uintptr_t>(entry);  // the return address of the first switch
  slot[1] = 0;                                        // entry's own return address: it never returns
  for (int i = 1; i <= 6; ++i) slot[-i] = 0;
  context.stack_pointer = slot - 6;
}

#else

struct Context {
  ucontext_t machine;
};

inline void switch_context(Context& from, Context& to) { swapcontext(&from.machine, &to.machine); }

inline void make_context(Context& context, const Stack& stack, void (*entry)()) {
  getcontext(&context.machine);
  context.machine.uc_stack.ss_sp = stack.bottom();
  context.machine.uc_stack.ss_size = Stack::kBytes;
  context.machine.uc_link = nullptr;
  ::makecontext(&context.machine, entry, 0);
}

#endif

}  // namespace emulator
