// A call between marks, of DeepSeek and Kimi: a head with the name, or what the name stands in, and JSON.
#include <algorithm>

#include "base/text.h"
#include "model/tool_dialects/object_watch.h"
#include "model/tool_dialects/scanners.h"

namespace tandem::model {

namespace {

constexpr auto kMarkedScannerNone = std::string_view::npos;

class MarkedScanner : public CallScanner {
 public:
  MarkedScanner(const CallMarks& marks, NamePlace place) : marks_(marks), place_(place) {}

  std::optional<size_t> advance(std::string_view text) override {
    if (head_ == 0) {
      const size_t begin = text.find(marks_.begin, searched_);
      if (begin == kMarkedScannerNone) {
        searched_ = text.size() - held_back(text, marks_.begin);
        return std::nullopt;
      }
      head_ = searched_ = begin + marks_.begin.size();
    }
    const size_t end = text.find(marks_.end, searched_);
    const size_t known =
        end != kMarkedScannerNone ? end : std::max(searched_, text.size() - held_back(text, marks_.end));
    read(text.substr(0, known));
    searched_ = known;
    if (end == kMarkedScannerNone) return std::nullopt;
    return end + marks_.end.size();
  }

 private:
  void read(std::string_view text) {
    if (!name_) read_name(text);
    if (!name_) return;
    if (!object_) {
      const size_t begin = text.find_first_not_of(" \t\r\n", body_);
      if (begin == kMarkedScannerNone || text[begin] != '{') return;
      object_.emplace(begin);
    }
    const size_t end = object_->advance(text).value_or(text.size());
    arguments_.append(text.substr(object_->begin() + arguments_.size(), end - object_->begin() - arguments_.size()));
  }

  void read_name(std::string_view text) {
    if (body_ == kMarkedScannerNone) return;
    const size_t middle = text.find(marks_.middle, head_);
    if (middle == kMarkedScannerNone || text.size() - middle > kMaxScannedName) {
      if (text.size() - head_ > kMaxScannedName) body_ = kMarkedScannerNone;
      return;
    }
    std::string_view name = trim(text.substr(head_, middle - head_));
    body_ = middle + marks_.middle.size();
    if (place_ == NamePlace::kWithinId) {
      name = name.substr(0, name.rfind(':'));
      if (name.starts_with("functions.")) name.remove_prefix(std::string_view("functions.").size());
    } else if (name == "function") {
      // Which of the two notations it is shows in what comes next.
      const size_t brace = text.find_first_not_of(" \t\r\n", body_);
      if (brace == kMarkedScannerNone) return;
      const size_t fence = text.find("```json", body_);
      if (fence == kMarkedScannerNone) return;
      name = trim(text.substr(body_, fence - body_));
      body_ = fence + std::string_view("```json").size();
    }
    if (!name.empty()) name_ = std::string(name);
  }

  const CallMarks& marks_;
  NamePlace place_;
  size_t head_ = 0, body_ = 0, searched_ = 0;
  std::optional<ObjectWatch> object_;
};

}  // namespace

std::unique_ptr<CallScanner> make_marked_scanner(const CallMarks& marks, NamePlace name) {
  return std::make_unique<MarkedScanner>(marks, name);
}

}  // namespace tandem::model
