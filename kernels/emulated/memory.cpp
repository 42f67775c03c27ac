#include "kernels/emulated/memory.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstring>
#include <mutex>
#include <string>

namespace tandem::kernels::emulated {

namespace {

constexpr size_t kApart = 256;
constexpr int kMostDevices = 16;

// What the handler knows; it may neither allocate nor lock.
struct Mapped {
  std::atomic<char*> start{nullptr};
  std::atomic<size_t> bytes{0};
};
std::array<Mapped, kMostDevices> mapped;
struct sigaction before;

void say(const char* words) {
  if (::write(STDERR_FILENO, words, std::strlen(words)) < 0) return;
}

void on_fault(int number, siginfo_t* info, void*) {
  const char* const address = static_cast<const char*>(info->si_addr);
  for (int device = 0; device < kMostDevices; ++device) {
    const char* const start = mapped[device].start;
    if (start == nullptr || address < start || address >= start + mapped[device].bytes) continue;
    std::array<char, 32> digits{};
    say("tandem: the host touches memory of the device emulated:");
    *std::to_chars(digits.data(), digits.data() + digits.size() - 1, device).ptr = 0;
    say(digits.data());
    say(", at byte ");
    *std::to_chars(digits.data(), digits.data() + digits.size() - 1, address - start).ptr = 0;
    say(digits.data());
    say(" of it\n");
  }
  ::sigaction(number, &before, nullptr);  // the fault comes again, and is then what it would have been
}

void watch_faults() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    ::sigaction(SIGSEGV, &action, &before);
  });
}

}  // namespace

Memory::Memory(int device, size_t bytes, uint64_t shared) : device_(device), bytes_(bytes) {
  if (shared > 0) share(shared);
  void* const start = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) return;
  start_ = static_cast<char*>(start);
  mapped[device].bytes = bytes;
  mapped[device].start = start_;
  watch_faults();
}

// Where it cannot be had each process has the bytes for itself.
void Memory::share(uint64_t number) {
  const std::string name = "/emulated-device-" + std::to_string(number) + "-" + std::to_string(device_);
  const int file = ::shm_open(name.c_str(), O_RDWR | O_CREAT, 0600);
  if (file < 0) return;
  if (::ftruncate(file, sizeof(*used_)) == 0) {
    void* const at = ::mmap(nullptr, sizeof(*used_), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (at != MAP_FAILED) used_ = static_cast<std::atomic<uint64_t>*>(at);
  }
  ::close(file);
}

Memory::~Memory() {
  for (const auto& [offset, size] : buffers_) *used_ -= size;
  if (used_ != &own_used_) ::munmap(used_, sizeof(*used_));
  mapped[device_].start = nullptr;
  if (start_ != nullptr) ::munmap(start_, bytes_);
}

void* Memory::allocate(size_t bytes) {
  const size_t wanted = std::max<size_t>(1, (bytes + kApart - 1) / kApart) * kApart;
  if (start_ == nullptr || wanted < bytes) return nullptr;
  size_t at = 0;
  for (const auto& [offset, size] : buffers_) {
    if (offset - at >= wanted) break;
    at = offset + size;
  }
  if (wanted > bytes_ - at) return nullptr;
  if ((*used_ += wanted) > bytes_) {
    *used_ -= wanted;
    return nullptr;
  }
  buffers_.emplace(at, wanted);
  const Opened opened(*this);
  std::memset(start_ + at, 0xff, wanted);
  return start_ + at;
}

bool Memory::free(void* memory) {
  const auto found = buffers_.find(static_cast<size_t>(static_cast<char*>(memory) - start_));
  if (found == buffers_.end()) return false;
  const Opened opened(*this);
  std::memset(start_ + found->first, 0xff, found->second);
  *used_ -= found->second;
  buffers_.erase(found);
  return true;
}

bool Memory::holds(const void* memory, size_t bytes) const {
  if (memory < start_) return false;
  const auto at = static_cast<size_t>(static_cast<const char*>(memory) - start_);
  auto after = buffers_.upper_bound(at);
  if (after == buffers_.begin()) return false;
  const auto& [offset, size] = *--after;
  return at + bytes <= offset + size;
}

void Memory::allow(bool access) {
  if (start_ != nullptr) ::mprotect(start_, bytes_, access ? PROT_READ | PROT_WRITE : PROT_NONE);
}

Memory::Opened::Opened(Memory& memory) : memory_(memory) {
  if (memory_.opened_++ == 0) memory_.allow(true);
}
Memory::Opened::~Opened() {
  if (--memory_.opened_ == 0) memory_.allow(false);
}

}  // namespace tandem::kernels::emulated
