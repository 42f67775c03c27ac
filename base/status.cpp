#include "base/status.h"

#include <fmt/format.h>

#include <cstring>

namespace tandem {

std::string_view to_string(Code code) {
  switch (code) {
    case Code::kOk:
      return "ok";
    case Code::kInvalid:
      return "invalid";
    case Code::kNotFound:
      return "not_found";
    case Code::kExists:
      return "exists";
    case Code::kExhausted:
      return "exhausted";
    case Code::kUnavailable:
      return "unavailable";
    case Code::kDeadline:
      return "deadline";
    case Code::kCorrupt:
      return "corrupt";
    case Code::kUnfit:
      return "unfit";
    case Code::kCancelled:
      return "cancelled";
    case Code::kInternal:
      return "internal";
  }
  return "unknown";
}

Status Status::from_errno(std::string_view what, int error) {
  Code code = Code::kUnavailable;
  if (error == ENOENT) code = Code::kNotFound;
  if (error == EEXIST) code = Code::kExists;
  if (error == ENOSPC || error == EDQUOT || error == EMFILE || error == ENFILE || error == ENOMEM)
    code = Code::kExhausted;
  return {code, fmt::format("{}: {}", what, std::strerror(error))};
}

Status Status::at(std::string_view place, int line, int column) && {
  std::string where(place);
  if (line > 0) where += fmt::format(":{}", line);
  if (line > 0 && column > 0) where += fmt::format(":{}", column);
  message_ = where + ": " + message_;
  return std::move(*this);
}

Status Status::hint(std::string text) && {
  hint_ = std::move(text);
  return std::move(*this);
}

std::string Status::to_string() const { return hint_.empty() ? message_ : message_ + "\n  hint: " + hint_; }

}  // namespace tandem
