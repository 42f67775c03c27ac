// Values of dialects that write them as texts, as the JSON of an object of strings.
#pragma once

#include <algorithm>

#include "base/json.h"
#include "model/tool_dialects/call_scanner.h"

namespace tandem::model {

class TextValuesScanner : public CallScanner {
 protected:
  void begin_value(std::string_view key) {
    arguments_ += arguments_.empty() ? "{" : ",";
    arguments_ += dump_json(Json(std::string(key))) + ":\"";
  }
  // Whole characters of a value; what is left of one comes with the next part.
  void add_to_value(std::string_view part) {
    pending_ += part;
    size_t whole = pending_.size();
    for (size_t back = 1; back <= std::min<size_t>(4, pending_.size()); ++back) {
      const auto byte = static_cast<unsigned char>(pending_[pending_.size() - back]);
      if ((byte & 0xC0) == 0x80) continue;
      const size_t length = byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
      if (length > back) whole = pending_.size() - back;
      break;
    }
    write(pending_.substr(0, whole));
    pending_.erase(0, whole);
  }
  void end_value() {
    write(pending_);
    pending_.clear();
    arguments_ += '"';
  }
  void end_arguments() { arguments_ += arguments_.empty() ? "{}" : "}"; }

 private:
  void write(const std::string& characters) {
    const std::string quoted = dump_json(Json(characters));
    arguments_.append(quoted, 1, quoted.size() - 2);
  }
  std::string pending_;
};

}  // namespace tandem::model
