// A JSON object or list as it grows: where it ends, by its brackets outside of strings, and its members.
//
// Each byte is looked at once. Thread safety: none.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::model {

class ObjectWatch {
 public:
  // Watches the object that begins at `begin` of the text.
  explicit ObjectWatch(size_t begin) : at_(begin), begin_(begin) {}

  // Its end, where it is there.
  std::optional<size_t> advance(std::string_view text);
  // The string that a key has, once it is whole.
  std::optional<std::string> string_of(std::string_view text, std::string_view key) const;
  // The object that a key has, as far as it goes.
  std::string_view object_of(std::string_view text, std::string_view key) const;
  size_t begin() const { return begin_; }
  std::optional<size_t> end() const { return end_; }
  // The members whose values have begun, in order.
  struct Entry {
    std::string_view key;  // as it is written, without quotes
    size_t begin = 0;      // of the value
    std::optional<size_t> end;
  };
  std::vector<Entry> entries(std::string_view text) const;

 private:
  struct Member {
    size_t key_begin = 0, key_end = 0, begin = 0;  // quotes included
    std::optional<size_t> end;
  };

  std::optional<Member> find(std::string_view text, std::string_view key) const;
  void step(std::string_view text, char c);
  void end_string();

  size_t at_, begin_;
  int depth_ = 0;
  bool in_string_ = false, escaped_ = false, expects_value_ = false, string_is_value_ = false;
  size_t key_begin_ = 0, key_end_ = 0;
  std::vector<Member> members_;
  std::optional<size_t> end_;
};

}  // namespace tandem::model
