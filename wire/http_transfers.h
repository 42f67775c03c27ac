// Concurrent requests to foreign servers on one own thread; results are polled as events.
//
// Connections are kept and used again. Redirects are not followed. The bytes of an answer that its owner has not taken
// are bounded: then its connection is read no further. An answer larger than `largest_answer` ends in kExhausted.
//
// Thread safety: all calls on the owner's thread, which waits on `wake_fd` beside its sockets.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "wire/http_client.h"

namespace tandem::wire {

struct TransferRequest {
  OutgoingRequest request;
  Duration first_byte = std::chrono::seconds(300);  // of the answer, from the start
  Duration silence = std::chrono::seconds(60);      // between two parts of the answer
};

struct TransferHead {
  int status = 0;
  std::map<std::string, std::string> headers;  // by their names in small letters; of repeated ones the last
};

// News of a request since the last call, in this order: its head, bytes, its end.
struct TransferEvent {
  uint64_t transfer = 0;
  std::optional<TransferHead> head;
  std::string bytes;
  bool ended = false;      // no event follows
  bool connected = false;  // of one that has ended: the server was there
  Status outcome;          // of one that has ended; errors as those of http_request
};

class HttpTransfers {
 public:
  static constexpr size_t kMostUntaken = size_t{1} << 20;  // bytes of one transfer

  // `clock` outlives it.
  static Result<std::unique_ptr<HttpTransfers>> create(const Clock& clock);
  ~HttpTransfers();  // ends all of them

  // Returns the number of the transfer, never 0.
  uint64_t start(TransferRequest request);
  // Cancels a transfer; no event of it follows. Unknown ones are ignored.
  void cancel(uint64_t transfer);
  // Pauses or resumes reading; bytes that were read are still reported.
  void hold(uint64_t transfer, bool held);

  int wake_fd() const;
  std::vector<TransferEvent> take_events();

 private:
  class Loop;
  explicit HttpTransfers(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
  uint64_t last_ = 0;
};

}  // namespace tandem::wire
