// Messages over a stream socket: length, then bytes; bounded in size and in time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"
#include "envs/task.h"
#include "envs/tools/session.h"

namespace tandem::envs {

inline constexpr size_t kLargestFrame = size_t{64} << 20;
inline constexpr double kLongestSeconds = 1e9;

// kDeadline when `deadline` passes first, kUnavailable when the other side is gone, kCorrupt for a length out of
// bounds. After any error the stream is not usable any more.
Status send_frame(int socket, std::string_view bytes, Time deadline);
Result<std::string> receive_frame(int socket, Time deadline);

// Fields of a message, in the byte order of this machine: both ends are on it.
void put_number(std::string& bytes, uint64_t number);
// To the nearest millisecond; what is not above 0 is 0, and times above kLongestSeconds are that.
void put_seconds(std::string& bytes, double seconds);
void put_text(std::string& bytes, std::string_view text);
void put_files(std::string& bytes, const Files& files);
void put_session(std::string& bytes, const Session& session);

// Takes fields from the front of a message; a message that is too short or too long is kCorrupt.
class FieldReader {
 public:
  explicit FieldReader(std::string_view bytes) : bytes_(bytes) {}
  Result<uint64_t> number();
  // As put_seconds wrote it; kCorrupt above kLongestSeconds.
  Result<double> seconds();
  Result<std::string> text();
  Result<Files> files();
  Result<Session> session();
  std::string_view rest() const { return bytes_; }

 private:
  std::string_view bytes_;
};

}  // namespace tandem::envs
