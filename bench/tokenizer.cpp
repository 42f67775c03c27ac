// Text into tokens and back, one thread.
#include "model/tokenizer.h"

#include <fmt/format.h>

#include "bench/measure.h"

namespace tandem::bench {

namespace {

constexpr size_t kBytes = 1'000'000;

}  // namespace

Result<std::vector<Figure>> bench_tokenizer(const Settings& settings) {
  if (settings.model.empty())
    return fail(Status::invalid("there is no tokenizer to measure").hint("name a model directory with --model"));
  const std::string text = settings.text.empty() ? made_up_code(kBytes) : TRY(read_file(settings.text, 1 << 30));
  std::vector<Figure> figures;
  const auto add = [&](const char* name, double seconds) {
    figures.push_back({name, static_cast<double>(text.size()) / seconds / 1e6, "MB/s"});
  };
  const double loading =
      TRY(median_seconds(0, [&]() -> Status { return TRY(model::Tokenizer::load(settings.model)), Status(); }));
  const auto tokenizer = TRY(model::Tokenizer::load(settings.model));
  std::vector<model::TokenId> ids;
  add("encode", TRY(median_seconds(settings.seconds, [&]() -> Status {
        ids = TRY(tokenizer.encode(text));
        return {};
      })));
  add("encode, with the ends of tokens", TRY(median_seconds(settings.seconds, [&]() -> Status {
        return TRY(tokenizer.encode_with_ends(text)), Status();
      })));
  add("decode", TRY(median_seconds(settings.seconds, [&]() -> Status {
        return tokenizer.decode(ids).empty() ? Status::internal("decoded to nothing") : Status();
      })));
  add("decode token by token", TRY(median_seconds(settings.seconds, [&]() -> Status {
        model::StreamDecoder decoder(tokenizer);
        size_t bytes = 0;
        for (const auto id : ids) bytes += decoder.push(id).size();
        return bytes + decoder.finish().size() == 0 ? Status::internal("decoded to nothing") : Status();
      })));
  figures.push_back({"load", loading * 1e3, "ms"});
  return figures;
}

}  // namespace tandem::bench
