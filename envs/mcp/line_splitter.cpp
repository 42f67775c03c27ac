#include "envs/mcp/line_splitter.h"

#include <algorithm>

namespace tandem::envs {

void LineSplitter::append(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto end = bytes.find('\n');
    const auto part = bytes.substr(0, end);
    line_.append(part.substr(0, limit_ + 1 - std::min(limit_ + 1, line_.size())));
    if (end == std::string_view::npos) return;
    bytes.remove_prefix(end + 1);
    if (line_.find_first_not_of(" \t\r") != std::string::npos) lines_.push_back(std::move(line_));
    line_.clear();
  }
}

std::optional<std::string> LineSplitter::next() {
  if (lines_.empty()) return std::nullopt;
  auto line = std::move(lines_.front());
  lines_.pop_front();
  return line;
}

}  // namespace tandem::envs
