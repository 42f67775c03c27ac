#include "wire/faults.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>

#include "base/digest.h"

namespace tandem::wire {

namespace {
constexpr size_t kPlaces = 256;
}

// Names are found by their digest; two that share a place share their faults.
struct Faults::Table {
  struct Place {
    std::atomic<uint32_t> asked[kMessageFaults];
  };
  std::atomic<uint64_t> done[kMessageFaults];
  Place places[kPlaces];
  Place& of(std::string_view sender) { return places[digest_of(sender).low % kPlaces]; }
};

Result<std::shared_ptr<Faults>> Faults::create(const fs::path& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file || ::ftruncate(file.get(), sizeof(Table)) != 0)
    return fail(Status::from_errno("create " + path.string(), errno));
  return open(path);
}

Result<std::shared_ptr<Faults>> Faults::open(const fs::path& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file) return fail(Status::from_errno("open " + path.string(), errno));
  if (::lseek(file.get(), 0, SEEK_END) != static_cast<off_t>(sizeof(Table)))
    return fail(Status::invalid("is no file of faults").at(path.string()));
  void* const memory = ::mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return fail(Status::from_errno("mmap " + path.string(), errno));
  return std::shared_ptr<Faults>(new Faults(static_cast<Table*>(memory)));
}

Result<std::shared_ptr<Faults>> Faults::of_environment() {
  const char* const path = std::getenv(kVariable);
  if (path == nullptr || *path == '\0') return std::shared_ptr<Faults>();
  return open(path);
}

Faults::~Faults() { ::munmap(table_, sizeof(Table)); }

void Faults::ask(std::string_view sender, MessageFault fault) { ++table_->of(sender).asked[static_cast<int>(fault)]; }

uint64_t Faults::done(MessageFault fault) const { return table_->done[static_cast<int>(fault)]; }

std::optional<MessageFault> Faults::take(std::string_view sender) {
  auto& place = table_->of(sender);
  for (int i = 0; i < kMessageFaults; ++i) {
    uint32_t asked = place.asked[i];
    while (asked > 0 && !place.asked[i].compare_exchange_weak(asked, asked - 1)) {
    }
    if (asked == 0) continue;
    ++table_->done[i];
    return static_cast<MessageFault>(i);
  }
  return std::nullopt;
}

}  // namespace tandem::wire
