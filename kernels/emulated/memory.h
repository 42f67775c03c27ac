// The memory of an emulated device: host memory that nobody may touch but the device's own work.
//
// It is mapped without access; `open` lets the thread that does the device's work in, and its end shuts it again. Who
// touches it at another time gets a signal: a handler says which buffer it was, then the program dies of it, as a
// program on a real GPU would. What is freed is filled with NaN (all bits set), so that a late reader sees it.
//
// Thread safety: none; the device holds a lock.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>

namespace tandem::kernels::emulated {

class Memory {
 public:
  // `shared`: a number above 0 of the processes that have the bytes of this device in common (/dev/shm counts what they
  // hold). What a process that was killed held is lost for them.
  Memory(int device, size_t bytes, uint64_t shared = 0);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Null where there is no room. 256 bytes apart at least; what is in it is NaN.
  void* allocate(size_t bytes);
  // False: nothing was allocated there.
  bool free(void* memory);
  size_t free_bytes() const { return bytes_ - std::min<uint64_t>(bytes_, *used_); }
  size_t bytes() const { return bytes_; }
  // Whether all of these bytes lie in one buffer.
  bool holds(const void* memory, size_t bytes) const;

  // While one of these lives, the memory can be read and written.
  class Opened {
   public:
    explicit Opened(Memory& memory);
    ~Opened();

   private:
    Memory& memory_;
  };

 private:
  friend class Opened;
  void allow(bool access);
  void share(uint64_t number);

  const int device_;
  const size_t bytes_;
  char* start_ = nullptr;
  std::atomic<uint64_t> own_used_ = 0;
  std::atomic<uint64_t>* used_ = &own_used_;  // or that of all processes
  int opened_ = 0;
  std::map<size_t, size_t> buffers_;  // bytes by offset
};

}  // namespace tandem::kernels::emulated
