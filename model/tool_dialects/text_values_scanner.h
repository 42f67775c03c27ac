// Values of dialects that write them as texts, as the JSON of an object of strings.
#pragma once

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "model/tool_dialects/call_scanner.h"

namespace tandem::model {

// One text on its way into a JSON object, in parts that may be cut anywhere.
class TextValue {
 public:
  void begin(std::string_view key, std::string& json) {
    json += json.empty() ? "{" : ",";
    json += dump_json(Json(std::string(key))) + ":\"";
  }
  // Whole characters; what is left of one comes with the next part.
  void add(std::string_view part, std::string& json) {
    pending_ += part;
    size_t whole = pending_.size();
    for (size_t back = 1; back <= std::min<size_t>(4, pending_.size()); ++back) {
      const auto byte = static_cast<unsigned char>(pending_[pending_.size() - back]);
      if ((byte & 0xC0) == 0x80) continue;
      const size_t length = byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
      if (length > back) whole = pending_.size() - back;
      break;
    }
    write(pending_.substr(0, whole), json);
    pending_.erase(0, whole);
  }
  void end(std::string& json) {
    write(std::exchange(pending_, {}), json);
    json += '"';
  }

 private:
  static void write(const std::string& characters, std::string& json) {
    const std::string quoted = dump_json(Json(characters));
    json.append(quoted, 1, quoted.size() - 2);
  }
  std::string pending_;
};

class TextValuesScanner : public CallScanner {
 protected:
  void begin_value(std::string_view key) { value_.begin(key, arguments_); }
  void add_to_value(std::string_view part) { value_.add(part, arguments_); }
  void end_value() { value_.end(arguments_); }
  void end_arguments() { arguments_ += arguments_.empty() ? "{}" : "}"; }

 private:
  TextValue value_;
};

}  // namespace tandem::model
