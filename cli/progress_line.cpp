#include "cli/progress_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "base/text.h"

namespace tandem::cli {

ProgressLine::ProgressLine() : tty_(::isatty(STDERR_FILENO) == 1), started_(clock_.now()) {}

void ProgressLine::show(const std::string& text) {
  const Time now = clock_.now();
  if (now < next_) return;
  next_ = now + (tty_ ? std::chrono::milliseconds(200) : std::chrono::seconds(10));
  fmt::print(stderr, "{}{}, {}{}", tty_ ? "\r\033[K" : "", text, format_seconds(to_seconds(now - started_)),
             tty_ ? "" : "\n");
}

void ProgressLine::wipe() const {
  if (tty_) fmt::print(stderr, "\r\033[K");
}

}  // namespace tandem::cli
