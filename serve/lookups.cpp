#include "serve/lookups.h"

#include <fmt/format.h>

#include <bit>

#include "base/text.h"

namespace tandem::serve {
namespace {

constexpr FieldRow kTokenizeFields[] = {
    {"model", Effect::kTakes, R"({"type":"string"})", "Default: the first model."},
    {"prompt", Effect::kTakes, R"({"type":"string"})", "A text; or messages in its place."},
    {"messages", Effect::kTakes, R"({"type":"array","minItems":1})", "A conversation, by the model's template."},
    {"tools", Effect::kTakes, R"({"type":"array"})", "Of the conversation."},
    {"add_special_tokens", Effect::kTakes, R"({"type":"boolean"})", "The tokenizer's own around a text. Default true."},
    {"add_generation_prompt", Effect::kTakes, R"({"type":"boolean"})", "Of a conversation. Default true."},
    {"chat_template_kwargs", Effect::kTakes, R"({"type":"object"})", "Variables of the template."},
    {"return_token_strs", Effect::kTakes, R"({"type":"boolean"})", "Adds the tokens as texts."},
};
constexpr FieldRow kDetokenizeFields[] = {
    {"model", Effect::kTakes, R"({"type":"string"})", "Default: the first model."},
    {"tokens", Effect::kTakes, R"({"type":"array","maxItems":10000000})", "Token ids."},
};
constexpr FieldRow kEmbeddingFields[] = {
    {"model", Effect::kTakes, R"({"type":"string"})", "Name of the embedding model."},
    {"input", Effect::kTakes, R"({"type":["string","array"],"minItems":1,"maxItems":2048})",
     "A text, or a list of texts."},
    {"encoding_format", Effect::kTakes, R"({"enum":["float","base64"]})", "Default float."},
    {"dimensions", Effect::kTakes, R"({"type":"integer","minimum":1,"maximum":1000000})", "Must be that of the model."},
    {"user", Effect::kIgnored, R"({"type":"string"})", ""},
};

Result<Json> tokenize(Fields& fields, const ModelView& model) {
  if (fields.has("prompt") == fields.has("messages"))
    return fail(fields.wrong("prompt", "give either \"prompt\" or \"messages\""));
  std::vector<int32_t> ids;
  if (fields.has("prompt")) {
    ids = TRY(encode(fields, "prompt", fields.text("prompt"), model, fields.boolean("add_special_tokens", true)));
  } else {
    model::RenderOptions options{.add_generation_prompt = fields.boolean("add_generation_prompt", true)};
    if (const Json* const variables = fields.get("chat_template_kwargs")) options.variables = *variables;
    const Json* const tools = fields.get("tools");
    auto rendered = model.text.render(*fields.get("messages"), tools == nullptr ? Json() : *tools, std::move(options));
    if (!rendered) return fail(fields.wrong("messages", std::move(rendered).error()));
    ids = std::move(rendered->ids);
  }
  Json answer = {{"count", ids.size()}, {"max_model_len", model.max_tokens}, {"tokens", ids}};
  answer["token_strs"] = nullptr;
  if (fields.boolean("return_token_strs", false)) {
    answer["token_strs"] = Json::array();
    for (const int32_t id : ids) answer["token_strs"].push_back(model.text.tokenizer->name_of(id));
  }
  return answer;
}

Result<Json> detokenize(Fields& fields, const ModelView& model) {
  const auto ids = TRY(read_tokens(fields, "tokens", *fields.get("tokens"), model));
  if (!model.text.tokenizer) return fail(fields.wrong("model", fmt::format("{} has no tokenizer.json", model.name)));
  return Json{{"prompt", model.text.tokenizer->decode(ids)}};
}

std::string base64(std::span<const float> values) {
  static_assert(std::endian::native == std::endian::little);
  constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const auto bytes = std::as_bytes(values);
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) group = group << 8 | (k < count ? std::to_integer<uint32_t>(bytes[i + k]) : 0);
    for (size_t k = 0; k < 4; ++k) out += k <= count ? kLetters[group >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

}  // namespace

Lookup tokenize_lookup() {
  return {"/tokenize", "Token ids of a text or a conversation", {kTokenizeFields}, {}, tokenize};
}
Lookup detokenize_lookup() {
  return {"/detokenize", "The text of token ids", {kDetokenizeFields}, {"tokens"}, detokenize};
}

Result<std::unique_ptr<Embedder>> Embedder::load(const fs::path& directory, int threads) {
  auto stream = TRY(kernels::Stream::cpu(threads));
  auto encoder = TRY(model::TextEncoder::load(directory, stream));
  std::error_code error;
  const auto whole = fs::canonical(directory, error);
  return std::unique_ptr<Embedder>(
      new Embedder((error ? directory : whole).filename().string(), std::move(encoder), std::move(stream)));
}

std::vector<std::span<const FieldRow>> Embedder::fields() { return {kEmbeddingFields}; }

Result<Json> Embedder::answer(Fields& fields) const {
  const Json& input = *fields.get("input");
  std::vector<std::string> texts;
  if (input.is_string()) {
    texts.push_back(input.get<std::string>());
  } else {
    for (const Json& one : input) {
      if (!one.is_string()) return fail(fields.wrong("input", "\"input\" must be a text or a list of texts"));
      texts.push_back(one.get<std::string>());
    }
  }
  const size_t width = encoder_.config().width;
  if (fields.has("dimensions") && fields.integer("dimensions", 0) != static_cast<int>(width))
    return fail(fields.wrong("dimensions", fmt::format("\"dimensions\" must be {}, the model's", width)));
  std::vector<std::vector<model::TokenId>> batch;
  size_t tokens = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    auto ids = encoder_.tokens(texts[i]);
    if (!ids) return fail(fields.wrong("input", fmt::format("input {}: {}", i, ids.error().message())));
    if (ids->truncated)
      return fail(fields.wrong("input", fmt::format("input {} is longer than the model takes; cut it into parts", i)));
    tokens += ids->ids.size();
    batch.push_back(std::move(ids->ids));
  }
  const auto vectors = TRY(encoder_.embed_tokens(stream_, batch));
  Json data = Json::array();
  for (size_t i = 0; i < batch.size(); ++i) {
    const auto vector = std::span(vectors).subspan(i * width, width);
    data.push_back({{"object", "embedding"},
                    {"index", i},
                    {"embedding", fields.text("encoding_format") == "base64" ? Json(base64(vector)) : Json(vector)}});
  }
  return Json{{"object", "list"},
              {"data", std::move(data)},
              {"model", name_},
              {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}}};
}

}  // namespace tandem::serve
