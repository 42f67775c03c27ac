#include "model/constraint/schema_compiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>

#include "model/constraint/schema_facts.h"

namespace tandem::model::constraint {

namespace {

class Compiler {
 public:
  Compiler(const Json& schema, std::span<const Json::json_pointer> roots) {
    roots_.push_back({&schema, ""});
    for (const auto& root : roots) roots_.push_back({&schema.at(root), root.to_string()});
  }

  Result<Grammar> run(std::span<const Json::json_pointer> entries) {
    grammar_.root = TRY(node_of({{roots_[0].json, "", roots_.data()}}));
    for (const auto& entry : entries)
      grammar_.entries.push_back(TRY(node_of({{&roots_[0].json->at(entry), entry.to_string(), roots_.data()}})));
    for (;;) {
      for (; done_ < waiting_.size(); ++done_) TRY(compile(static_cast<uint32_t>(done_)));
      if (read_one_of_ == one_of_.size()) break;
      TRY(compile_branches(one_of_[read_one_of_++]));
    }
    find_depths(grammar_);
    for (const auto& [place, branches] : branches_) TRY(check_apart(place, branches));
    if (grammar_.nodes[grammar_.root].depth > kMaxNesting)
      return fail(Status::invalid("the schema: no value satisfies it"));
    return std::move(grammar_);
  }

 private:
  using Key = std::vector<const Json*>;

  Result<uint32_t> node_of(Schemas schemas) {
    Key key;
    for (const auto& schema : schemas) key.push_back(schema.json);
    std::sort(key.begin(), key.end());
    key.erase(std::unique(key.begin(), key.end()), key.end());
    const auto [found, fresh] = numbers_.try_emplace(std::move(key), static_cast<uint32_t>(grammar_.nodes.size()));
    if (!fresh) return found->second;
    if (grammar_.nodes.size() >= kMaxNodes)
      return fail(Status::exhausted(fmt::format("the schema takes more than {} kinds of value", kMaxNodes)));
    grammar_.nodes.emplace_back();
    waiting_.push_back(std::move(schemas));
    return found->second;
  }

  Status compile(uint32_t number) {
    SchemaFacts facts;
    const Schemas schemas = waiting_[number];
    for (const auto& schema : schemas) facts.pending.push_back({schema, {}});
    std::vector<SchemaFacts> alternatives;
    TRY(expand(std::move(facts), alternatives));
    ValueNode node;
    for (const auto& alternative : alternatives) {
      const Status status = add(alternative, node);
      if (!status.ok() && status.message().starts_with("the schema")) return status;
      if (!status.ok()) {
        return Status(status.code(),
                      fmt::format("the schema at #{}: {}", schemas.empty() ? "" : schemas[0].place, status.message()));
      }
    }
    std::sort(node.literals.begin(), node.literals.end());
    node.literals.erase(std::unique(node.literals.begin(), node.literals.end()), node.literals.end());
    grammar_.nodes[number] = std::move(node);
    return {};
  }

  // Reads what is pending and takes all combinations of choices.
  Status expand(SchemaFacts facts, std::vector<SchemaFacts>& out) {
    while (!facts.pending.empty()) {
      TRY(charge(facts.pending.back().schema.json->size()));
      const Pending next = std::move(facts.pending.back());
      facts.pending.pop_back();
      TRY(read_schema(next, roots_, automata_, facts, one_of_));
    }
    if (facts.types == 0 || (facts.values && facts.values->empty())) return {};
    if (facts.choices.empty()) {
      if (out.size() >= kMaxAlternatives) {
        return Status::exhausted(
            fmt::format("the schema has a value with more than {} alternatives of anyOf and oneOf", kMaxAlternatives));
      }
      out.push_back(std::move(facts));
      return {};
    }
    const auto branches = std::move(facts.choices.back());
    facts.choices.pop_back();
    for (const auto& branch : branches) {
      TRY(charge(facts.required.size() + facts.pending.size()));
      for (const auto& part : facts.properties) TRY(charge(part.named.size()));
      SchemaFacts with = facts;
      with.pending.push_back(branch);
      TRY(expand(std::move(with), out));
    }
    return {};
  }

  // Reading and copying are paid for by size: a small schema can say a great deal.
  Status charge(size_t entries) {
    readings_ += 1 + entries / 16;
    if (readings_ > kMaxReadings)
      return Status::exhausted(fmt::format("the schema is read more than {} times over", kMaxReadings));
    return {};
  }

  Status add(const SchemaFacts& facts, ValueNode& node) {
    if (facts.values) return add_values(facts, node);
    if ((facts.types & kNull) != 0) node.literals.emplace_back("null");
    if ((facts.types & kBoolean) != 0) node.literals.insert(node.literals.end(), {"true", "false"});
    if ((facts.types & kInteger) != 0) TRY(add_number(facts, node));
    if ((facts.types & kText) != 0) TRY(add_string(facts, node));
    if ((facts.types & kArray) != 0) TRY(add_array(facts, node));
    if ((facts.types & kObject) != 0) TRY(add_object(facts, node));
    return {};
  }

  Status add_values(const SchemaFacts& facts, ValueNode& node) {
    for (const Json& value : *facts.values) {
      if (value.is_structured()) {
        // As a schema that nothing else satisfies, so that all that is said beside it holds too.
        SchemaFacts with = facts;
        with.values.reset();
        with.pending.push_back({{&exact_schema(value), "", roots_.data()}, {}});
        std::vector<SchemaFacts> alternatives;
        TRY(expand(std::move(with), alternatives));
        for (const auto& alternative : alternatives) TRY(add(alternative, node));
      } else if (TRY(allows(facts, value))) {
        node.literals.push_back(canonical(value));
      }
    }
    return {};
  }

  const Json& exact_schema(const Json& value) {
    Json schema;
    if (value.is_array()) {
      schema = {{"type", "array"}, {"minItems", value.size()}, {"maxItems", value.size()}};
      schema["prefixItems"] = Json::array();
      for (const Json& item : value) schema["prefixItems"].push_back({{"const", item}});
    } else {
      schema = {{"type", "object"}, {"additionalProperties", false}};
      schema["properties"] = Json::object();
      schema["required"] = Json::array();
      for (const auto& [name, member] : value.items()) {
        schema["properties"][name] = {{"const", member}};
        schema["required"].push_back(name);
      }
    }
    return made_.emplace_back(std::move(schema));
  }

  // Whether a value without parts is what the facts say beside their values.
  Result<bool> allows(const SchemaFacts& facts, const Json& value) {
    if (value.is_null()) return (facts.types & kNull) != 0;
    if (value.is_boolean()) return (facts.types & kBoolean) != 0;
    if (value.is_string()) {
      if ((facts.types & kText) == 0) return false;
      ValueNode strings;
      TRY(add_string(facts, strings));
      if (strings.strings.empty()) return false;
      const StringRule& rule = strings.strings.front();
      return matches(rule.automaton == kNone ? nullptr : grammar_.automata[rule.automaton].get(), rule,
                     dump_json(value));
    }
    const double number = value.get<double>();
    const bool whole = !value.is_number_float() || number == std::floor(number);
    if ((facts.types & (whole ? kInteger : kFraction)) == 0) return false;
    const Bound at = TRY(Bound::of(value, false));
    const auto& [integer, least, most, multiple_of] = facts.numbers;
    if (least && (at.compare(*least) < 0 || (at.compare(*least) == 0 && least->exclusive))) return false;
    if (most && (at.compare(*most) > 0 || (at.compare(*most) == 0 && most->exclusive))) return false;
    return multiple_of == 0 || std::fmod(number, multiple_of) == 0;
  }

  Status add_number(const SchemaFacts& facts, ValueNode& node) {
    NumberRules rules = facts.numbers;
    rules.integer = (facts.types & kFraction) == 0;
    auto& dfa = number_automata_[number_key(rules)];
    if (!dfa) dfa = std::make_shared<const Dfa>(TRY(compile_number(rules)));
    if (dfa->empty()) return {};
    const uint32_t automaton = number_of(dfa);
    if (std::find(node.numbers.begin(), node.numbers.end(), automaton) == node.numbers.end())
      node.numbers.push_back(automaton);
    return {};
  }

  static std::string number_key(const NumberRules& rules) {
    const auto text = [](const std::optional<Bound>& bound) {
      if (!bound) return std::string("none");
      return fmt::format("{}{}.{}{}", bound->negative ? "-" : "", bound->digits, bound->fraction,
                         bound->exclusive ? "x" : "");
    };
    return fmt::format("{} {} {} {}", rules.integer, text(rules.least), text(rules.most), rules.multiple_of);
  }

  uint32_t number_of(const std::shared_ptr<const Dfa>& dfa) {
    const auto [found, fresh] =
        automaton_numbers_.try_emplace(dfa->serial(), static_cast<uint32_t>(grammar_.automata.size()));
    if (fresh) grammar_.automata.push_back(dfa);
    return found->second;
  }

  Status add_string(const SchemaFacts& facts, ValueNode& node) {
    if (facts.min_length > facts.max_length) return {};
    std::shared_ptr<const Dfa> dfa;
    for (const auto& text : facts.texts) {
      if (!dfa)
        dfa = text;
      else if (dfa != text)
        dfa = std::make_shared<const Dfa>(TRY(Dfa::intersection(*dfa, *text)));
    }
    const bool bounded = facts.min_length > 0 || facts.max_length != kUnlimited;
    if (!dfa) {
      node.strings.push_back({.least = facts.min_length, .most = facts.max_length});
      return {};
    }
    if (bounded) {
      const auto most = facts.max_length == kUnlimited ? std::nullopt : std::optional<uint32_t>(facts.max_length);
      auto lengths = Dfa::of_length(facts.min_length, most);
      auto both = lengths ? Dfa::intersection(*dfa, *lengths) : lengths;
      if (!both) {
        return Status::exhausted("a pattern or format beside minLength or maxLength takes too large an automaton")
            .hint("say the length in the pattern, or leave it out");
      }
      dfa = std::make_shared<const Dfa>(std::move(*both));
    }
    if (!dfa->empty()) node.strings.push_back({.automaton = number_of(dfa)});
    return {};
  }

  Status add_array(const SchemaFacts& facts, ValueNode& node) {
    ArrayRule array{.least = facts.min_items, .most = facts.max_items};
    size_t prefix = 0;
    for (const auto& part : facts.items) prefix = std::max(prefix, part.prefix.size());
    for (size_t i = 0; i <= prefix; ++i) {
      Schemas all;
      for (const auto& part : facts.items) {
        if (i < part.prefix.size())
          all.push_back(part.prefix[i]);
        else if (part.rest)
          all.push_back(*part.rest);
      }
      const uint32_t item = TRY(node_of(std::move(all)));
      if (i < prefix)
        array.prefix.push_back(item);
      else
        array.items = item;
    }
    node.arrays.push_back(static_cast<uint32_t>(grammar_.arrays.size()));
    grammar_.arrays.push_back(std::move(array));
    return {};
  }

  Status add_object(const SchemaFacts& facts, ValueNode& node) {
    ObjectRule object{.least = facts.min_properties, .most = facts.max_properties};
    std::set<std::string> names = facts.required;
    for (const auto& part : facts.properties)
      for (const auto& [name, schema] : part.named) names.insert(name);
    for (const auto& name : names) {
      Schemas all;
      for (const auto& part : facts.properties) {
        const auto named = part.named.find(name);
        if (named != part.named.end())
          all.push_back(named->second);
        else if (part.rest)
          all.push_back(*part.rest);
      }
      const std::string quoted = dump_json(Json(name));
      const uint32_t node = TRY(node_of(std::move(all)));
      object.properties.push_back(
          {.name = quoted.substr(1, quoted.size() - 2), .node = node, .required = facts.required.contains(name)});
    }
    std::sort(object.properties.begin(), object.properties.end(),
              [](const Property& a, const Property& b) { return a.name < b.name; });
    object.required = static_cast<uint32_t>(facts.required.size());
    Schemas rest;
    bool closed = false;
    for (const auto& part : facts.properties) {
      if (!part.rest) continue;
      closed = closed || (part.rest->json->is_boolean() && !part.rest->json->get<bool>());
      rest.push_back(*part.rest);
    }
    if (!closed) object.extra = TRY(node_of(std::move(rest)));
    node.objects.push_back(static_cast<uint32_t>(grammar_.objects.size()));
    grammar_.objects.push_back(std::move(object));
    return {};
  }

  // Each branch of a oneOf together with what stands beside it, as a node of its own.
  Status compile_branches(const Schema& schema) {
    if (!checked_.insert(schema.place).second) return {};
    Json beside = *schema.json;
    beside.erase("oneOf");
    beside.erase("$id");
    const Json& kept = made_.emplace_back(std::move(beside));
    const Json& list = (*schema.json)["oneOf"];
    std::vector<uint32_t> branches;
    for (size_t i = 0; i < list.size(); ++i) {
      branches.push_back(TRY(node_of(
          {{&list[i], fmt::format("{}/oneOf/{}", schema.place, i), schema.root}, {&kept, schema.place, schema.root}})));
    }
    branches_.emplace_back(schema.place, std::move(branches));
    return {};
  }

  Status check_apart(const std::string& place, const std::vector<uint32_t>& branches) const {
    for (size_t i = 0; i < branches.size(); ++i) {
      for (size_t k = 0; k < i; ++k) {
        if (are_apart(grammar_, branches[k], branches[i])) continue;
        return Status::invalid(
                   fmt::format("the schema at #{}: branches {} and {} of \"oneOf\" may both hold, or cannot "
                               "be told apart here",
                               place, k, i))
            .hint("use \"anyOf\", or give each branch a type, or a required property with a const, of its own");
      }
    }
    return {};
  }

  std::vector<SchemaRoot> roots_;
  Grammar grammar_;
  TextAutomata automata_;
  std::map<std::string, std::shared_ptr<const Dfa>> number_automata_;
  std::map<uint64_t, uint32_t> automaton_numbers_;  // by serial
  std::map<Key, uint32_t> numbers_;
  std::deque<Schemas> waiting_;  // by node
  size_t done_ = 0;
  std::deque<Json> made_;
  Schemas one_of_;
  size_t read_one_of_ = 0;
  std::set<std::string> checked_;  // places: copies have that of their original
  std::vector<std::pair<std::string, std::vector<uint32_t>>> branches_;
  size_t readings_ = 0;
};

}  // namespace

Result<Grammar> compile_schema(const Json& schema, std::span<const Json::json_pointer> roots,
                               std::span<const Json::json_pointer> entries) {
  return Compiler(schema, roots).run(entries);
}

}  // namespace tandem::model::constraint
