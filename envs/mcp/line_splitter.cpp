#include "envs/mcp/line_splitter.h"

#include <algorithm>
#include <utility>

namespace tandem::envs {

void LineSplitter::append(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto end = bytes.find('\n');
    const auto part = bytes.substr(0, end);
    const auto fitting = part.substr(0, limit_ + 1 - std::min(limit_ + 1, line_.size()));
    line_.append(fitting);
    if (const auto rest = part.substr(fitting.size()); !rest.empty()) {
      end_.append(rest.substr(rest.size() - std::min(rest.size(), kLineEnd)));
      if (end_.size() > kLineEnd) end_.erase(0, end_.size() - kLineEnd);
    }
    if (end == std::string_view::npos) return;
    bytes.remove_prefix(end + 1);
    line_ += std::exchange(end_, "");
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
