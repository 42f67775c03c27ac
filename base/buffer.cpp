#include "base/buffer.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>

namespace tandem::internal {

namespace {
constexpr size_t kHugePage = size_t{1} << 21;
size_t whole_pages(size_t bytes) { return (bytes + kHugePage - 1) / kHugePage * kHugePage; }
}  // namespace

void* map_zeroed(size_t bytes) {
  if (bytes == 0) return nullptr;
  // A huge page more than is needed, so that the part kept can start on one.
  const size_t kept = whole_pages(bytes), mapped = kept + kHugePage;
  if (kept < bytes || mapped < kept) throw std::bad_alloc();
  void* start = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) throw std::bad_alloc();
  const uintptr_t first = reinterpret_cast<uintptr_t>(start), aligned = whole_pages(first);
  if (aligned > first) ::munmap(start, aligned - first);
  if (const size_t rest = first + mapped - (aligned + kept); rest > 0) {
    ::munmap(reinterpret_cast<void*>(aligned + kept), rest);
  }
  void* memory = reinterpret_cast<void*>(aligned);
  ::madvise(memory, kept, MADV_HUGEPAGE);  // a wish: kernels without huge pages refuse it
  return memory;
}

void unmap(void* memory, size_t bytes) {
  if (memory != nullptr) ::munmap(memory, whole_pages(bytes));
}

void give_back(void* memory, size_t bytes) {
  constexpr uintptr_t kPage = 4096;
  const uintptr_t first = (reinterpret_cast<uintptr_t>(memory) + kPage - 1) / kPage * kPage;
  const uintptr_t last = (reinterpret_cast<uintptr_t>(memory) + bytes) / kPage * kPage;
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace tandem::internal
