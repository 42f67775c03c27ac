// JSON as text: the one file that sees nlohmann's library.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/lfs_pointer.h"

namespace tandem {

namespace {

// Builds a Json of what the reader meets. The first trouble that is not one of syntax is kept, and reading goes on, so
// that an error of syntax is told first.
class Builder {
 public:
  explicit Builder(bool strict) : strict_(strict) {}

  bool null() { return put({}); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(int64_t value) { return put(value); }
  bool number_unsigned(uint64_t value) { return put(value); }
  // Whole numbers beyond 64 bits come here too.
  bool number_float(double value, const std::string& digits) {
    return put(digits.find_first_of(".eE") == std::string::npos ? Json::whole_number(digits) : Json(value));
  }
  bool string(std::string& value) { return put(std::move(value)); }
  bool binary(nlohmann::json::binary_t&) { return false; }
  bool start_object(size_t) { return open(Json::object()); }
  bool start_array(size_t) { return open(Json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& value) {
    key_ = std::move(value);
    if (strict_ && open_.back()->contains(key_) && trouble.empty())
      trouble = fmt::format("key \"{}\" stands twice in one object", key_);
    return true;
  }
  bool parse_error(size_t at, const std::string&, const nlohmann::json::exception& error) {
    const std::string_view what = error.what();  // "[json.exception.parse_error.101] parse error at ...: syntax ..."
    failure = what.substr(std::min(what.find("] "), what.size() - 2) + 2);
    out_of_range = dynamic_cast<const nlohmann::json::out_of_range*>(&error) != nullptr;
    place = at;
    return false;
  }

  Json root;
  std::string trouble, failure;
  bool out_of_range = false;
  size_t place = 0;  // in bytes from 1, of what could not be read

 private:
  size_t most_deep() const { return strict_ ? 64 : 4096; }

  Json* add(Json value) {
    if (open_.empty()) return &(root = std::move(value));
    Json& inside = *open_.back();
    if (inside.is_object()) return &(inside[key_] = std::move(value));
    inside.push_back(std::move(value));
    return &inside.back();
  }
  bool put(Json value) {
    add(std::move(value));
    return true;
  }
  bool open(Json value) {
    // What is too deep is read to its end, and not kept.
    if (open_.size() >= most_deep()) {
      if (trouble.empty()) trouble = fmt::format("nested deeper than {}", most_deep());
      deeper_.push_back(std::make_unique<Json>(std::move(value)));
      open_.push_back(deeper_.back().get());
      return true;
    }
    open_.push_back(add(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    if (open_.size() >= most_deep()) deeper_.pop_back();
    return true;
  }

  const bool strict_;
  std::vector<Json*> open_;
  std::vector<std::unique_ptr<Json>> deeper_;
  std::string key_;
};

// "syntax error while parsing value - invalid literal; last read: 'no'; expected .." without the parser's own words.
std::string in_plain_words(std::string_view reason) {
  if (const auto dash = reason.find(" - "); reason.starts_with("syntax error") && dash != std::string_view::npos)
    reason = reason.substr(dash + 3);
  std::string text(reason);
  const auto replace = [&](std::string_view from, std::string_view to) {
    if (const auto at = text.find(from); at != std::string::npos) text.replace(at, from.size(), to);
  };
  replace("unexpected end of input", "the text ends here");
  replace("invalid literal; last read: ", "cannot read ");
  replace("; last read: ", " at ");
  replace("; expected ", ", expected ");
  replace("string literal", "a text in double quotes");
  replace("or a literal", "or another value");
  replace("expected end of input", "expected the end");
  return text;
}

}  // namespace

Result<Json> parse_json(std::string_view text) {
  TRY(check_not_lfs_pointer(text));
  Builder builder(true);
  if (nlohmann::json::sax_parse(text, &builder)) {
    if (!builder.trouble.empty()) return fail(Status::invalid("JSON: " + builder.trouble));
    return std::move(builder.root);
  }
  if (builder.out_of_range) return fail(Status::invalid("JSON: " + builder.failure));
  const auto before = text.substr(0, std::min(builder.place > 0 ? builder.place - 1 : 0, text.size()));
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const auto line_start = before.rfind('\n');
  const auto column = before.size() - (line_start == std::string_view::npos ? 0 : line_start + 1) + 1;
  // Python's json module writes these, and JSON has none of them.
  for (const std::string_view word : {"NaN", "Infinity"}) {
    if (text.substr(before.size()).starts_with(word))
      return fail(Status::invalid(fmt::format(
          "not JSON at line {} column {}: JSON has no {}; write a finite number or null", line, column, word)));
  }
  std::string_view reason = builder.failure;
  if (const auto colon = reason.find(": "); colon != std::string_view::npos) reason = reason.substr(colon + 2);
  return fail(Status::invalid(fmt::format("not JSON at line {} column {}: {}", line, column, in_plain_words(reason))));
}

Json Json::parse(std::string_view text) {
  Builder builder(false);
  if (!nlohmann::json::sax_parse(text, &builder)) throw exception(builder.failure);
  if (!builder.trouble.empty()) throw exception(builder.trouble);
  return std::move(builder.root);
}

namespace {

class Writer {
 public:
  Writer(int indent, char fill, bool ascii, Json::error_handler_t errors)
      : indent_(indent), fill_(fill), ascii_(ascii), errors_(errors) {}

  void write(const Json& value, int depth) {
    switch (value.type()) {
      case Json::value_t::null:
        text += "null";
        break;
      case Json::value_t::boolean:
        text += value.get<bool>() ? "true" : "false";
        break;
      case Json::value_t::number_integer:
        fmt::format_to(std::back_inserter(text), "{}", value.get<int64_t>());
        break;
      case Json::value_t::number_unsigned:
        fmt::format_to(std::back_inserter(text), "{}", value.get<uint64_t>());
        break;
      case Json::value_t::number_float:
        write_real(value.get<double>());
        break;
      case Json::value_t::number_digits:
        text += value.digits();
        break;
      case Json::value_t::string:
        write_text(value.get_ref<const std::string&>());
        break;
      case Json::value_t::array:
        write_array(value, depth);
        break;
      case Json::value_t::object:
        write_object(value, depth);
        break;
    }
  }

  std::string text;

 private:
  void new_line(int depth) {
    if (indent_ < 0) return;
    text += '\n';
    text.append(static_cast<size_t>(indent_ * depth), fill_);
  }

  void write_array(const Json& value, int depth) {
    if (value.empty()) {
      text += "[]";
      return;
    }
    text += '[';
    bool first = true;
    for (const Json& item : value) {
      if (!std::exchange(first, false)) text += ',';
      new_line(depth + 1);
      write(item, depth + 1);
    }
    new_line(depth);
    text += ']';
  }

  void write_object(const Json& value, int depth) {
    if (value.empty()) {
      text += "{}";
      return;
    }
    text += '{';
    bool first = true;
    for (auto member = value.begin(); member != value.end(); ++member) {
      if (!std::exchange(first, false)) text += ',';
      new_line(depth + 1);
      write_text(member.key());
      text += indent_ < 0 ? ":" : ": ";
      write(*member, depth + 1);
    }
    new_line(depth);
    text += '}';
  }

  // The shortest digits that read back as the same double, always with a sign that it is no whole number.
  void write_real(double value) {
    if (!std::isfinite(value)) {
      text += "null";
      return;
    }
    char digits[64];
    text.append(digits, nlohmann::detail::to_chars(digits, digits + sizeof digits, value));
  }

  void write_text(const std::string& value) {
    const bool plain = std::none_of(value.begin(), value.end(), [](char c) {
      return static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e || c == '"' || c == '\\';
    });
    if (plain) {
      text.append(1, '"').append(value).append(1, '"');
      return;
    }
    const auto handler = errors_ == Json::error_handler_t::strict ? nlohmann::json::error_handler_t::strict
                                                                  : nlohmann::json::error_handler_t::replace;
    try {
      text += nlohmann::json(value).dump(-1, ' ', ascii_, handler);
    } catch (const nlohmann::json::exception&) {
      throw Json::exception("a string is not UTF-8");
    }
  }

  const int indent_;
  const char fill_;
  const bool ascii_;
  const Json::error_handler_t errors_;
};

}  // namespace

std::string Json::dump(int indent, char fill, bool ascii, error_handler_t errors) const {
  Writer writer(indent, fill, ascii, errors);
  writer.write(*this, 0);
  return std::move(writer.text);
}

}  // namespace tandem
