#include "model/constraint/dialects/text_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/utf8.h"
#include "model/constraint/pattern.h"
#include "model/tool_dialects/text_types.h"

namespace tandem::model::constraint {

namespace {

// Texts that may be read as a value of one of the types, as JSON or as Python's literals, and some more.
std::string pattern_of(uint8_t types) {
  std::string words, starts;
  if ((types & kNullText) != 0) words += "|null|None";
  if ((types & kBooleanText) != 0) words += "|true|false|True|False";
  if ((types & (kIntegerText | kFractionText)) != 0) starts += "|[0-9+\\-]";
  if ((types & kArrayText) != 0) starts += "|\\[";
  if ((types & kObjectText) != 0) starts += "|\\{";
  if (words.empty() && starts.empty()) return "";
  starts += "|\\(";
  const std::string ending = words.empty() ? "" : fmt::format("|(?:{})[ \\t\\r\\n]*$", words.substr(1));
  return fmt::format("^\\uFEFF?[ \\t\\r\\n]*(?:{})", (starts + ending).substr(1));
}

class TextNodes {
 public:
  TextNodes(Grammar& grammar, const TextForm& form) : grammar_(grammar), form_(form) {}

  // The same values as `json`, as they are written between tags. `types`: what they are read back as.
  Result<uint32_t> node_of(uint32_t json, std::optional<uint8_t> types) {
    const ValueNode from = grammar_.nodes[json];
    const auto allowed = TRY(allowed_texts(types.value_or(0) & static_cast<uint8_t>(~kStringText)));
    ValueNode node;
    if (types) {
      node.numbers = from.numbers;
      node.arrays = from.arrays;
      node.objects = from.objects;
    }
    for (const auto& literal : from.literals) {
      if (literal[0] != '"') {
        if (types) node.literals.push_back(literal);
        continue;
      }
      const auto text = TRY(parse_json(literal)).get<std::string>();
      if (allowed->matches(characters(text))) node.literals.push_back(text);
    }
    std::sort(node.literals.begin(), node.literals.end());
    node.literals.erase(std::unique(node.literals.begin(), node.literals.end()), node.literals.end());
    for (const StringRule& rule : from.strings) {
      auto text = TRY(texts_of(rule, allowed));
      if (text->empty()) continue;
      node.texts.push_back(static_cast<uint32_t>(grammar_.automata.size()));
      grammar_.automata.push_back(std::move(text));
    }
    grammar_.nodes.push_back(std::move(node));
    return static_cast<uint32_t>(grammar_.nodes.size() - 1);
  }

  // One of which there is no value.
  uint32_t nothing() {
    grammar_.nodes.emplace_back();
    return static_cast<uint32_t>(grammar_.nodes.size() - 1);
  }

 private:
  using Automaton = std::shared_ptr<const Dfa>;

  static std::u32string characters(std::string_view text) {
    std::u32string out;
    for (size_t at = 0; at < text.size();) {
      const auto step = next_character(text.substr(at));
      out += step.character;
      at += step.length;
    }
    return out;
  }

  Result<Automaton> allowed_texts(uint8_t types) {
    auto& made = allowed_[types];
    if (made) return made;
    std::string tags;
    for (const auto tag : form_.tags) tags += fmt::format("{}{}", tags.empty() ? "" : "|", tag);
    Dfa without_tags = Dfa::complement(TRY(compile_pattern(tags)));
    const std::string meant = pattern_of(types);
    if (meant.empty())
      made = std::make_shared<const Dfa>(std::move(without_tags));
    else
      made = std::make_shared<const Dfa>(
          TRY(Dfa::intersection(without_tags, Dfa::complement(TRY(compile_pattern(meant))))));
    return made;
  }

  Result<Automaton> texts_of(const StringRule& rule, const Automaton& allowed) {
    if (rule.automaton == kNone && rule.least == 0 && rule.most == kUnlimited) return allowed;
    const auto most = rule.most == kUnlimited ? std::nullopt : std::optional<uint32_t>(rule.most);
    auto both = rule.automaton == kNone ? Dfa::intersection(*allowed, TRY(Dfa::of_length(rule.least, most)))
                                        : Dfa::intersection(*allowed, *grammar_.automata[rule.automaton]);
    if (!both) {
      return fail(Status::exhausted(fmt::format("a string's pattern or lengths take too large an automaton where the "
                                                "dialect {} writes it as it stands",
                                                name_of(form_.dialect)))
                      .hint("leave minLength and maxLength of thousands of characters out"));
    }
    return std::make_shared<const Dfa>(std::move(*both));
  }

  Grammar& grammar_;
  const TextForm& form_;
  std::map<uint8_t, Automaton> allowed_;  // by the types that texts may not be meant as
};

bool writes_key(ToolDialect dialect, const std::string& key) {
  const auto parsed = parse_tool_calls(dialect, format_tool_call(dialect, "f", {{key, "x"}}));
  return parsed.calls.size() == 1 && parsed.errors.empty() && parsed.calls[0].arguments == Json{{key, "x"}};
}

}  // namespace

Result<std::vector<std::vector<uint32_t>>> text_arguments(Grammar& grammar, const TextForm& form,
                                                          const std::vector<OfferedTool>& tools) {
  TextNodes nodes(grammar, form);
  std::vector<std::vector<uint32_t>> rules(tools.size());
  for (size_t i = 0; i < tools.size(); ++i) {
    const auto objects = grammar.nodes[grammar.entries[i]].objects;
    for (const uint32_t object : objects) {
      ObjectRule rule = grammar.objects[object];
      rule.extra = kNone;
      rule.depth = kNever;
      for (Property& property : rule.properties) {
        const auto key = TRY(parse_json(fmt::format("\"{}\"", property.name))).get<std::string>();
        if (!writes_key(form.dialect, key)) {
          property.node = nodes.nothing();
          continue;
        }
        auto node = nodes.node_of(property.node, types_of_parameter(tools[i].parameters, key));
        if (!node) {
          return fail(Status(node.error().code(), fmt::format("the parameter \"{}\" of the tool \"{}\": {}", key,
                                                              tools[i].name, node.error().message()))
                          .hint(node.error().hint()));
        }
        property.node = *node;
        property.name = key;  // as it stands
      }
      rules[i].push_back(static_cast<uint32_t>(grammar.objects.size()));
      grammar.objects.push_back(std::move(rule));
    }
  }
  find_depths(grammar);
  bool any = false;
  for (auto& of_tool : rules) {
    std::erase_if(of_tool, [&](uint32_t rule) { return grammar.objects[rule].depth == kNever; });
    any = any || !of_tool.empty();
  }
  if (!any) {
    return fail(Status::invalid(fmt::format("\"tools\": the dialect {} can write no value of their parameters",
                                            name_of(form.dialect)))
                    .hint("it gives those alone that are described in \"properties\""));
  }
  return rules;
}

}  // namespace tandem::model::constraint
