#include "model/gguf_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/text.h"

namespace tandem::model {
namespace {

// The regular expressions of the Hugging Face tokenizers, which llama.cpp names by what it calls the pre-tokenizer.
constexpr const char* kLlama3Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

enum TokenType { kNormal = 1, kControl = 3, kUserDefined = 4 };

Json byte_level(bool use_regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

Json split_then_bytes(const char* regex) {
  const Json split = {{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}, {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", {split, byte_level(false)}}};
}

struct Preset {
  Json normalizer;
  Json pre_tokenizer;
  bool ignore_merges = false;
};

std::optional<Preset> preset_of(std::string_view pre) {
  if (pre == "smollm") {
    const Json digits = {{"type", "Digits"}, {"individual_digits", true}};
    return Preset{nullptr, {{"type", "Sequence"}, {"pretokenizers", {digits, byte_level(true)}}}};
  }
  if (pre == "gpt-2") return Preset{nullptr, byte_level(true)};
  if (pre == "llama-bpe" || pre == "llama3" || pre == "llama-v3") {
    return Preset{nullptr, split_then_bytes(kLlama3Regex), true};
  }
  if (pre == "qwen2") return Preset{{{"type", "NFC"}}, split_then_bytes(kQwen2Regex)};
  return std::nullopt;
}

Result<const Json*> need(const Json& metadata, const char* key, Json::value_t type) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) return fail(Status::invalid(fmt::format("metadata lacks {}", key)));
  if (found->type() != type) return fail(Status::invalid(fmt::format("metadata {} is {}", key, found->type_name())));
  return &*found;
}

// The token whose id stands under `key`; absent where the key is.
Result<std::optional<std::string>> special_token(const Json& metadata, const char* key, const Json& tokens) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) return std::optional<std::string>();
  if (!found->is_number_unsigned() || found->get<uint64_t>() >= tokens.size()) {
    return fail(Status::invalid(fmt::format("metadata {} is {}, of {} tokens", key, dump_json(*found), tokens.size())));
  }
  return std::optional(tokens[found->get<uint64_t>()].get<std::string>());
}

struct SpecialToken {
  std::string name;
  size_t id = 0;
};

// Around each text, where they are there.
Json template_processing(const std::optional<SpecialToken>& before, const std::optional<SpecialToken>& after) {
  Json special = Json::object();
  const auto around = [&](Json& to, const char* text, int type) {
    const auto add = [&](const std::optional<SpecialToken>& token) {
      if (!token) return;
      to.push_back({{"SpecialToken", {{"id", token->name}, {"type_id", type}}}});
      special[token->name] = {{"id", token->name}, {"ids", {token->id}}, {"tokens", {token->name}}};
    };
    add(before);
    to.push_back({{"Sequence", {{"id", text}, {"type_id", type}}}});
    add(after);
  };
  Json single = Json::array(), pair = Json::array();
  around(single, "A", 0);
  around(pair, "A", 0);
  around(pair, "B", 1);
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", special}};
}

// The vocabulary is written in the order of its texts, as HF's own files are in that of the ids: readers do not care.
Result<Json> bpe_model(const Json& tokens, const Json& merges, bool ignore_merges) {
  Json vocabulary = Json::object();
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (!tokens[id].is_string() || !vocabulary.emplace(tokens[id].get<std::string>(), id).second) {
      return fail(Status::invalid(fmt::format("token {} is no string or stands twice: {}", id, dump_json(tokens[id]))));
    }
  }
  Json pairs = Json::array();
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const std::string text = merges[rank].is_string() ? merges[rank].get<std::string>() : "";
    const size_t space = text.find(' ', 1);
    if (space == std::string::npos || !vocabulary.contains(text.substr(0, space)) ||
        !vocabulary.contains(text.substr(space + 1)) ||
        !vocabulary.contains(text.substr(0, space) + text.substr(space + 1))) {
      return fail(
          Status::invalid(fmt::format("merge {} ({}) is not of two tokens to a third", rank, dump_json(merges[rank]))));
    }
    pairs.push_back({text.substr(0, space), text.substr(space + 1)});
  }
  return Json{{"type", "BPE"},
              {"dropout", nullptr},
              {"unk_token", nullptr},
              {"continuing_subword_prefix", nullptr},
              {"end_of_word_suffix", nullptr},
              {"fuse_unk", false},
              {"byte_fallback", false},
              {"ignore_merges", ignore_merges},
              {"vocab", vocabulary.sorted()},
              {"merges", std::move(pairs)}};
}

}  // namespace

Result<TokenizerFiles> tokenizer_files(const Gguf& gguf, int max_positions) {
  const Json& metadata = gguf.metadata();
  const auto& kind = *TRY(need(metadata, "tokenizer.ggml.model", Json::value_t::string));
  if (kind != "gpt2") {
    return fail(Status::invalid(
        fmt::format("tokenizer.ggml.model {} is not supported; gpt2 (byte-level BPE) is", dump_json(kind))));
  }
  const auto pre = TRY(need(metadata, "tokenizer.ggml.pre", Json::value_t::string))->get<std::string>();
  const auto preset = preset_of(pre);
  if (!preset) {
    return fail(
        Status::invalid(fmt::format("tokenizer.ggml.pre \"{}\" is not one of smollm, gpt-2, llama-bpe, qwen2", pre)));
  }
  const auto& tokens = *TRY(need(metadata, "tokenizer.ggml.tokens", Json::value_t::array));
  const auto& merges = *TRY(need(metadata, "tokenizer.ggml.merges", Json::value_t::array));
  const auto& types = *TRY(need(metadata, "tokenizer.ggml.token_type", Json::value_t::array));
  if (types.size() != tokens.size()) {
    return fail(Status::invalid(fmt::format("{} token types for {} tokens", types.size(), tokens.size())));
  }

  TokenizerFiles files;
  Json model = TRY(bpe_model(tokens, merges, preset->ignore_merges));
  Json added = Json::array();
  Json decoder = Json::object();
  for (size_t id = 0; id < tokens.size(); ++id) {
    const int type = types[id].is_number_integer() ? types[id].get<int>() : 0;
    if (type != kControl && type != kUserDefined) continue;
    const Json token = {{"content", tokens[id].get<std::string>()},
                        {"single_word", false},
                        {"lstrip", false},
                        {"rstrip", false},
                        {"normalized", false},
                        {"special", type == kControl}};
    Json entry = {{"id", id}};
    entry.update(token);
    added.push_back(entry);
    decoder[std::to_string(id)] = token;
  }
  Json post_processor = byte_level(true);
  const auto added_where = [&](const char* asked, const char* key) -> Result<std::optional<SpecialToken>> {
    const auto token = TRY(special_token(metadata, key, tokens));
    const auto adds = metadata.find(asked);
    if (!token || adds == metadata.end() || *adds != true) return std::optional<SpecialToken>();
    return std::optional(SpecialToken{*token, metadata[key].get<size_t>()});
  };
  const auto bos = TRY(added_where("tokenizer.ggml.add_bos_token", "tokenizer.ggml.bos_token_id"));
  const auto eos = TRY(added_where("tokenizer.ggml.add_eos_token", "tokenizer.ggml.eos_token_id"));
  if (bos || eos) post_processor = template_processing(bos, eos);
  files.tokenizer = {{"version", "1.0"},
                     {"truncation", nullptr},
                     {"padding", nullptr},
                     {"added_tokens", added},
                     {"normalizer", preset->normalizer},
                     {"pre_tokenizer", preset->pre_tokenizer},
                     {"post_processor", post_processor},
                     {"decoder", byte_level(true)},
                     {"model", std::move(model)}};

  Json& config = files.tokenizer_config;
  config = {{"added_tokens_decoder", decoder},
            {"clean_up_tokenization_spaces", false},
            {"model_max_length", max_positions},
            {"tokenizer_class", "PreTrainedTokenizerFast"}};
  const std::pair<const char*, const char*> names[] = {{"bos_token", "tokenizer.ggml.bos_token_id"},
                                                       {"eos_token", "tokenizer.ggml.eos_token_id"},
                                                       {"pad_token", "tokenizer.ggml.padding_token_id"},
                                                       {"unk_token", "tokenizer.ggml.unknown_token_id"}};
  files.special_tokens_map = Json::object();
  for (const auto& [name, key] : names) {
    const auto token = TRY(special_token(metadata, key, tokens));
    if (!token) continue;
    config[name] = *token;
    files.special_tokens_map[name] = *token;
  }
  if (const auto found = metadata.find("tokenizer.chat_template"); found != metadata.end() && found->is_string()) {
    config["chat_template"] = found->get<std::string>();
  }
  // Others by name stand beside it.
  constexpr std::string_view kNamed = "tokenizer.chat_template.";
  Json named = Json::array();
  for (const auto& [key, value] : metadata.items())
    if (key.starts_with(kNamed) && value.is_string())
      named.push_back({{"name", key.substr(kNamed.size())}, {"template", value}});
  if (!named.empty()) {
    if (config.contains("chat_template")) named.push_back({{"name", "default"}, {"template", config["chat_template"]}});
    config["chat_template"] = std::move(named);
  }
  return files;
}

}  // namespace tandem::model
