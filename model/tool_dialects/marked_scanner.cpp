// A call between marks, of DeepSeek and Kimi: a head with the name, or what the name stands in, and JSON.
#include <algorithm>

#include "base/text.h"
#include "model/tool_dialects/kimi_id.h"
#include "model/tool_dialects/object_watch.h"
#include "model/tool_dialects/scanners.h"

namespace tandem::model {

namespace {

constexpr auto kMarkedScannerNone = std::string_view::npos;

// Looks for one mark, and at each byte once.
class MarkSearch {
 public:
  explicit MarkSearch(std::string_view mark) : mark_(mark) {}

  // From `from` on, which is the same each time; npos where it is not there yet.
  size_t find(std::string_view text, size_t from) {
    if (found_ != kMarkedScannerNone) return found_;
    at_ = std::max(at_, from);
    found_ = text.find(mark_, at_);
    if (found_ == kMarkedScannerNone && text.size() >= at_)
      at_ = std::max(at_, text.size() - held_back(text.substr(at_), mark_));
    return found_;
  }

 private:
  std::string_view mark_;
  size_t at_ = 0, found_ = kMarkedScannerNone;
};

class MarkedScanner : public CallScanner {
 public:
  MarkedScanner(const CallMarks& marks, NamePlace place, std::shared_ptr<const OfferedTools> offered)
      : marks_(marks), place_(place), offered_(std::move(offered)) {}

  std::optional<size_t> advance(std::string_view text) override {
    const size_t begin = begin_.find(text, 0), middle = middle_.find(text, 0);
    const size_t stray = std::min(middle, any_end_.find(text, 0));
    if (begin == kMarkedScannerNone && stray == kMarkedScannerNone) return std::nullopt;
    if (stray < begin) return end_of_stray(text, stray);
    const size_t head = begin + marks_.begin.size();
    const size_t first = first_end_.find(text, head), next = next_.find(text, head);
    if (middle > std::min(first, next)) return first < next ? first + marks_.end.size() : next;
    if (middle == kMarkedScannerNone) return std::nullopt;
    const size_t body = middle + marks_.middle.size();
    read(text, head, middle, body);
    return length_of_call(text, body, {.at = std::min(first, next), .missing = next < first});
  }

 private:
  std::optional<size_t> end_of_stray(std::string_view text, size_t stray) {
    const size_t end = any_end_.find(text, stray), next = begin_.find(text, stray);
    if (end < next) return end + marks_.end.size();
    return next != kMarkedScannerNone ? std::optional(next) : std::nullopt;
  }

  // As end_of_marked_call says it of the whole text.
  std::optional<size_t> length_of_call(std::string_view text, size_t body, const MarkedEnd& plain) {
    const auto with_mark = [&](size_t at) { return std::optional(at + marks_.end.size()); };
    const auto told = plain.at == kMarkedScannerNone ? std::nullopt
                      : plain.missing                ? std::optional(plain.at)
                                                     : with_mark(plain.at);
    if (brace_ == kMarkedScannerNone) brace_ = text.find('{', body);
    if (brace_ > plain.at || brace_ == kMarkedScannerNone) return told;
    if (!object_) object_.emplace(brace_);
    const auto json_end = object_->advance(text);
    if (name_ && brace_ >= json_begin_) {
      const size_t known = json_end.value_or(text.size());
      if (known > brace_ + arguments_.size())
        arguments_.append(text.substr(brace_ + arguments_.size(), known - brace_ - arguments_.size()));
    }
    if (!json_end) return std::nullopt;
    const size_t behind = text.find_first_not_of(" \t\r\n`", *json_end);
    if (behind == kMarkedScannerNone) return std::nullopt;
    const auto rest = text.substr(behind);
    if (rest.starts_with(marks_.end)) return with_mark(behind);
    for (const auto mark : {marks_.begin, marks_.list_end})
      if (rest.starts_with(mark)) return behind;
    for (const auto mark : {marks_.end, marks_.begin, marks_.list_end})
      if (rest.size() < mark.size() && mark.starts_with(rest)) return std::nullopt;
    return told;
  }

  void read(std::string_view text, size_t head, size_t middle, size_t body) {
    if (name_ || no_name_) return;
    std::string_view name = trim(text.substr(head, middle - head));
    json_begin_ = body;
    if (place_ == NamePlace::kWithinId) {
      if (const auto meant = name_of_kimi_id(name, *offered_)) name_ = *meant;
      no_name_ = !name_;
      return;
    }
    if (name == "function") {
      // Which of the two notations it is shows in what comes next.
      const auto rest = text.substr(body, kMaxScannedName);
      const size_t brace = rest.find('{'), fence = rest.find("```json");
      if (fence == kMarkedScannerNone && brace == kMarkedScannerNone) {
        no_name_ = rest.size() == kMaxScannedName;
        return;
      }
      if (fence < brace) {
        name = rest.substr(0, fence);
        json_begin_ = body + fence;
      } else if (!trim(rest.substr(0, brace)).empty()) {
        no_name_ = true;
        return;
      }
    }
    name = unquoted(name);
    no_name_ = name.empty();
    if (!no_name_) name_ = std::string(name);
  }

  const CallMarks& marks_;
  NamePlace place_;
  std::shared_ptr<const OfferedTools> offered_;
  MarkSearch begin_{marks_.begin}, middle_{marks_.middle}, first_end_{marks_.end}, any_end_{marks_.end},
      next_{marks_.begin};
  size_t brace_ = kMarkedScannerNone, json_begin_ = 0;
  bool no_name_ = false;
  std::optional<ObjectWatch> object_;
};

}  // namespace

std::unique_ptr<CallScanner> make_marked_scanner(const CallMarks& marks, NamePlace name,
                                                 std::shared_ptr<const OfferedTools> offered) {
  return std::make_unique<MarkedScanner>(marks, name, std::move(offered));
}

}  // namespace tandem::model
