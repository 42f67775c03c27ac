// A large zero-initialized array, committed on first touch and backed by huge pages where available.
//
// Fixed size, movable. Untouched parts take no memory: a pool sized for the worst case costs what is used of it. Huge
// pages reduce TLB misses for weights, moments and caches. Thread safety: as an array. Creation throws std::bad_alloc
// where there is not enough address space.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

namespace tandem {

namespace internal {
void* map_zeroed(size_t bytes);  // nullptr for 0
void unmap(void* memory, size_t bytes);
void give_back(void* memory, size_t bytes);
}  // namespace internal

template <typename T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t count) : data_(static_cast<T*>(internal::map_zeroed(count * sizeof(T)))), size_(count) {}
  ~Buffer() { internal::unmap(data_, size_ * sizeof(T)); }
  Buffer(Buffer&& other) noexcept : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  // Returns the memory of `count` elements from `first` to the system. They may read as zero from then on; a write
  // allocates it again.
  void give_back(size_t first, size_t count) { internal::give_back(data_ + first, count * sizeof(T)); }

  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  T& operator[](size_t index) { return data_[index]; }
  const T& operator[](size_t index) const { return data_[index]; }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace tandem
