// What tests of constraints share: golden schemas and texts, a vocabulary, and whether a grammar lets a text through.
#pragma once

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/random.h"
#include "base/text.h"
#include "model/constraint/constraint.h"
#include "model/constraint/matcher.h"

namespace tandem::model::constraint {

inline const fs::path kGolden = fs::path(TANDEM_SOURCE_DIR) / "tests/golden";

inline std::vector<Json> cases() {
  std::vector<Json> lines;
  const std::string text = *read_file(kGolden / "constraints/cases.jsonl");
  for (const auto line : split(text, '\n'))
    if (!line.empty()) lines.push_back(*parse_json(line));
  return lines;
}

// All bytes, and what tokenizers make of JSON: quotes and brackets joined with what is around them, words, white space.
inline std::shared_ptr<const Vocabulary> vocabulary() {
  static const auto made = [] {
    std::vector<std::string> tokens = {"", "<|end|>"};
    tokens[1].clear();  // special tokens have no bytes here
    for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
    for (const char* token : {"{\"",
                              "\":",
                              "\": ",
                              "\":\"",
                              "\": \"",
                              "\",",
                              "\", ",
                              "\",\"",
                              "\", \"",
                              "\"}",
                              "\"}}",
                              "\"]",
                              "],",
                              "},",
                              "}}",
                              "]]",
                              "}]",
                              "[[",
                              "{{",
                              "[{",
                              "{}",
                              "[]",
                              "\"a",
                              "a\"",
                              "\"a\"",
                              "\"a\":",
                              "a\":",
                              "ab",
                              "abc",
                              "b\":",
                              "name",
                              "age",
                              "\"name\"",
                              "  ",
                              "    ",
                              "\n  ",
                              "\n\n",
                              ",\n",
                              ":\n",
                              "12",
                              "123",
                              "100",
                              "00",
                              "-1",
                              "0.",
                              ".5",
                              "e-",
                              "1e",
                              "true",
                              "false",
                              "null",
                              "tr",
                              "ue",
                              "nul",
                              "\\n",
                              "\\\"",
                              "\\u",
                              "\\u00",
                              "\\\\",
                              "é",
                              "中",
                              "文",
                              "\xe4",
                              "\xe4\xb8",
                              "\xad\xe6",
                              "😀",
                              "\xf0\x9f",
                              "1,",
                              "1}",
                              "1]",
                              "1, ",
                              "2\":",
                              "\"x\":1,\"",
                              "x\",\"y\":",
                              "\"a\":1,\"a\"",
                              "\",\"a\":\"",
                              "kind",
                              "\"name",
                              "\"kind\":\"circle",
                              "2024",
                              "-02",
                              "T1",
                              ":00Z",
                              "_1",
                              "xy",
                              " \"",
                              "\" ",
                              "<tool",
                              "_call>",
                              "<tool_call>",
                              "</tool_call>",
                              ">\n{",
                              "}\n</",
                              "\"arguments\": {",
                              "\"name\": \"",
                              "}\n</tool_call>\n<tool_call>"})
      tokens.emplace_back(token);
    Random random(4);
    while (tokens.size() < 900) {
      std::string token;
      const size_t length = 2 + random.below(6);
      static constexpr char kLetters[] = "abcxyz\"\"{}[],,::  \n01259-.\\ntu_eE";
      for (size_t i = 0; i < length; ++i) token += kLetters[random.below(sizeof kLetters - 1)];
      tokens.push_back(token);
    }
    return *Vocabulary::from_bytes(tokens);
  }();
  return made;
}

inline std::shared_ptr<const Grammar> compiled(const Json& schema) {
  auto grammar = schema_grammar(schema);
  EXPECT_TRUE(grammar) << (grammar ? "" : grammar.error().to_string()) << " " << schema;
  return grammar ? *grammar : nullptr;
}

inline bool lets_through(const std::shared_ptr<const Grammar>& grammar, std::string_view text) {
  Matcher matcher(grammar, vocabulary());
  return matcher.accept_text(text).ok() && matcher.complete();
}

inline std::string refused(const Json& schema) {
  const auto grammar = schema_grammar(schema);
  return grammar ? "" : grammar.error().message();
}

}  // namespace tandem::model::constraint
