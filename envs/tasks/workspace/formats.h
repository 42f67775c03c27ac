// The file formats that tasks use, each on one side of the split, with what is needed to write and to edit them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "envs/tasks/workspace/parts.h"

namespace tandem::envs {

struct Entry {
  std::string key, value;
};

// Named values, one a line: configuration files and what is used as such.
struct SettingsFormat {
  std::string_view extension;
  bool held_out;
  bool large_keys;          // KEY rather than key
  std::string_view open;    // before the first line; {title} is filled
  std::string_view indent;  // before each entry
  std::string_view before_key, between, after_value;
  std::string_view joiner;  // between entries
  std::string_view close;
  std::string_view quote;  // around values that are not numbers
  bool quote_numbers;

  std::string key(std::string_view name) const;                            // as it is written in this format
  std::string entry(std::string_view name, std::string_view value) const;  // "port = 80": unique where keys are
  std::string render(std::string_view title, std::span<const Entry> entries) const;
};
std::span<const SettingsFormat> settings_formats();

// Lines of text for people.
struct NotesFormat {
  std::string_view extension;
  bool held_out;
  std::string_view open;  // {title} is filled
  std::string_view before, after;
  std::string_view close;

  std::string line(std::string_view text) const;
  std::string render(std::string_view title, std::span<const std::string> lines) const;
};
std::span<const NotesFormat> notes_formats();

// Rows of a name and a number or word.
struct RecordsFormat {
  std::string_view extension;
  bool held_out;
  std::string_view before, between, after;

  std::string render(std::span<const Entry> rows) const;
};
std::span<const RecordsFormat> records_formats();

// A source file that defines a name, and one that uses it; {n} the name, {m} the stem of the defining file, {k} a
// number.
struct CodeFormat {
  std::string_view extension;
  bool held_out;
  std::string_view definition, use;
};
std::span<const CodeFormat> code_formats();

// A script that prints the last number of a sequence x = (x * {a} + {b}) % {c}, {n} times from {x}, after {label}.
struct ScriptFormat {
  std::string_view extension;
  bool held_out;
  std::string_view command;  // what runs it; the file follows
  std::string_view source;
};
std::span<const ScriptFormat> script_formats();

// A format of the side that is asked for; remembers its extension for the proofs.
template <typename Format>
const Format& draw_format(std::span<const Format> all, bool new_ones, Random& random, std::vector<std::string>& used) {
  std::vector<const Format*> fitting;
  for (const auto& format : all) {
    if (format.held_out == new_ones) fitting.push_back(&format);
  }
  const Format& chosen = *random.pick(fitting);
  used.emplace_back(chosen.extension);
  return chosen;
}

}  // namespace tandem::envs
