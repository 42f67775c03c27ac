#include "model/tool_dialects/object_watch.h"

#include "base/json.h"

namespace tandem::model {

std::optional<size_t> ObjectWatch::advance(std::string_view text) {
  for (; !end_ && at_ < text.size(); ++at_) step(text, text[at_]);
  return end_;
}

std::optional<std::string> ObjectWatch::string_of(std::string_view text, std::string_view key) const {
  const auto found = find(text, key);
  if (!found || !found->end || text[found->begin] != '"') return std::nullopt;
  const auto json = parse_json(text.substr(found->begin, *found->end - found->begin));
  return json && json->is_string() ? std::optional(json->get<std::string>()) : std::nullopt;
}

std::vector<ObjectWatch::Entry> ObjectWatch::entries(std::string_view text) const {
  std::vector<Entry> entries;
  for (const Member& member : members_) {
    const bool quoted = member.key_end >= member.key_begin + 2;
    entries.push_back({quoted ? text.substr(member.key_begin + 1, member.key_end - member.key_begin - 2) : "",
                       member.begin, member.end});
  }
  return entries;
}

std::string_view ObjectWatch::object_of(std::string_view text, std::string_view key) const {
  const auto found = find(text, key);
  if (!found || text[found->begin] != '{') return {};
  return text.substr(found->begin, found->end.value_or(at_) - found->begin);
}

std::optional<ObjectWatch::Member> ObjectWatch::find(std::string_view text, std::string_view key) const {
  for (const Member& member : members_) {
    const auto written = text.substr(member.key_begin, member.key_end - member.key_begin);
    if (written.size() == key.size() + 2 && written.substr(1, key.size()) == key) return member;
  }
  return std::nullopt;
}

void ObjectWatch::step(std::string_view text, char c) {
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

void ObjectWatch::end_string() {
  in_string_ = false;
  if (depth_ != 1) return;
  if (string_is_value_)
    members_.back().end = at_ + 1;
  else
    key_end_ = at_ + 1;
}

}  // namespace tandem::model
