#include "model/tool_dialects/call_scanner.h"

#include <algorithm>

#include "base/text.h"
#include "model/tool_dialects/marked_calls.h"
#include "model/tool_dialects/marks.h"

namespace tandem::model {

namespace {

constexpr auto kNone = std::string_view::npos;
// A name that is longer is told when its call is over: looking for its end again and again would cost too much.
constexpr size_t kMaxName = 4096;

// A JSON object or list as it grows: where it ends, by its brackets outside of strings, and its members.
class ObjectWatch {
 public:
  // What begins at `begin` of the text.
  explicit ObjectWatch(size_t begin) : at_(begin), begin_(begin) {}

  // Its end, where it is there.
  std::optional<size_t> advance(std::string_view text) {
    for (; !end_ && at_ < text.size(); ++at_) step(text, text[at_]);
    return end_;
  }
  std::optional<std::string> string_of(std::string_view text, std::string_view key) const {
    const auto found = find(text, key);
    if (!found || !found->end || text[found->begin] != '"') return std::nullopt;
    const auto json = parse_json(text.substr(found->begin, *found->end - found->begin));
    return json && json->is_string() ? std::optional(json->get<std::string>()) : std::nullopt;
  }
  // An object as far as it goes.
  std::string_view object_of(std::string_view text, std::string_view key) const {
    const auto found = find(text, key);
    if (!found || text[found->begin] != '{') return {};
    return text.substr(found->begin, found->end.value_or(at_) - found->begin);
  }
  size_t begin() const { return begin_; }
  size_t seen() const { return at_; }

 private:
  struct Member {
    size_t key_begin = 0, key_end = 0, begin = 0;  // quotes included
    std::optional<size_t> end;
  };

  std::optional<Member> find(std::string_view text, std::string_view key) const {
    for (const Member& member : members_) {
      const auto written = text.substr(member.key_begin, member.key_end - member.key_begin);
      if (written.size() == key.size() + 2 && written.substr(1, key.size()) == key) return member;
    }
    return std::nullopt;
  }

  void step(std::string_view text, char c) {
    if (in_string_) {
      if (escaped_)
        escaped_ = false;
      else if (c == '\\')
        escaped_ = true;
      else if (c == '"')
        end_string();
      return;
    }
    const bool space = c == ' ' || c == '\n' || c == '\r' || c == '\t';
    if (space) return;
    const bool value_begins = depth_ == 1 && expects_value_ && text[begin_] == '{';
    if (value_begins) {
      members_.push_back({key_begin_, key_end_, at_, std::nullopt});
      expects_value_ = false;
    }
    if (c == '"') {
      in_string_ = true;
      if (depth_ == 1 && !value_begins) key_begin_ = at_;
      string_is_value_ = value_begins;
    } else if (c == '{' || c == '[') {
      ++depth_;
    } else if (c == '}' || c == ']') {
      if (--depth_ == 0)
        end_ = at_ + 1;
      else if (depth_ == 1 && !members_.empty() && !members_.back().end)
        members_.back().end = at_ + 1;
    } else if (c == ':' && depth_ == 1) {
      expects_value_ = true;
    } else if (c == ',' && depth_ == 1) {
      expects_value_ = false;
      if (!members_.empty() && !members_.back().end) members_.back().end = at_;
    }
  }

  void end_string() {
    in_string_ = false;
    if (depth_ != 1) return;
    if (string_is_value_)
      members_.back().end = at_ + 1;
    else
      key_end_ = at_ + 1;
  }

  size_t at_, begin_;
  int depth_ = 0;
  bool in_string_ = false, escaped_ = false, expects_value_ = false, string_is_value_ = false;
  size_t key_begin_ = 0, key_end_ = 0;
  std::vector<Member> members_;
  std::optional<size_t> end_;
};

// Name and arguments out of one object: the parts that are as they should be.
class JsonCallScanner : public CallScanner {
 public:
  explicit JsonCallScanner(std::initializer_list<std::string_view> keys) : keys_(keys) {}

 protected:
  // Where the value at `begin` ends.
  std::optional<size_t> watch(std::string_view text, size_t begin) {
    if (!object_) object_.emplace(begin);
    const auto end = object_->advance(text);
    if (text[begin] != '{') return end;
    if (!name_) name_ = object_->string_of(text, "name");
    if (name_ && name_->empty()) name_.reset();
    for (const auto key : keys_) {
      const auto arguments = object_->object_of(text, key);
      if (arguments.size() > arguments_.size()) arguments_.append(arguments.substr(arguments_.size()));
    }
    return end;
  }

 private:
  std::vector<std::string_view> keys_;
  std::optional<ObjectWatch> object_;
};

class HermesScanner : public JsonCallScanner {
 public:
  HermesScanner() : JsonCallScanner({"arguments"}) {}

  std::optional<size_t> advance(std::string_view text) override {
    constexpr std::string_view kOpen = kToolCall, kClose = kToolCallEnd;
    const size_t begin = text.find_first_not_of(" \t\r\n", kOpen.size());
    if (begin == kNone) return std::nullopt;
    if (text[begin] == '{' || text[begin] == '[') {
      const auto end = watch(text, begin);
      if (!end) return std::nullopt;
      const size_t close = text.find_first_not_of(" \t\r\n", *end);
      if (close == kNone || (text.size() - close < kClose.size() && kClose.starts_with(text.substr(close))))
        return std::nullopt;
      if (text.substr(close).starts_with(kClose)) return close + kClose.size();
    }
    from_ = std::max(from_, kOpen.size());
    const size_t close = text.find(kClose, from_);
    if (close == kNone) {
      from_ = std::max(from_, text.size() - held_back(text, kClose));
      return std::nullopt;
    }
    return close + kClose.size();
  }

 private:
  size_t from_ = 0;
};

class LlamaScanner : public JsonCallScanner {
 public:
  LlamaScanner() : JsonCallScanner({"parameters", "arguments"}) {}

  std::optional<size_t> advance(std::string_view text) override {
    if (begin_ < text.size()) begin_ = text.find_first_not_of(" \t\r\n;", begin_);
    if (begin_ == kNone) begin_ = text.size();
    if (begin_ >= text.size() || text[begin_] != '{') return std::nullopt;
    return watch(text, begin_);
  }

 private:
  size_t begin_ = 0;
};

// Values of dialects that write them as texts, as the JSON of an object of strings.
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

class CoderScanner : public TextValuesScanner {
 public:
  std::optional<size_t> advance(std::string_view text) override {
    // The end is that of the parser: the first closing tag behind the first end of a function.
    if (!function_end_) function_end_ = find(text, "</function>", kToolCall.size());
    const auto close = function_end_ ? find(text, kToolCallEnd, *function_end_) : std::nullopt;
    while (step(text.substr(0, close.value_or(text.size())))) {
    }
    if (!close) return std::nullopt;
    return *close + kToolCallEnd.size();
  }

 private:
  enum Phase : uint8_t { kFunction, kName, kBetween, kKey, kValue, kOver };

  std::optional<size_t> find(std::string_view text, std::string_view mark, size_t from) {
    searched_ = std::max(searched_, from);
    const size_t at = text.find(mark, searched_);
    if (at == kNone) {
      searched_ = std::max(searched_, text.size() - held_back(text, mark));
      return std::nullopt;
    }
    searched_ = at;
    return at;
  }

  // One part further; false where that needs more of the text, or there are no more parts.
  bool step(std::string_view text) {
    constexpr std::string_view kFunctionOpen = "<function=", kFunctionEnd = "</function>",
                               kParameter = "<parameter=", kParameterEnd = "</parameter>";
    if (phase_ == kOver || text.size() <= at_) return false;
    if (phase_ == kFunction || phase_ == kBetween) {
      const size_t begin = text.find_first_not_of(" \t\r\n", at_);
      if (begin == kNone) return false;
      const auto rest = text.substr(begin);
      const auto wanted = phase_ == kFunction ? kFunctionOpen : kParameter;
      if (rest.size() < wanted.size() && wanted.starts_with(rest)) return false;
      if (rest.starts_with(wanted)) {
        at_ = begin + wanted.size();
        phase_ = phase_ == kFunction ? kName : kKey;
        return true;
      }
      if (phase_ == kBetween && rest.size() < kFunctionEnd.size() && kFunctionEnd.starts_with(rest)) return false;
      if (phase_ == kBetween && rest.starts_with(kFunctionEnd)) end_arguments();
      phase_ = kOver;
      return false;
    }
    if (phase_ == kName || phase_ == kKey) {
      const size_t end = text.find('>', at_);
      if (end == kNone) {
        if (text.size() - at_ > kMaxName) phase_ = kOver;
        return false;
      }
      const auto word = trim(text.substr(at_, end - at_));
      at_ = end + 1;
      if (word.empty() && phase_ == kName) {
        phase_ = kOver;
        return false;
      }
      if (phase_ == kName)
        name_ = std::string(word);
      else
        begin_value(word);
      phase_ = phase_ == kName ? kBetween : kValue;
      value_begins_ = true;
      return true;
    }
    // A line end at each end of a value is not part of it.
    if (value_begins_ && text[at_] == '\n') ++at_;
    value_begins_ = false;
    const size_t end = text.find(kParameterEnd, at_);
    size_t to = end != kNone ? end : text.size() - held_back(text.substr(at_), kParameterEnd);
    const bool line_end = to > at_ && text[to - 1] == '\n';
    if (line_end) --to;
    add_to_value(text.substr(at_, to - at_));
    at_ = to;
    if (end == kNone) return false;
    end_value();
    at_ = end + kParameterEnd.size();
    phase_ = kBetween;
    return true;
  }

  Phase phase_ = kFunction;
  size_t at_ = kToolCall.size(), searched_ = 0;
  bool value_begins_ = false;
  std::optional<size_t> function_end_;
};

class GlmScanner : public TextValuesScanner {
 public:
  std::optional<size_t> advance(std::string_view text) override {
    while (!end_ && step(text)) {
    }
    return end_;
  }

 private:
  enum Phase : uint8_t { kName, kBetween, kKey, kBeforeValue, kValue, kOver };

  bool step(std::string_view text) {
    constexpr std::string_view kKeyOpen = "<arg_key>", kKeyEnd = "</arg_key>", kValueOpen = "<arg_value>",
                               kValueEnd = "</arg_value>";
    if (phase_ == kOver) return false;
    if (phase_ == kName) {
      const size_t end = std::min({text.find('\n', at_), text.find(kKeyOpen, at_), text.find(kToolCallEnd, at_)});
      if (end == kNone) {
        if (text.size() - at_ > kMaxName) phase_ = kOver;
        return false;
      }
      const auto name = trim(text.substr(at_, end - at_));
      at_ = end;
      phase_ = name.empty() || name.find('<') != kNone ? kOver : kBetween;
      if (phase_ == kBetween) name_ = std::string(name);
      return true;
    }
    if (phase_ == kBetween || phase_ == kBeforeValue) {
      const size_t begin = text.find_first_not_of(" \t\r\n", at_);
      if (begin == kNone) return false;
      const auto rest = text.substr(begin);
      const auto wanted = phase_ == kBetween ? kKeyOpen : kValueOpen;
      if (rest.starts_with(wanted)) {
        at_ = begin + wanted.size();
        phase_ = phase_ == kBetween ? kKey : kValue;
        return true;
      }
      if (phase_ == kBetween && rest.starts_with(kToolCallEnd)) {
        end_arguments();
        end_ = begin + kToolCallEnd.size();
        return false;
      }
      const bool undecided =
          (rest.size() < wanted.size() && wanted.starts_with(rest)) ||
          (phase_ == kBetween && rest.size() < kToolCallEnd.size() && kToolCallEnd.starts_with(rest));
      if (!undecided) phase_ = kOver;
      return false;
    }
    const auto mark = phase_ == kKey ? kKeyEnd : kValueEnd;
    const size_t end = text.find(mark, at_);
    if (phase_ == kKey) {
      if (end == kNone) return false;
      const std::string key(trim(text.substr(at_, end - at_)));
      at_ = end + mark.size();
      const bool twice = std::find(keys_.begin(), keys_.end(), key) != keys_.end();
      phase_ = twice ? kOver : kBeforeValue;
      if (twice) return false;
      keys_.push_back(key);
      begin_value(key);
      return true;
    }
    const size_t to = end != kNone ? end : text.size() - held_back(text.substr(at_), mark);
    add_to_value(text.substr(at_, to - at_));
    at_ = to;
    if (end == kNone) return false;
    end_value();
    at_ = end + mark.size();
    phase_ = kBetween;
    return true;
  }

  Phase phase_ = kName;
  size_t at_ = kToolCall.size();
  std::vector<std::string> keys_;
  std::optional<size_t> end_;
};

// Calls between marks: a head with the name, or what the name stands in, and JSON.
class MarkedScanner : public CallScanner {
 public:
  MarkedScanner(const CallMarks& marks, bool kimi) : marks_(marks), kimi_(kimi) {}

  std::optional<size_t> advance(std::string_view text) override {
    if (head_ == 0) {
      const size_t begin = text.find(marks_.begin, searched_);
      if (begin == kNone) {
        searched_ = text.size() - held_back(text, marks_.begin);
        return std::nullopt;
      }
      head_ = searched_ = begin + marks_.begin.size();
    }
    const size_t end = text.find(marks_.end, searched_);
    const size_t known = end != kNone ? end : std::max(searched_, text.size() - held_back(text, marks_.end));
    read(text.substr(0, known));
    searched_ = known;
    if (end == kNone) return std::nullopt;
    return end + marks_.end.size();
  }

 private:
  void read(std::string_view text) {
    if (!name_) read_name(text);
    if (!name_) return;
    if (!object_) {
      const size_t begin = text.find_first_not_of(" \t\r\n", body_);
      if (begin == kNone || text[begin] != '{') return;
      object_.emplace(begin);
    }
    const size_t end = object_->advance(text).value_or(text.size());
    arguments_.append(text.substr(object_->begin() + arguments_.size(), end - object_->begin() - arguments_.size()));
  }

  void read_name(std::string_view text) {
    if (body_ == kNone) return;
    const size_t middle = text.find(marks_.middle, head_);
    if (middle == kNone || text.size() - middle > kMaxName) {
      if (text.size() - head_ > kMaxName) body_ = kNone;
      return;
    }
    std::string_view name = trim(text.substr(head_, middle - head_));
    body_ = middle + marks_.middle.size();
    if (kimi_) {
      name = name.substr(0, name.rfind(':'));
      if (name.starts_with("functions.")) name.remove_prefix(std::string_view("functions.").size());
    } else if (name == "function") {
      // Which of the two notations it is shows in what comes next.
      const size_t brace = text.find_first_not_of(" \t\r\n", body_);
      if (brace == kNone) return;
      const size_t fence = text.find("```json", body_);
      if (fence == kNone) return;
      name = trim(text.substr(body_, fence - body_));
      body_ = fence + std::string_view("```json").size();
    }
    if (!name.empty()) name_ = std::string(name);
  }

  const CallMarks& marks_;
  bool kimi_;
  size_t head_ = 0, body_ = 0, searched_ = 0;
  std::optional<ObjectWatch> object_;
};

}  // namespace

size_t held_back(std::string_view text, std::string_view mark) {
  for (size_t length = std::min(text.size(), mark.size() - 1); length > 0; --length)
    if (mark.starts_with(text.substr(text.size() - length))) return length;
  return 0;
}

std::vector<std::string_view> opening_marks(ToolDialect dialect) {
  switch (dialect) {
    case ToolDialect::kHermes:
    case ToolDialect::kQwen3Coder:
    case ToolDialect::kGlm4:
      return {kToolCall};
    case ToolDialect::kLlama3:
      return {kPythonTag};
    case ToolDialect::kDeepseekV3:
    case ToolDialect::kDeepseekV31:
      return {kDeepseekMarks.list_begin, kDeepseekMarks.begin};
    case ToolDialect::kKimiK2:
      return {kKimiMarks.list_begin, kKimiMarks.begin};
  }
  return {};
}

std::unique_ptr<CallScanner> make_call_scanner(ToolDialect dialect) {
  switch (dialect) {
    case ToolDialect::kHermes:
      return std::make_unique<HermesScanner>();
    case ToolDialect::kQwen3Coder:
      return std::make_unique<CoderScanner>();
    case ToolDialect::kGlm4:
      return std::make_unique<GlmScanner>();
    case ToolDialect::kLlama3:
      return std::make_unique<LlamaScanner>();
    case ToolDialect::kDeepseekV3:
    case ToolDialect::kDeepseekV31:
      return std::make_unique<MarkedScanner>(kDeepseekMarks, false);
    case ToolDialect::kKimiK2:
      return std::make_unique<MarkedScanner>(kKimiMarks, true);
  }
  return nullptr;
}

}  // namespace tandem::model
