// OpenAI's /v1/completions, with echo, logprobs and fill-in-the-middle.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "serve/endpoints.h"

namespace tandem::serve {
namespace {

constexpr FieldRow kCompletionFields[] = {
    {"prompt", Effect::kTakes, R"({"type":["string","array"],"minItems":1,"maxItems":1000000})",
     "A text, tokens, a list of texts, or a list of lists of tokens."},
    {"max_tokens", Effect::kTakes, R"({"type":"integer","minimum":0,"maximum":2147483647})",
     "Most tokens of the answer. Default 16."},
    {"echo", Effect::kTakes, R"({"type":"boolean"})",
     "The answer begins with the prompt; the first logprob is null. With suffix, logprobs are of the answer alone."},
    {"logprobs", Effect::kTakes, R"({"type":"integer","minimum":0,"maximum":20})",
     "Logprobs of the tokens, and of so many likeliest ones beside each."},
    {"suffix", Effect::kTakes, R"({"type":"string"})",
     "Text behind the answer, for models with marks for fill-in-the-middle."},
    {"response_format", Effect::kTakes, R"({"type":"object"})",
     "text, json_object, or json_schema: the answer is valid by construction."},
    {"add_special_tokens", Effect::kTakes, R"({"type":"boolean"})",
     "The tokenizer's own around a text, such as a begin token. Default true."},
    {"best_of", Effect::kTakes, R"({"type":"integer","minimum":0,"maximum":128})",
     "So many answers are sampled, and the n of them whose tokens are likeliest on average come back, the best first."},
};

// Marks of fill-in-the-middle, by family: before the prefix, before the suffix, before the middle.
struct MiddleMarks {
  std::string_view prefix, suffix, middle;
  bool suffix_first = false;  // Codestral: suffix, then prefix, and no third mark
};
constexpr MiddleMarks kMiddleMarks[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},  // Qwen2.5-Coder, Qwen3-Coder
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},        // StarCoder
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},        // SantaCoder
    {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},  // DeepSeek-Coder
    {"▁<PRE>", "▁<SUF>", "▁<MID>"},                          // CodeLlama
    {"[PREFIX]", "[SUFFIX]", "", true},                      // Codestral
};

Result<std::vector<int32_t>> middle_prompt(Fields& fields, const std::string& prefix, const std::string& suffix,
                                           const ModelView& model) {
  const auto* const tokenizer = model.text.tokenizer_or_null();
  for (const auto& marks : kMiddleMarks) {
    const auto id = [&](std::string_view mark) {
      return tokenizer == nullptr || mark.empty() ? std::nullopt : tokenizer->find(mark);
    };
    const auto before = id(marks.prefix), between = id(marks.suffix), middle = id(marks.middle);
    if (!before || !between || (!middle && !marks.suffix_first)) continue;
    const auto head = TRY(encode(fields, "prompt", prefix, model, false));
    const auto tail = TRY(encode(fields, "suffix", suffix, model, false));
    std::vector<int32_t> ids;
    const auto put = [&](int32_t mark, const std::vector<int32_t>& text) {
      ids.push_back(mark);
      ids.insert(ids.end(), text.begin(), text.end());
    };
    if (marks.suffix_first) {
      put(*between, tail);
      put(*before, head);
      return ids;
    }
    put(*before, head);
    put(*between, tail);
    ids.push_back(*middle);
    return ids;
  }
  return fail(fields.wrong(
      "suffix", fmt::format("{} has no marks for fill-in-the-middle, so \"suffix\" cannot be used", model.name)));
}

// The mean over an answer's tokens; an answer of none comes last.
double mean_logprob(const Choice& choice) {
  if (choice.tokens().empty()) return -std::numeric_limits<double>::infinity();
  double sum = 0;
  for (const auto& token : choice.tokens()) sum += token.logprob;
  return sum / static_cast<double>(choice.tokens().size());
}

class CompletionShape final : public Shape {
 public:
  struct Options {
    std::string id, model;
    int64_t created = 0;
    bool logprobs = false, echo = false;
    bool echo_logprobs = false;  // of the prompt; not where it lies around the answer (suffix)
    bool token_ids = false, prompt_logprobs = false;
    bool include_usage = false, continuous_usage = false;
    const model::Tokenizer* tokenizer = nullptr;
    std::vector<std::string> prompts;  // as texts, for echo
    int best = 0;                      // answers to each prompt that come back, the likeliest; 0: all
  };
  explicit CompletionShape(Options options) : options_(std::move(options)) {}

  Json whole(const AnswerView& view) const override {
    Json choices = Json::array();
    for (const size_t i : returned(view)) {
      const Choice& choice = view.choices[i];
      Json answer = {{"index", choices.size()},
                     {"text", (options_.echo ? options_.prompts[i / view.n] : "") + choice.text()},
                     {"logprobs", nullptr},
                     {"finish_reason", name_of(choice.finish())},
                     {"stop_reason", choice.stop_reason()}};
      if (options_.logprobs) {
        Json lists = empty_logprobs();
        size_t offset = 0;
        if (options_.echo_logprobs) put_prompt(view, i, lists, offset);
        put_tokens(choice, 0, choice.tokens().size(), lists, offset);
        answer["logprobs"] = std::move(lists);
      }
      if (options_.token_ids) {
        answer["token_ids"] = ids_of(choice, 0, choice.tokens().size());
        answer["prompt_token_ids"] = view.prompts[i / view.n];
      }
      if (options_.prompt_logprobs) {
        answer["prompt_logprobs"] = prompt_logprobs_of(options_.tokenizer, view.prompts[i / view.n], view.choices[i]);
      }
      choices.push_back(std::move(answer));
    }
    return {{"id", options_.id},
            {"object", "text_completion"},
            {"created", options_.created},
            {"model", options_.model},
            {"choices", std::move(choices)},
            {"usage", json_of(view.usage())},
            {"system_fingerprint", nullptr}};
  }

  // Which choices come back.
  std::vector<size_t> returned(const AnswerView& view) const {
    std::vector<size_t> all(view.choices.size());
    std::iota(all.begin(), all.end(), size_t{0});
    if (options_.best == 0) return all;
    std::vector<size_t> best;
    for (auto first = all.begin(); first != all.end(); first += view.n) {
      std::stable_sort(first, first + view.n, [&](size_t a, size_t b) {
        return mean_logprob(view.choices[a]) > mean_logprob(view.choices[b]);
      });
      best.insert(best.end(), first, first + options_.best);
    }
    return best;
  }

  void begin(const AnswerView& view, EventWriter& out) override {
    offsets_.assign(view.choices.size(), 0);
    for (size_t i = 0; options_.echo && !options_.logprobs && i < view.choices.size(); ++i)
      send(view, i, options_.prompts[i / view.n], Json(), Json(), out);
  }

  void piece(const AnswerView& view, size_t index, const Piece& piece, EventWriter& out) override {
    const Choice& choice = view.choices[index];
    const bool first = piece.first_token == 0;
    std::string text = piece.reasoning + piece.text;
    Json lists;
    if (options_.logprobs) {
      lists = empty_logprobs();
      if (options_.echo && first) {
        text = options_.prompts[index / view.n] + text;
        if (options_.echo_logprobs) put_prompt(view, index, lists, offsets_[index]);
      }
      put_tokens(choice, piece.first_token, piece.tokens, lists, offsets_[index]);
    }
    if (text.empty() && !piece.finish && !options_.logprobs && !options_.token_ids) return;
    Json chunk =
        send_body(view, index, std::move(text), std::move(lists), piece.finish ? Json(name_of(*piece.finish)) : Json());
    if (options_.token_ids) {
      chunk["choices"][0]["token_ids"] = ids_of(choice, piece.first_token, piece.tokens);
      if (first) chunk["choices"][0]["prompt_token_ids"] = view.prompts[index / view.n];
    }
    if (piece.finish) chunk["choices"][0]["stop_reason"] = choice.stop_reason();
    out.add(chunk);
  }

  void end(const AnswerView& view, EventWriter& out) override {
    if (options_.include_usage) {
      Json chunk = send_body(view, 0, "", Json(), Json());
      chunk["choices"] = Json::array();
      chunk["usage"] = json_of(view.usage());
      out.add(chunk);
    }
    out.end();
  }

 private:
  static Json empty_logprobs() {
    return {{"tokens", Json::array()},
            {"token_logprobs", Json::array()},
            {"top_logprobs", Json::array()},
            {"text_offset", Json::array()}};
  }
  void put(int32_t token, Json logprob, std::span<const model::TokenLogprob> top, Json& lists, size_t& offset) const {
    const std::string text = token_text(options_.tokenizer, token);
    lists["tokens"].push_back(text);
    lists["text_offset"].push_back(offset);
    // In characters, as clients in other languages count.
    offset += static_cast<size_t>(std::ranges::count_if(text, [](unsigned char c) { return (c & 0xC0) != 0x80; }));
    Json tops;
    if (!logprob.is_null()) {
      tops = Json::object();
      for (const auto& [other, value] : top) tops[token_text(options_.tokenizer, other)] = json_of_logprob(value);
      tops[text] = logprob;
    }
    lists["token_logprobs"].push_back(std::move(logprob));
    lists["top_logprobs"].push_back(std::move(tops));
  }
  void put_prompt(const AnswerView& view, size_t index, Json& lists, size_t& offset) const {
    const auto& prompt = view.prompts[index / view.n];
    const auto& scores = view.choices[index].prompt();
    for (size_t at = 0; at < prompt.size(); ++at) {
      const bool known = at > 0 && at <= scores.size();
      put(prompt[at], known ? json_of_logprob(scores[at - 1].logprob) : Json(),
          known ? std::span(scores[at - 1].top) : std::span<const model::TokenLogprob>(), lists, offset);
    }
  }
  void put_tokens(const Choice& choice, size_t first, size_t count, Json& lists, size_t& offset) const {
    for (size_t i = first; i < first + count; ++i) {
      const auto& token = choice.tokens()[i];
      put(token.token, json_of_logprob(token.logprob), token.top, lists, offset);
    }
  }
  Json send_body(const AnswerView& view, size_t index, std::string text, Json logprobs, Json finish) const {
    Json chunk = {{"id", options_.id},
                  {"object", "text_completion"},
                  {"created", options_.created},
                  {"model", options_.model},
                  {"system_fingerprint", nullptr},
                  {"choices", Json::array({{{"index", index},
                                            {"text", std::move(text)},
                                            {"logprobs", std::move(logprobs)},
                                            {"finish_reason", std::move(finish)}}})}};
    if (options_.continuous_usage)
      chunk["usage"] = json_of(view.usage());
    else if (options_.include_usage)
      chunk["usage"] = nullptr;
    return chunk;
  }
  void send(const AnswerView& view, size_t index, std::string text, Json logprobs, Json finish,
            EventWriter& out) const {
    out.add(send_body(view, index, std::move(text), std::move(logprobs), std::move(finish)));
  }

  const Options options_;
  std::vector<size_t> offsets_;
};

// A text, tokens, or a list of either.
Status read_prompts(Fields& fields, const ModelView& model, Generation& generation) {
  const Json& prompt = *fields.get("prompt");
  const bool special = fields.boolean("add_special_tokens", true);
  constexpr size_t kMostPrompts = 1024;
  if (const Json* const suffix = fields.get("suffix"); suffix != nullptr) {
    if (!prompt.is_string()) return fields.wrong("prompt", "\"suffix\" goes with a \"prompt\" that is a text");
    generation.prompts.push_back(
        TRY(middle_prompt(fields, prompt.get<std::string>(), suffix->get<std::string>(), model)));
    return {};
  }
  if (prompt.is_string()) {
    generation.prompts.push_back(TRY(encode(fields, "prompt", prompt.get<std::string>(), model, special)));
  } else if (prompt[0].is_number()) {
    generation.prompts.push_back(TRY(read_tokens(fields, "prompt", prompt, model)));
  } else {
    if (prompt.size() > kMostPrompts)
      return fields.wrong(
          "prompt", fmt::format("\"prompt\" has {} prompts, at most {} go together", prompt.size(), kMostPrompts));
    for (const Json& one : prompt) {
      if (one.is_string()) {
        generation.prompts.push_back(TRY(encode(fields, "prompt", one.get<std::string>(), model, special)));
      } else if (one.is_array()) {
        generation.prompts.push_back(TRY(read_tokens(fields, "prompt", one, model)));
      } else {
        return fields.wrong("prompt",
                            "\"prompt\" must be a text, tokens, a list of texts or a list of lists of tokens");
      }
    }
  }
  return {};
}

Result<Prepared> prepare_completion(Fields& fields, const ModelView& model, const std::string& id, int64_t created) {
  Prepared prepared;
  Generation& generation = prepared.generation;
  TRY(read_sampling(fields, model, "max_tokens", 16, generation));
  TRY(read_prompts(fields, model, generation));
  TRY(read_response_format(fields, model, generation));
  TRY(fit_answer(fields, "prompt", model, generation));
  const bool logprobs = fields.has("logprobs");
  const bool echo = fields.boolean("echo", false);
  const int tops = fields.integer("logprobs", 0);
  generation.turn.top_logprobs = tops;
  const bool in_the_middle = fields.has("suffix");
  if (echo && logprobs && !in_the_middle) {
    generation.turn.prompt_logprobs = true;
    generation.turn.prompt_top_logprobs = std::max(tops, generation.turn.prompt_top_logprobs);
  }
  CompletionShape::Options options{.id = "cmpl-" + id,
                                   .model = model.name,
                                   .created = created,
                                   .logprobs = logprobs,
                                   .echo = echo,
                                   .echo_logprobs = echo && logprobs && !in_the_middle,
                                   .token_ids = fields.boolean("return_token_ids", false),
                                   .prompt_logprobs = fields.has("prompt_logprobs"),
                                   .tokenizer = model.text.tokenizer_or_null()};
  if (const Json* const stream_options = fields.get("stream_options")) {
    options.include_usage = stream_options->value("include_usage", Json(false)) == Json(true);
    options.continuous_usage = stream_options->value("continuous_usage_stats", Json(false)) == Json(true);
  }
  if (echo && options.tokenizer == nullptr)
    return fail(fields.wrong("echo", fmt::format("{} has no tokenizer.json, so there is no text to echo", model.name)));
  for (const auto& prompt : generation.prompts) {
    if (echo) options.prompts.push_back(in_the_middle ? fields.text("prompt") : options.tokenizer->decode(prompt));
  }
  prepared.stream = fields.boolean("stream", false);
  if (const int sampled = fields.integer("best_of", 0); sampled > 1 && sampled != generation.n) {
    if (sampled < generation.n) {
      return fail(fields.wrong(
          "best_of", fmt::format("\"best_of\" is {}, and must be at least the {} of \"n\"", sampled, generation.n)));
    }
    if (prepared.stream)
      return fail(
          fields.wrong("best_of", "\"best_of\" and \"stream\" do not go together: the best is known at the end"));
    options.best = std::exchange(generation.n, sampled);
  }
  prepared.shape = std::make_unique<CompletionShape>(std::move(options));
  return prepared;
}

}  // namespace

Endpoint completions_endpoint() {
  return {"/v1/completions",
          "Text that follows a prompt",
          {sampling_fields(), kCompletionFields},
          {"model", "prompt"},
          prepare_completion};
}

}  // namespace tandem::serve
