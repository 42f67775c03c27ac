// What a constraint costs: compiling it, and the mask of allowed tokens before each token of a text.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <set>

#include "base/random.h"
#include "bench/measure.h"
#include "model/constraint/constraint.h"
#include "model/constraint/matcher.h"

namespace tandem::bench {

namespace {

using namespace model::constraint;

constexpr size_t kTokens = 150'000;
constexpr double kGoal = 50;  // us a token

// As large as the ones of today's models, and as full of quotes and brackets joined with words.
Result<std::shared_ptr<const Vocabulary>> made_up_vocabulary() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  static constexpr std::array kEnds = {"\":", "\",", "\"", "\"}", "\": \"", "\"]", "\\n", ",", ":", "(", "{\"", "\n"};
  static constexpr std::array kSyllables = {"an",  "er",  "in",  "st",  "re", "on",  "con",  "ti", "le",
                                            "par", "de",  "ma",  "pro", "x",  "ing", "ed",   "s",  "al",
                                            "ver", "ro",  "un",  "中",  "文", "é",   "user", "id", "na",
                                            "me",  "get", "set", "val", "ue", "0",   "1",    "20", "ж"};
  Random random(1);
  std::set<std::string> seen(tokens.begin(), tokens.end());
  const auto add = [&](std::string token) {
    if (seen.insert(token).second) tokens.push_back(std::move(token));
  };
  for (size_t spaces = 2; spaces <= 128; ++spaces) add(std::string(spaces, ' '));
  for (int number = 0; number < 1000; ++number) add(std::to_string(number));
  for (const char* a : kEnds)
    for (const char* b : kEnds) add(std::string(a) + b);
  while (tokens.size() < kTokens) {
    std::string token = random.below(2) == 0 ? " " : "";
    const size_t syllables = 1 + random.below(4);
    for (size_t i = 0; i < syllables; ++i) token += random.pick(kSyllables);
    if (random.below(4) == 0) token[token[0] == ' '] &= static_cast<char>(~32);
    if (random.below(16) == 0) token += random.pick(kEnds);
    if (random.below(32) == 0) token.insert(0, "\"");
    add(std::move(token));
  }
  return Vocabulary::from_bytes(std::move(tokens));
}

struct Text {
  const char* name;
  const char* schema;
  const char* text;
};
constexpr const char* kTools =
    R"([{"type":"function","function":{"name":"search_replace","parameters":{"type":"object","properties":{"file_path":)"
    R"({"type":"string"},"old_string":{"type":"string"},"new_string":{"type":"string"},"replace_all":{"type":"boolean"}},)"
    R"("required":["file_path","old_string","new_string"],"additionalProperties":false}}},{"type":"function","function":)"
    R"({"name":"grep","parameters":{"type":"object","properties":{"pattern":{"type":"string"},"path":{"type":"string"},)"
    R"("head_limit":{"type":"integer","minimum":1}},"required":["pattern"]}}},{"type":"function","function":{"name":)"
    R"("list_dir","parameters":{"type":"object","properties":{"target_directory":{"type":"string"}},"required":)"
    R"(["target_directory"]}}}])";
constexpr std::array kTexts = {
    Text{"free JSON", R"({"type":"object"})",
         R"({
  "name": "Constrained decoding", "version": 3, "stable": true, "score": -12.75e-3, "parent": null,
  "tags": ["grammar", "token masks", "über", "a \"quoted\" word"],
  "authors": [{"name": "Ada Lovelace", "born": 1815, "notes": {"G": "Bernoulli numbers"}}, {"name": "Grace Hopper"}],
  "description": "A longer text, of the kind that a model writes into a field: it goes on for some words, and ends."
})"},
    Text{"record",
         R"({"type":"object","properties":{"id":{"type":"string","format":"uuid"},"title":{"type":"string",)"
         R"("minLength":3,"maxLength":80},"created":{"type":"string","format":"date-time"},"rating":{"type":)"
         R"("integer","minimum":1,"maximum":5},"price":{"type":"number","minimum":0},"slug":{"type":"string",)"
         R"("pattern":"^[a-z0-9]+(-[a-z0-9]+)*$"},"state":{"enum":["draft","published","archived"]},"owner":)"
         R"({"anyOf":[{"type":"string","format":"email"},{"type":"null"}]},"tags":{"type":"array","items":)"
         R"({"type":"string","maxLength":20},"maxItems":8}},"required":["id","title","state"],)"
         R"("additionalProperties":false})",
         R"({"id": "123e4567-e89b-12d3-a456-426614174000", "title": "A title of moderate length, as titles are",
 "created": "2024-02-29T12:30:00Z", "rating": 4, "price": 19.95, "slug": "a-title-of-moderate-length",
 "state": "published", "owner": "ada.lovelace@example.org", "tags": ["engine", "analysis", "first of all"]})"},
    Text{"tree",
         R"({"$defs":{"n":{"type":"object","properties":{"label":{"type":"string"},"weight":{"type":"number"},)"
         R"("children":{"type":"array","items":{"$ref":"#/$defs/n"}}},"required":["label"],)"
         R"("additionalProperties":false}},"$ref":"#/$defs/n"})",
         R"({"label":"root","weight":1.5,"children":[{"label":"left","children":[{"label":"leaf one","weight":0.25},)"
         R"({"label":"leaf two"}]},{"label":"right","children":[{"label":"inner","children":[{"label":"deep"}]}]}]})"},
};

// A call as the dialect writes it, behind a text where it lets one stand there.
std::string text_with_call(model::ToolDialect dialect) {
  const Json arguments = {
      {"file_path", "src/main.py"},
      {"old_string", "def difference(a, b):\n    return a-b\n"},
      {"new_string", "def difference(a, b):\n    \"\"\"What a has more than b.\"\"\"\n    return a - b\n"},
      {"replace_all", true}};
  const std::string_view before = "I have found the function; it lacks its docstring, and I will write one.\n";
  return fmt::format("{}{}", dialect == model::ToolDialect::kLlama3 ? "" : before,
                     model::format_tool_call(dialect, "search_replace", arguments));
}

// The longest token at each place.
std::vector<model::TokenId> cut(const Vocabulary& vocabulary, std::string_view text) {
  const TokenTrie& trie = vocabulary.trie();
  std::vector<model::TokenId> tokens;
  for (size_t at = 0; at < text.size();) {
    uint32_t node = TokenTrie::kRoot;
    size_t length = 0, k = at;
    model::TokenId token = 0;
    while (k < text.size() && (node = trie.child(node, static_cast<uint8_t>(text[k]))) != TokenTrie::kNoNode) {
      ++k;
      if (trie.tokens(node).empty()) continue;
      token = trie.tokens(node)[0];
      length = k - at;
    }
    tokens.push_back(token);
    at += length;
  }
  return tokens;
}

// us of each token's mask, acceptance included.
Result<std::vector<double>> time_masks(const std::shared_ptr<const Grammar>& grammar,
                                       const std::shared_ptr<const Vocabulary>& vocabulary,
                                       std::span<const model::TokenId> tokens) {
  using Clock = std::chrono::steady_clock;
  Matcher matcher(grammar, vocabulary);
  std::vector<uint64_t> mask(vocabulary->mask_words());
  std::vector<double> times;
  for (const auto token : tokens) {
    const auto start = Clock::now();
    matcher.mask(mask);
    TRY(matcher.accept(token));
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  return times;
}

double mean(const std::vector<double>& times) {
  double sum = 0;
  for (const double time : times) sum += time;
  return sum / static_cast<double>(times.size());
}

Status add_figures(std::string_view name, std::string_view text,
                   const std::function<Result<std::shared_ptr<const Grammar>>()>& compile,
                   const std::shared_ptr<const Vocabulary>& vocabulary, double seconds, std::vector<Figure>& figures) {
  const double compiling = TRY(median_seconds(0, [&]() -> Status { return TRY(compile()), Status(); }));
  figures.push_back({fmt::format("{}: compile", name), compiling * 1e3, "ms"});
  const auto grammar = TRY(compile());
  const auto start = std::chrono::steady_clock::now();
  prepare(grammar, vocabulary);
  const std::chrono::duration<double, std::milli> preparing = std::chrono::steady_clock::now() - start;
  figures.push_back({fmt::format("{}: prepare", name), preparing.count(), "ms"});
  const auto tokens = cut(*vocabulary, text);
  // The first text by this grammar finds only what texts by those before it have left.
  const auto first = TRY(time_masks(grammar, vocabulary, tokens));
  std::vector<double> later;
  TRY(median_seconds(seconds, [&]() -> Status {
    const auto times = TRY(time_masks(grammar, vocabulary, tokens));
    later.insert(later.end(), times.begin(), times.end());
    return {};
  }));
  std::sort(later.begin(), later.end());
  figures.push_back(
      {fmt::format("{}: mask, first text of {} tokens", name, tokens.size()), mean(first), "us", kGoal, "goal"});
  figures.push_back({fmt::format("{}: its slowest", name), *std::max_element(first.begin(), first.end()), "us"});
  figures.push_back({fmt::format("{}: mask, later texts", name), mean(later), "us", kGoal, "goal"});
  figures.push_back({fmt::format("{}: 99 of 100 below", name), later[later.size() * 99 / 100], "us", kGoal, "goal"});
  return {};
}

}  // namespace

Result<std::vector<Figure>> bench_constraints(const Settings& settings) {
  std::shared_ptr<const Vocabulary> vocabulary;
  std::vector<Figure> figures;
  std::optional<model::Tokenizer> tokenizer;
  if (!settings.model.empty()) tokenizer = TRY(model::Tokenizer::load(settings.model));
  const double prepared = TRY(median_seconds(0, [&]() -> Status {
    vocabulary = TRY(tokenizer ? Vocabulary::create(*tokenizer, {}) : made_up_vocabulary());
    return {};
  }));
  if (tokenizer) figures.push_back({fmt::format("vocabulary of {}", tokenizer->size()), prepared * 1e3, "ms"});
  for (const Text& text : kTexts) {
    const auto compile = [&]() -> Result<std::shared_ptr<const Grammar>> {
      return schema_grammar(TRY(parse_json(text.schema)));
    };
    TRY(add_figures(text.name, text.text, compile, vocabulary, settings.seconds, figures));
  }
  const Json tools = TRY(parse_json(kTools));
  for (const auto dialect : model::kToolDialects) {
    TRY(add_figures(
        fmt::format("call of {}", model::name_of(dialect)), text_with_call(dialect),
        [&] { return tool_grammar(dialect, tools, "auto"); }, vocabulary, settings.seconds, figures));
  }
  return figures;
}

}  // namespace tandem::bench
