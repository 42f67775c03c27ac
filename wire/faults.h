// Injects message faults, to test what a run survives (`tandem chaos`): the next message that a process sends is lost,
// delayed, duplicated or corrupted.
//
// The injector and the sender share a file in memory. A fault that is requested of a process outlives it: its successor
// takes it. Without such a file no faults are injected.
//
// Thread safety: all methods, from any thread and process.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/file.h"

namespace tandem::wire {

enum class MessageFault : uint8_t { kDrop, kDelay, kDuplicate, kCorrupt };
constexpr int kMessageFaults = 4;
constexpr auto kMessageDelay = std::chrono::milliseconds(1500);

class Faults {
 public:
  // The environment variable that names the file to the processes of a run.
  static constexpr const char* kVariable = "TANDEM_FAULTS";

  static Result<std::shared_ptr<Faults>> create(const fs::path& path);
  static Result<std::shared_ptr<Faults>> open(const fs::path& path);
  // The file that kVariable names; null where it is not set.
  static Result<std::shared_ptr<Faults>> of_environment();
  ~Faults();
  Faults(const Faults&) = delete;
  Faults& operator=(const Faults&) = delete;

  // Requests a fault of the next message of `sender`.
  void ask(std::string_view sender, MessageFault fault);
  // How many requested faults have been injected.
  uint64_t done(MessageFault fault) const;
  // Takes the fault for a message that is about to be sent. A fault hits one message.
  std::optional<MessageFault> take(std::string_view sender);

 private:
  struct Table;
  explicit Faults(Table* table) : table_(table) {}
  Table* table_;
};

}  // namespace tandem::wire
