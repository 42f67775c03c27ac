// vLLM's /inference/v1/generate: token in, token out, for RL loops and agents that keep tokens.
#include <fmt/format.h>
#include <sodium.h>

#include "model/routes.h"
#include "serve/endpoints.h"

namespace tandem::serve {
namespace {

constexpr FieldRow kGenerateFields[] = {
    {"token_ids", Effect::kTakes, R"({"type":"array","minItems":1,"maxItems":10000000})", "The prompt."},
    {"sampling_params", Effect::kTakes, R"({"type":"object"})",
     "The fields of sampling, with max_tokens (default 16) and logprobs."},
    {"model", Effect::kTakes, R"({"type":"string"})", "Default: the first model."},
    {"stream", Effect::kTakes, R"({"type":"boolean"})", "The answer comes in server-sent events."},
    {"output_mode", Effect::kTakes, R"({"enum":["tokens","text"]})", "text adds the text. Default tokens."},
    {"priority", Effect::kTakes, R"({"type":"integer","minimum":-2147483648,"maximum":2147483647})",
     "As in chat: lower goes first."},
    {"cache_salt", Effect::kTakes, R"({"type":"string","minLength":1,"maxLength":1024})", "As in chat."},
    {"return_routed_experts", Effect::kTakes, R"({"type":"boolean"})",
     "Of a mixture of experts, by a server with --routes: each choice says as routed_experts which experts its tokens "
     "went to."},
    {"return_token_ids", Effect::kIgnored, R"({"type":"boolean"})", "Token ids are always there."},
    {"request_id", Effect::kTakes, R"({"type":"string","maxLength":200})", "Comes back in the answer."},
    {"session_id", Effect::kIgnored, R"({"type":"string"})", ""},
};
constexpr FieldRow kParameterFields[] = {
    {"max_tokens", Effect::kTakes, R"({"type":"integer","minimum":0,"maximum":2147483647})", ""},
    {"logprobs", Effect::kTakes, R"({"type":"integer","minimum":0,"maximum":20})", ""},
    {"response_format", Effect::kTakes, R"({"type":"object"})", ""},
    {"detokenize", Effect::kIgnored, R"({"type":"boolean"})", ""},
};

// Ranges of tokens that were sampled under one version of the weights.
Json versions_of(const Choice& choice) {
  Json spans = Json::array();
  const auto& tokens = choice.tokens();
  for (size_t begin = 0; begin < tokens.size();) {
    size_t end = begin;
    while (end < tokens.size() && tokens[end].version == tokens[begin].version) ++end;
    spans.push_back({{"version", tokens[begin].version}, {"start", begin}, {"end", end}});
    begin = end;
  }
  return spans;
}

// A file of numpy, in base64: [tokens - 1, layers with experts, top_k], uint8 or uint16.
std::string routes_of(const RouteShape& shape, const std::vector<uint8_t>& rows) {
  const size_t count = rows.size() / shape.row_bytes();
  std::string head = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}, {}, {}), }}",
                                 shape.id_bytes() == 1 ? "|u1" : "<u2", count, shape.layers, shape.top_k);
  constexpr size_t kBefore = 10, kAlignment = 64;  // magic, version and length; what numpy aligns its numbers to
  head.resize((kBefore + head.size() + kAlignment) / kAlignment * kAlignment - kBefore - 1, ' ');
  head += '\n';
  std::string file("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(head.size() % 256);
  file += static_cast<char>(head.size() / 256);
  file += head;
  file.append(reinterpret_cast<const char*>(rows.data()), rows.size());
  std::string text(sodium_base64_ENCODED_LEN(file.size(), sodium_base64_VARIANT_ORIGINAL), '\0');
  sodium_bin2base64(text.data(), text.size(), reinterpret_cast<const unsigned char*>(file.data()), file.size(),
                    sodium_base64_VARIANT_ORIGINAL);
  text.resize(text.size() - 1);  // the zero at its end
  return text;
}

class GenerateShape final : public Shape {
 public:
  struct Options {
    std::string id;
    bool logprobs = false, text = false, prompt_logprobs = false;
    RouteShape routes;  // that are wanted
    const model::Tokenizer* tokenizer = nullptr;
  };
  explicit GenerateShape(Options options) : options_(std::move(options)) {}

  Json whole(const AnswerView& view) const override {
    Json choices = Json::array();
    for (size_t i = 0; i < view.choices.size(); ++i) choices.push_back(answer(view, i, 0, SIZE_MAX));
    Json body = {{"request_id", options_.id}, {"choices", std::move(choices)}, {"usage", json_of(view.usage())}};
    if (options_.prompt_logprobs) {
      Json logprobs = Json::array({nullptr});
      for (const auto& one : view.choices[0].prompt()) logprobs.push_back(json_of_logprob(one.logprob));
      body["prompt_token_id_logprobs"] = std::move(logprobs);
    }
    return body;
  }
  void begin(const AnswerView&, EventWriter&) override {}
  void piece(const AnswerView& view, size_t index, const Piece& piece, EventWriter& out) override {
    Json part = answer(view, index, piece.first_token, piece.tokens);
    if (options_.text) part["text"] = piece.text;
    out.add({{"request_id", options_.id}, {"choices", Json::array({std::move(part)})}});
  }
  void end(const AnswerView& view, EventWriter& out) override {
    out.add({{"request_id", options_.id}, {"choices", Json::array()}, {"usage", json_of(view.usage())}});
    out.end();
  }

 private:
  Json answer(const AnswerView& view, size_t index, size_t first, size_t count) const {
    const Choice& choice = view.choices[index];
    const size_t end = std::min(choice.tokens().size(), count == SIZE_MAX ? SIZE_MAX : first + count);
    Json ids = Json::array(), content = Json::array();
    for (size_t i = first; i < end; ++i) {
      const auto& token = choice.tokens()[i];
      ids.push_back(token.token);
      Json one = {{"token_id", token.token},
                  {"logprob", json_of_logprob(token.logprob)},
                  {"sampling_logprob", json_of_logprob(token.sampling_logprob)}};
      for (const auto& [other, logprob] : token.top)
        one["top_logprobs"].push_back({{"token_id", other}, {"logprob", json_of_logprob(logprob)}});
      content.push_back(std::move(one));
    }
    Json part = {{"index", index},
                 {"token_ids", std::move(ids)},
                 {"finish_reason", choice.ended() ? Json(name_of(choice.finish())) : Json()},
                 {"stop_reason", choice.stop_reason()},
                 {"logprobs", options_.logprobs ? Json({{"content", std::move(content)}}) : Json()},
                 {"weight_versions", versions_of(choice)}};
    if (options_.text) part["text"] = choice.text();
    if (options_.routes.any() && choice.ended()) part["routed_experts"] = routes_of(options_.routes, choice.routes());
    return part;
  }

  const Options options_;
};

Status check_routes(Fields& fields, const ModelView& model, const Generation& generation) {
  constexpr std::string_view kParam = "return_routed_experts";
  if (!model::route_shape(model.config).any())
    return fields.wrong(kParam, fmt::format("the model {} is no mixture of experts", model.name));
  if (!model.routes.any())
    return fields.wrong(kParam, "this server records no routes; it does with --routes (serve.routes)");
  if (generation.choice->most_tokens == 0)
    return fields.wrong(kParam, "the routes come with an answer, and max_tokens is 0; ask for one token at least");
  return {};
}

Result<Prepared> prepare_generate(Fields& fields, const ModelView& model, const std::string& id, int64_t) {
  Prepared prepared;
  Generation& generation = prepared.generation;
  static constexpr std::string_view kParam = "sampling_params";
  Fields parameters;
  static const FieldTable table({sampling_fields(), kParameterFields});
  const Json* const given = fields.get(kParam);
  const auto blame = [&](Status status) {
    return fields.wrong(
        parameters.param().empty() ? std::string(kParam) : fmt::format("{}.{}", kParam, parameters.param()),
        std::move(status));
  };
  const auto read = [&]() -> Status {
    TRY(parameters.read(table, given == nullptr ? "{}" : dump_json(*given)));
    TRY(read_sampling(parameters, model, "max_tokens", 16, generation));
    return read_response_format(parameters, model, generation);
  };
  if (Status status = read(); !status.ok()) return fail(blame(std::move(status)));
  generation.prompts.push_back(TRY(read_tokens(fields, "token_ids", *fields.get("token_ids"), model)));
  TRY(fit_answer(fields, "token_ids", model, generation));
  generation.turn.top_logprobs = parameters.integer("logprobs", 0);
  if (fields.has("cache_salt")) generation.turn.cache_salt = fields.text("cache_salt");
  if (fields.has("priority")) generation.priority = priority_of_number(fields.integer("priority", 0));
  const bool routes = fields.boolean("return_routed_experts", false);
  if (routes) TRY(check_routes(fields, model, generation));
  generation.choice->routes = routes;
  prepared.stream = fields.boolean("stream", false);
  if (prepared.stream && generation.turn.prompt_logprobs)
    return fail(fields.wrong("stream", "\"prompt_logprobs\" and \"stream\" do not go together"));
  prepared.shape =
      std::make_unique<GenerateShape>(GenerateShape::Options{.id = fields.text("request_id", "gen-" + id),
                                                             .logprobs = parameters.has("logprobs"),
                                                             .text = fields.text("output_mode", "tokens") == "text",
                                                             .prompt_logprobs = parameters.has("prompt_logprobs"),
                                                             .routes = routes ? model.routes : RouteShape(),
                                                             .tokenizer = model.text.tokenizer_or_null()});
  return prepared;
}

}  // namespace

Endpoint generate_endpoint() {
  return {"/inference/v1/generate", "Tokens that follow tokens", {kGenerateFields}, {"token_ids"}, prepare_generate};
}

}  // namespace tandem::serve
