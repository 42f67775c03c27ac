// Text into tokens and back, one thread.
#include "model/tokenizer.h"

#include <fmt/format.h>

#include <array>

#include "base/random.h"
#include "bench/measure.h"

namespace tandem::bench {

namespace {

constexpr size_t kBytes = 1'000'000;

// Lines that look like code, of names that mostly differ.
std::string made_up_code() {
  static constexpr std::array kParts = {"read", "write", "token", "count", "index", "page", "state", "value", "node",
                                        "size", "next",  "log",   "batch", "grad",  "row",  "cache", "queue", "time"};
  static constexpr std::array kForms = {
      "  const auto {0}_{1} = {2}({0}, {3});\n", "  if ({0}.{1}() > {3}) return {2};\n",
      "  for (int {0} = 0; {0} < {3}; ++{0}) {1} += {2}[{0}];\n", "// The {0} of each {1}, before {2} has been seen.\n",
      "}}\n\nvoid {0}{1}({2} {3}) {{\n"};
  Random random(1);
  std::string text;
  while (text.size() < kBytes) {
    text += fmt::format(fmt::runtime(random.pick(kForms)), random.pick(kParts), random.pick(kParts),
                        std::string(random.pick(kParts)) + random.pick(kParts), random.below(10000));
  }
  return text;
}

}  // namespace

Result<std::vector<Figure>> bench_tokenizer(const Settings& settings) {
  if (settings.model.empty())
    return fail(Status::invalid("there is no tokenizer to measure").hint("name a model directory with --model"));
  const std::string text = settings.text.empty() ? made_up_code() : TRY(read_file(settings.text, 1 << 30));
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
