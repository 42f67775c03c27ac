#include "serve/stop_texts.h"

#include <algorithm>
#include <utility>

namespace tandem::serve {

std::string StopTexts::push(std::string_view piece) {
  if (stops_.empty()) return std::string(piece);
  pending_ += piece;
  size_t first = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t at = pending_.find(stop);
    if (at == std::string::npos || at >= first) continue;
    first = at;
    found_ = stop;
  }
  if (first != std::string::npos) return pending_.substr(0, first);
  size_t held = 0;
  for (const std::string& stop : stops_) {
    for (size_t length = std::min(stop.size() - 1, pending_.size()); length > held; --length) {
      if (pending_.ends_with(std::string_view(stop).substr(0, length))) held = length;
    }
  }
  std::string certain = pending_.substr(0, pending_.size() - held);
  pending_.erase(0, certain.size());
  return certain;
}

std::string StopTexts::finish() { return std::exchange(pending_, {}); }

}  // namespace tandem::serve
