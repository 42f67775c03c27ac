#include "model/text_encoder.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem::model {

Result<TextEncoder> TextEncoder::load(const fs::path& directory, kernels::Stream& stream) {
  auto tokenizer = TRY(Tokenizer::load(directory));
  auto encoder = TRY(Encoder::load(directory, stream));
  const auto& config = encoder.config();
  if (tokenizer.size() > config.vocabulary) {
    return fail(
        Status::invalid(fmt::format("the tokenizer has {} tokens, the encoder {}", tokenizer.size(), config.vocabulary))
            .at(directory.string()));
  }
  if (tokenizer.special_count() >= static_cast<size_t>(config.longest)) {
    return fail(Status::invalid(fmt::format("texts of at most {} tokens leave no room beside {} special ones",
                                            config.longest, tokenizer.special_count()))
                    .at(directory.string()));
  }
  return TextEncoder(std::move(tokenizer), std::move(encoder));
}

Result<Digest> TextEncoder::identity(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::recursive_directory_iterator(directory, error)) {
    const auto name = entry.path().lexically_relative(directory).string();
    const bool counts = name.ends_with(".safetensors") || name.ends_with("config.json") || name == "tokenizer.json" ||
                        name == "modules.json" || name == "model.safetensors.index.json";
    if (counts && entry.is_regular_file(error)) names.push_back(name);
  }
  if (error || names.empty())
    return fail(Status::invalid("is no directory of a sentence encoder").at(directory.string()));
  std::sort(names.begin(), names.end());
  std::string all;
  for (const auto& name : names) {
    const auto file = TRY(MappedFile::open(directory / name));
    all += fmt::format("{}\n{}\n", name, digest_of(file.bytes()).hex());
  }
  return digest_of(all);
}

// What is longer than the model takes loses its end, as sentence-transformers does it; special tokens stay.
Result<TextEncoder::Tokens> TextEncoder::tokens(std::string_view text) const {
  auto ids = TRY(tokenizer_.encode(text));
  const size_t most = static_cast<size_t>(config().longest) - tokenizer_.special_count();
  Tokens tokens{.truncated = ids.size() > most};
  if (tokens.truncated) ids.resize(most);
  tokens.ids = tokenizer_.with_special(ids);
  if (tokens.ids.empty()) return fail(Status::invalid("the text has no tokens"));
  return tokens;
}

Result<std::vector<float>> TextEncoder::embed(kernels::Stream& stream, std::span<const std::string> texts) const {
  std::vector<float> vectors;
  vectors.reserve(texts.size() * static_cast<size_t>(config().width));
  std::vector<std::vector<TokenId>> batch;
  size_t tokens_of_batch = 0;
  const auto flush = [&]() -> Status {
    const auto more = TRY(encoder_.embed(stream, batch));
    vectors.insert(vectors.end(), more.begin(), more.end());
    batch.clear();
    tokens_of_batch = 0;
    return {};
  };
  for (const auto& text : texts) {
    auto ids = TRY(tokens(text)).ids;
    if (!batch.empty() && tokens_of_batch + ids.size() > kEncoderBatchTokens) TRY(flush());
    tokens_of_batch += ids.size();
    batch.push_back(std::move(ids));
  }
  if (!batch.empty()) TRY(flush());
  return vectors;
}

}  // namespace tandem::model
