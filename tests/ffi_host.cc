// Stands in for XLA: calls a handler with any buffers and attributes, of which XLA would never make some, on a thread
// pool of its own, and with memory that runs out when it is told to. tests/ffi_host.py has what calls this.
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "xla/ffi/api/c_api.h"

// What XLA hides behind the pointers that it gives to handlers.
struct XLA_FFI_Error {
  std::string message;
  XLA_FFI_Error_Code code;
};

namespace {

class Pool {
 public:
  explicit Pool(int64_t threads) : size_(threads) {
    for (int64_t i = 0; i < threads; ++i) std::thread([this] { serve(); }).detach();  // for as long as the process is
  }

  int64_t size() const { return size_; }

  void schedule(XLA_FFI_Task* task, void* data) {
    {
      const std::lock_guard lock(mutex_);
      queue_.emplace_back(task, data);
    }
    changed_.notify_one();
  }

 private:
  void serve() {
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !queue_.empty(); });
      const auto [task, data] = queue_.front();
      queue_.pop_front();
      lock.unlock();
      task(data);
    }
  }

  const int64_t size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<XLA_FFI_Task*, void*>> queue_;
};

Pool& pool_of(int64_t threads) {
  // Never destroyed: at the end of the process threads still wait in there.
  static auto& mutex = *new std::mutex;
  static auto& pools = *new std::map<int64_t, Pool*>;
  const std::lock_guard lock(mutex);
  Pool*& pool = pools[threads];
  if (pool == nullptr) pool = new Pool(threads);
  return *pool;
}

Pool& pool_of(XLA_FFI_ExecutionContext* context) { return *reinterpret_cast<Pool*>(context); }

const XLA_FFI_Api& api() {
  static const XLA_FFI_Api made = [] {
    XLA_FFI_Api api{};
    api.struct_size = XLA_FFI_Api_STRUCT_SIZE;
    api.api_version = {XLA_FFI_Api_Version_STRUCT_SIZE, nullptr, XLA_FFI_API_MAJOR, XLA_FFI_API_MINOR};
    api.XLA_FFI_Error_Create = [](XLA_FFI_Error_Create_Args* args) {
      return new XLA_FFI_Error{args->message, args->errc};
    };
    api.XLA_FFI_Error_Destroy = [](XLA_FFI_Error_Destroy_Args* args) { delete args->error; };
    api.XLA_FFI_ThreadPool_Schedule = [](XLA_FFI_ThreadPool_Schedule_Args* args) -> XLA_FFI_Error* {
      pool_of(args->ctx).schedule(args->task, args->data);
      return nullptr;
    };
    api.XLA_FFI_ThreadPool_NumThreads = [](XLA_FFI_ThreadPool_NumThreads_Args* args) -> XLA_FFI_Error* {
      *args->num_threads = pool_of(args->ctx).size();
      return nullptr;
    };
    return api;
  }();
  return made;
}

// How many more allocations of a handler succeed before one fails; negative: none does.
std::atomic<int64_t> allocations_left{-1};
std::atomic<bool> counting{false};

bool fails() { return counting && allocations_left.fetch_sub(1) == 0; }

void* allocate(size_t bytes, size_t alignment) {
  if (fails()) throw std::bad_alloc();
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment, bytes == 0 ? 1 : bytes) != 0) throw std::bad_alloc();
  return memory;
}

}  // namespace

// The C++ operators of every module that is loaded after this one, if this one is loaded with RTLD_GLOBAL.
void* operator new(size_t bytes) { return allocate(bytes, alignof(std::max_align_t)); }
void* operator new[](size_t bytes) { return allocate(bytes, alignof(std::max_align_t)); }
void* operator new(size_t bytes, std::align_val_t alignment) { return allocate(bytes, size_t(alignment)); }
void* operator new[](size_t bytes, std::align_val_t alignment) { return allocate(bytes, size_t(alignment)); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

// As declared in tests/ffi_host.py.
extern "C" {

struct HostBuffer {
  int64_t dtype, rank;
  int64_t* dims;
  void* data;
};

struct HostAttribute {
  const char* name;
  int64_t type, dtype;
  void* value;
  int64_t size;  // of a string or an array
};

// Makes one allocation of the next call fail, the one after `left` others. Returns whether that of the last call did.
int host_fail_allocation(int64_t left) { return allocations_left.exchange(left) < 0; }

// The message of the error that the handler returns, or null. It lasts until the thread's next call.
const char* host_call(XLA_FFI_Handler* handler, int64_t threads, int64_t num_args, const HostBuffer* args,
                      int64_t num_rets, const HostBuffer* rets, int64_t num_attributes,
                      const HostAttribute* attributes) {
  const auto buffers_of = [](const HostBuffer* from, int64_t count) {
    std::vector<XLA_FFI_Buffer> buffers;
    for (int64_t i = 0; i < count; ++i) {
      buffers.push_back({XLA_FFI_Buffer_STRUCT_SIZE, nullptr, XLA_FFI_DataType(from[i].dtype), from[i].data,
                         from[i].rank, from[i].dims});
    }
    return buffers;
  };
  std::vector<XLA_FFI_Buffer> arg_buffers = buffers_of(args, num_args), ret_buffers = buffers_of(rets, num_rets);
  std::vector<void*> arg_pointers, ret_pointers, attribute_pointers;
  for (auto& buffer : arg_buffers) arg_pointers.push_back(&buffer);
  for (auto& buffer : ret_buffers) ret_pointers.push_back(&buffer);
  std::vector<XLA_FFI_ArgType> arg_types(num_args, XLA_FFI_ArgType_BUFFER);
  std::vector<XLA_FFI_RetType> ret_types(num_rets, XLA_FFI_RetType_BUFFER);

  std::vector<XLA_FFI_AttrType> types;
  std::vector<XLA_FFI_ByteSpan> names;
  std::vector<XLA_FFI_ByteSpan*> name_pointers;
  std::vector<XLA_FFI_Scalar> scalars(num_attributes);
  std::vector<XLA_FFI_Array> arrays(num_attributes);
  std::vector<XLA_FFI_ByteSpan> strings(num_attributes);
  for (int64_t i = 0; i < num_attributes; ++i) {
    const HostAttribute& attribute = attributes[i];
    types.push_back(XLA_FFI_AttrType(attribute.type));
    names.push_back({attribute.name, std::char_traits<char>::length(attribute.name)});
    scalars[i] = {XLA_FFI_DataType(attribute.dtype), attribute.value};
    arrays[i] = {XLA_FFI_DataType(attribute.dtype), size_t(attribute.size), attribute.value};
    strings[i] = {static_cast<const char*>(attribute.value), size_t(attribute.size)};
    attribute_pointers.push_back(types[i] == XLA_FFI_AttrType_SCALAR  ? static_cast<void*>(&scalars[i])
                                 : types[i] == XLA_FFI_AttrType_ARRAY ? static_cast<void*>(&arrays[i])
                                                                      : static_cast<void*>(&strings[i]));
  }
  for (auto& name : names) name_pointers.push_back(&name);

  XLA_FFI_CallFrame frame{};
  frame.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE;
  frame.api = &api();
  frame.ctx = reinterpret_cast<XLA_FFI_ExecutionContext*>(&pool_of(threads));
  frame.stage = XLA_FFI_ExecutionStage_EXECUTE;
  frame.args = {XLA_FFI_Args_STRUCT_SIZE, nullptr, num_args, arg_types.data(), arg_pointers.data()};
  frame.rets = {XLA_FFI_Rets_STRUCT_SIZE, nullptr, num_rets, ret_types.data(), ret_pointers.data()};
  frame.attrs = {XLA_FFI_Attrs_STRUCT_SIZE, nullptr, num_attributes, types.data(), name_pointers.data(),
                 attribute_pointers.data()};

  counting = true;
  const std::unique_ptr<XLA_FFI_Error> error(handler(&frame));
  counting = false;
  if (!error) return nullptr;
  thread_local std::string message;
  message = std::to_string(int(error->code)) + ": " + error->message;
  return message.c_str();
}

}  // extern "C"
