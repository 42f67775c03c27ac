// Calls of every dialect: what the masks let through is read back by the dialect's own parser as calls of the tools,
// with valid arguments, and what the dialect writes is let through.
#include <fmt/format.h>

#include <set>

#include "model/tool_dialects/marks.h"
#include "tests/model/constraint_parts.h"
#include "tests/model/reference_validator.h"
#include "tests/repetitions.h"

namespace tandem::model::constraint {
namespace {

const Json& tools() {
  static const Json made = *parse_json(R"([
    {"type":"function","function":{"name":"read","parameters":{"type":"object","properties":{
      "path":{"type":"string"},"lines":{"$ref":"#/$defs/n"},"mode":{"enum":["text","</tool_call>","<|b",3,null]}},
      "required":["path"],"additionalProperties":false,"$defs":{"n":{"type":"integer","minimum":-20}}}}},
    {"type":"function","function":{"name":"write_all","parameters":{"type":"object","properties":{
      "files":{"type":"array","items":{"type":"object","properties":{"a":{"type":"string"},"<｜x":{"type":"boolean"}}}},
      "code":{"type":"string","pattern":"^[a-c<]{1,4}$"},"note":{"type":["string","null"],"maxLength":4},
      "exact":{"type":"number","maximum":9},"on":{"type":"boolean"}},"required":["code"],
      "additionalProperties":false}}},
    {"type":"function","function":{"name":"read_more","parameters":{"anyOf":[
      {"type":"object","properties":{"id":{"type":"string","minLength":2}},"required":["id"]},
      {"type":"object","properties":{"n":{"const":7}},"required":["n"],"additionalProperties":false}]}}},
    {"type":"function","function":{"name":"stop"}}])");
  return made;
}

Json parameters_of(const std::string& name) {
  for (const Json& tool : tools()) {
    if (tool["function"]["name"] != name) continue;
    return tool["function"].value("parameters", *parse_json(R"({"type":"object","additionalProperties":false})"));
  }
  return false;
}

std::vector<std::string> marks_of(ToolDialect dialect) {
  const auto all = [](const CallMarks& m) {
    std::vector<std::string> texts;
    for (const auto mark : {m.list_begin, m.begin, m.middle, m.end, m.list_end}) texts.emplace_back(mark);
    return texts;
  };
  if (dialect == ToolDialect::kKimiK2) return all(kKimiMarks);
  if (dialect == ToolDialect::kDeepseekV3 || dialect == ToolDialect::kDeepseekV31) return all(kDeepseekMarks);
  if (dialect == ToolDialect::kLlama3) return {std::string(kPythonTag)};
  if (dialect == ToolDialect::kMistral || dialect == ToolDialect::kMistralV11)
    return {std::string(kMistralCalls), std::string(kMistralArguments), std::string(kMistralId)};
  return {std::string(kToolCall), std::string(kToolCallEnd), "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"};
}

enum class Marks : uint8_t { kSpecial, kTokens, kBytes };

// The marks of the dialect as special tokens, as tokens like others, or in pieces; and pieces of what it writes.
struct Words {
  std::shared_ptr<const Vocabulary> vocabulary;
  std::vector<std::string> texts;  // by token, special ones included
};

Words words_of(ToolDialect dialect, Marks kind) {
  Words words;
  const auto marks = marks_of(dialect);
  words.texts = marks;
  for (int byte = 0; byte < 256; ++byte) words.texts.emplace_back(1, static_cast<char>(byte));
  Random random(7);
  std::set<std::string> pieces = {"{\"", "\": ", "\": \"", "\"}",   "\"path\"", "{}",
                                  "</",  "<|",   "<｜",    "<tool", "_call>",   "```"};
  for (const auto& call : {format_tool_call(dialect, "read", {{"path", "a <b> \n c"}, {"lines", 3}}),
                           format_tool_call(dialect, "write_all", {{"code", "a<"}, {"files", {{{"a", "x"}}}}}),
                           format_tool_call(dialect, "stop", Json::object())}) {
    for (size_t i = 0; i < call.size(); ++i) pieces.insert(call.substr(i, 2 + random.below(8)));
  }
  for (const auto& mark : marks)
    for (size_t i = 0; i < mark.size(); ++i) pieces.insert(mark.substr(i, 1 + random.below(7)));
  words.texts.insert(words.texts.end(), pieces.begin(), pieces.end());
  auto bytes = words.texts;
  std::map<std::string, TokenId, std::less<>> special;
  for (size_t i = 0; i < marks.size(); ++i) {
    if (kind == Marks::kSpecial) special.emplace(marks[i], static_cast<TokenId>(i));
    if (kind != Marks::kTokens) bytes[i].clear();
    if (kind == Marks::kBytes) words.texts[i].clear();
  }
  words.vocabulary = *Vocabulary::from_bytes(bytes, special);
  return words;
}

std::shared_ptr<const Grammar> grammar_of(ToolDialect dialect, const Json& choice, const Json& offered = tools()) {
  auto grammar = tool_grammar(dialect, offered, choice);
  EXPECT_TRUE(grammar) << (grammar ? "" : grammar.error().to_string());
  return grammar ? *grammar : nullptr;
}

// The calls of a text that was let through.
void expect_calls(ToolDialect dialect, std::string_view choice, const std::string& text, int& called) {
  auto parsed = parse_tool_calls(dialect, text);
  if (has_text_values(dialect)) give_types(tools(), parsed.calls);
  ASSERT_TRUE(parsed.errors.empty()) << name_of(dialect) << ": " << text << ": " << parsed.errors[0].message;
  EXPECT_TRUE(choice != "none" || parsed.calls.empty()) << text;
  if (choice == "required") {
    EXPECT_FALSE(parsed.calls.empty()) << text;
    EXPECT_EQ(parsed.content, "") << text;
  }
  if (choice == "named") {
    ASSERT_EQ(parsed.calls.size(), 1u) << text;
    EXPECT_EQ(parsed.calls[0].name, "read") << text;
  }
  for (const auto& call : parsed.calls) {
    ++called;
    const Json parameters = parameters_of(call.name);
    EXPECT_TRUE(ReferenceValidator(parameters).valid(call.arguments))
        << name_of(dialect) << ": " << call.name << " " << call.arguments << " of " << text;
  }
}

Json choice_of(std::string_view name) {
  if (name != "named") return std::string(name);
  return {{"type", "function"}, {"function", {{"name", "read"}}}};
}

std::vector<TokenId> tokens_of(const std::vector<uint64_t>& mask) {
  std::vector<TokenId> tokens;
  for (size_t w = 0; w < mask.size(); ++w)
    for (uint64_t word = mask[w]; word != 0; word &= word - 1)
      tokens.push_back(static_cast<TokenId>(w * 64 + static_cast<size_t>(__builtin_ctzll(word))));
  return tokens;
}

TEST(ConstrainedCalls, any_walk_under_the_masks_is_read_back_as_calls_with_valid_arguments) {
  Random random(3);
  for (const auto dialect : kToolDialects) {
    int called = 0, ended = 0, walks = 0;
    for (const auto kind : {Marks::kSpecial, Marks::kTokens, Marks::kBytes}) {
      const Words words = words_of(dialect, kind);
      const auto& vocabulary = *words.vocabulary;
      std::vector<uint64_t> mask(vocabulary.mask_words());
      for (const char* choice : {"auto", "required", "none", "named"}) {
        const auto grammar = grammar_of(dialect, choice_of(choice));
        ASSERT_TRUE(grammar);
        for (int walk = 0; walk < repetitions(3, 200); ++walk) {
          ++walks;
          Matcher matcher(grammar, words.vocabulary);
          std::string text;
          bool over = false;
          for (int step = 0; step < 300 && !over; ++step) {
            over = matcher.complete() && random.below(step < 10 ? 20 : 2) == 0;
            if (over) break;
            matcher.mask(mask);
            const auto allowed = tokens_of(mask);
            ASSERT_TRUE(!allowed.empty() || matcher.complete()) << name_of(dialect) << ": stuck behind " << text;
            over = allowed.empty();
            if (over) break;
            // The mask is what following each token alone says.
            for (int k = random.below(10) == 0 ? repetitions(40, 400) : 0; k > 0; --k) {
              const auto t = static_cast<TokenId>(random.below(words.texts.size()));
              Matcher alone = matcher;
              ASSERT_EQ(alone.accept(t).ok(), (mask[t / 64] >> (t % 64) & 1) != 0)
                  << name_of(dialect) << ": token " << words.texts[t] << " behind " << text;
            }
            std::vector<TokenId> telling;
            for (const TokenId t : allowed) {
              const char last = words.texts[t].back();
              if (words.texts[t].front() == '<' || last == '>' || last == '}' || last == ']' || last == '"')
                telling.push_back(t);
            }
            const bool hurry = random.below(10) < (step > 40 ? 8 : 3);
            const TokenId token = !telling.empty() && hurry ? random.pick(telling) : random.pick(allowed);
            text += words.texts[token];
            ASSERT_TRUE(matcher.accept(token).ok()) << text;
          }
          if (!over) continue;
          ++ended;
          expect_calls(dialect, choice, text, called);
        }
      }
    }
    EXPECT_GE(called, 4) << name_of(dialect);
    EXPECT_GT(ended, walks / 2) << name_of(dialect) << " of " << walks;
  }
}

// In bytes, and with marks that are tokens.
bool lets_calls_through(const std::shared_ptr<const Grammar>& grammar, const Words& words, const std::string& text,
                        ToolDialect dialect) {
  Matcher matcher(grammar, words.vocabulary);
  for (size_t at = 0; at < text.size();) {
    const auto marks = marks_of(dialect);
    size_t mark = 0;
    while (mark < marks.size() && text.compare(at, marks[mark].size(), marks[mark]) != 0) ++mark;
    const bool special = mark < marks.size() && words.vocabulary->special(marks[mark]);
    if (special ? !matcher.accept(static_cast<TokenId>(mark)).ok() : !matcher.accept_text(text.substr(at, 1)).ok())
      return false;
    at += special ? marks[mark].size() : 1;
  }
  return matcher.complete();
}

TEST(ConstrainedCalls, what_a_dialect_writes_is_let_through) {
  for (const auto dialect : kToolDialects) {
    for (const auto kind : {Marks::kSpecial, Marks::kBytes}) {
      const Words words = words_of(dialect, kind);
      const auto automatic = grammar_of(dialect, "auto"), required = grammar_of(dialect, "required"),
                 none = grammar_of(dialect, "none"), named = grammar_of(dialect, choice_of("named"));
      const auto through = [&](const auto& grammar, const std::string& text) {
        return lets_calls_through(grammar, words, text, dialect);
      };
      const std::string read = format_tool_call(dialect, "read", {{"path", "src/a b.cpp"}, {"lines", 12}});
      const std::string write = format_tool_call(
          dialect, "write_all", {{"exact", 1.5}, {"code", "ab<"}, {"files", {{{"a", "\"1\"\n"}}}}, {"on", true}});
      const std::string stop = format_tool_call(dialect, "stop", Json::object());
      for (const auto& text : {read, write, stop}) {
        EXPECT_TRUE(through(automatic, text)) << text;
        EXPECT_TRUE(through(required, text)) << text;
        EXPECT_FALSE(through(none, text)) << text;
      }
      EXPECT_TRUE(through(named, read)) << read;
      EXPECT_FALSE(through(named, stop)) << stop;
      for (const auto& grammar : {automatic, none}) {
        EXPECT_TRUE(through(grammar, "I say <this> \xff."));
        EXPECT_TRUE(through(grammar, ""));
      }
      EXPECT_FALSE(through(required, ""));
      EXPECT_TRUE(through(automatic, "Let me see. " + read)) << read;
      EXPECT_FALSE(through(required, "Let me see. " + read)) << read;
      EXPECT_FALSE(through(automatic, read + " so."));
      for (const auto& wrong :
           {format_tool_call(dialect, "write", {{"path", "a"}}), format_tool_call(dialect, "read", Json::object()),
            format_tool_call(dialect, "read", {{"path", "a"}, {"lines", -21}}),
            format_tool_call(dialect, "read", {{"path", "a"}, {"lines", "many"}}),
            format_tool_call(dialect, "read", {{"path", "a"}, {"page", 1}}),
            format_tool_call(dialect, "write_all", {{"code", "abd"}})})
        EXPECT_FALSE(through(automatic, wrong)) << wrong;
    }
  }
}

TEST(ConstrainedCalls, a_mark_that_is_a_special_token_is_that_token_and_stands_nowhere_else) {
  for (const auto dialect : kToolDialects) {
    const auto marks = marks_of(dialect);
    if (dialect == ToolDialect::kLlama3) continue;  // which has none in calls
    const Words words = words_of(dialect, Marks::kSpecial);
    std::vector<uint64_t> mask(words.vocabulary->mask_words());
    Matcher matcher(grammar_of(dialect, "required"), words.vocabulary);
    matcher.mask(mask);
    std::vector<TokenId> other;
    for (const TokenId token : tokens_of(mask)) {
      const bool space = words.texts[token].find_first_not_of(" \t\r\n") == std::string::npos;
      if (!space) other.push_back(token);
    }
    EXPECT_EQ(other, std::vector<TokenId>{0}) << name_of(dialect) << ": the first mark, beside white space";
    EXPECT_FALSE(matcher.accept_text(marks[0]).ok()) << "its text";
    EXPECT_TRUE(matcher.accept(0).ok());
    EXPECT_FALSE(matcher.accept(0).ok()) << "twice";

    Matcher text(grammar_of(dialect, "auto"), words.vocabulary);
    EXPECT_FALSE(text.accept_text(marks[0]).ok()) << "in a text it would be read as a call";
    EXPECT_TRUE(text.accept_text("Well. ").ok());
    EXPECT_TRUE(text.accept(0).ok());
    Matcher silent(grammar_of(dialect, "none"), words.vocabulary);
    EXPECT_FALSE(silent.accept(0).ok());
  }
}

TEST(ConstrainedCalls, names_that_a_dialect_cannot_write_are_refused) {
  const auto refused = [](ToolDialect dialect, const std::string& name) {
    const auto grammar = tool_grammar(dialect, {{{"function", {{"name", name}}}}}, "auto");
    return grammar ? std::string() : grammar.error().message();
  };
  EXPECT_EQ(refused(ToolDialect::kHermes, "a b\n<|tool_call_end|>"), "");
  EXPECT_NE(refused(ToolDialect::kKimiK2, "a<|tool_call_argument_begin|>").find("cannot be told"), std::string::npos);
  EXPECT_NE(refused(ToolDialect::kDeepseekV31, "function").find("cannot be told in calls of the dialect deepseek_v31"),
            std::string::npos);
  EXPECT_EQ(refused(ToolDialect::kDeepseekV3, "function"), "");
  EXPECT_NE(refused(ToolDialect::kDeepseekV3, " a").find("cannot be told"), std::string::npos);
}

}  // namespace
}  // namespace tandem::model::constraint
