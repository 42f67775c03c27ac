// Faults of messages that are asked for, to see what a run survives (`tandem chaos`): the next message that a process
// sends is lost, late, doubled or damaged.
//
// Who asks and who sends share a file in memory; what is asked of a process is kept for the one that takes its place.
// A process without such a file knows nothing of this.
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
  // That of kVariable; null where it is not set.
  static Result<std::shared_ptr<Faults>> of_environment();
  ~Faults();
  Faults(const Faults&) = delete;
  Faults& operator=(const Faults&) = delete;

  // The next message of `sender`.
  void ask(std::string_view sender, MessageFault fault);
  // Of all that were asked for, how many were done.
  uint64_t done(MessageFault fault) const;
  // What is to happen to a message that is about to be sent. A fault is taken by one message.
  std::optional<MessageFault> take(std::string_view sender);

 private:
  struct Table;
  explicit Faults(Table* table) : table_(table) {}
  Table* table_;
};

}  // namespace tandem::wire
