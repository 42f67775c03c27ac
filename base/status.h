// What went wrong, in one sentence a user can act on.
//
// A Status names what was found, where (`at`), and what would be right (`hint`). The innermost code knows the fact,
// each layer may add where it was; nobody logs and returns the same error. Values: copy, compare, print.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace tandem {

enum class Code : uint8_t {
  kOk,
  kInvalid,      // the input is wrong; the caller must change it
  kNotFound,     // a named thing does not exist
  kExists,       // a thing is there that must not be
  kExhausted,    // a bounded resource is full; later may work
  kUnavailable,  // the other side is not there; elsewhere or later may work
  kDeadline,     // it took longer than was allowed
  kCorrupt,      // bytes are not what was written
  kUnfit,        // this machine lacks what is needed
  kCancelled,    // somebody asked to stop
  kInternal,     // a bug of ours
};
std::string_view to_string(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // ok
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  static Status invalid(std::string message) { return {Code::kInvalid, std::move(message)}; }
  static Status not_found(std::string message) { return {Code::kNotFound, std::move(message)}; }
  static Status exists(std::string message) { return {Code::kExists, std::move(message)}; }
  static Status exhausted(std::string message) { return {Code::kExhausted, std::move(message)}; }
  static Status unavailable(std::string message) { return {Code::kUnavailable, std::move(message)}; }
  static Status deadline(std::string message) { return {Code::kDeadline, std::move(message)}; }
  static Status corrupt(std::string message) { return {Code::kCorrupt, std::move(message)}; }
  static Status unfit(std::string message) { return {Code::kUnfit, std::move(message)}; }
  static Status cancelled(std::string message) { return {Code::kCancelled, std::move(message)}; }
  static Status internal(std::string message) { return {Code::kInternal, std::move(message)}; }
  // From errno: "WHAT: No such file or directory".
  static Status from_errno(std::string_view what, int error);

  // "PLACE: message"; `line` and `column` count from 1, 0 leaves them out.
  Status at(std::string_view place, int line = 0, int column = 0) &&;
  // What the user can do about it; shown on a line of its own.
  Status hint(std::string text) &&;

  bool ok() const { return code_ == Code::kOk; }
  explicit operator bool() const { return ok(); }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }
  const std::string& hint() const { return hint_; }
  std::string to_string() const;  // message and hint

  void value() const {}  // so that TRY takes a Status as well as a Result
  const Status& error() const { return *this; }

  friend bool operator==(const Status&, const Status&) = default;

 private:
  Code code_ = Code::kOk;
  std::string message_;
  std::string hint_;
};

template <typename T>
using Result = tl::expected<T, Status>;

// Converts to a failed Status or Result of any type, so one macro serves both.
struct Failure {
  Status status;
  operator Status() && { return std::move(status); }
  template <typename T>
  operator Result<T>() && {
    return tl::unexpected<Status>(std::move(status));
  }
};
inline Failure fail(Status status) { return {std::move(status)}; }

// The value of a Result, or return its error from the enclosing function. Checks a Status too. First in its braces.
#define TRY(...)                                                               \
  ({                                                                           \
    auto try_outcome_ = (__VA_ARGS__);                                         \
    if (!try_outcome_) return ::tandem::fail(std::move(try_outcome_).error()); \
    std::move(try_outcome_).value();                                           \
  })

}  // namespace tandem
