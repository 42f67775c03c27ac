// Fields of a message as bytes: numbers, times, digests, texts, files and sessions, in the byte order of this machine.
//
// Writer and reader are on one machine. Decoding accepts untrusted bytes. Values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/digest.h"
#include "base/status.h"
#include "envs/sandbox/files.h"
#include "envs/tools/session.h"

namespace tandem::envs {

inline constexpr double kLongestSeconds = 1e9;

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
  Result<Digest> digest();  // two numbers, the low half first
  Result<std::string> text();
  Result<Files> files();
  Result<Session> session();
  std::string_view rest() const { return bytes_; }

 private:
  std::string_view bytes_;
};

}  // namespace tandem::envs
