// Benchmarks of the sentence encoder.
#include "model/encoder.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/random.h"
#include "bench/measure.h"

namespace tandem::bench {

Result<std::vector<Figure>> bench_encoder(const Settings& settings) {
  auto stream = TRY(kernels::Stream::cpu(settings.threads));
  const auto encoder = settings.model.empty() ? TRY(model::Encoder::random(default_encoder(), 1, stream))
                                              : TRY(model::Encoder::load(settings.model, stream));
  auto of_fp32 = TRY(stream_of_fp32(settings.threads));
  const Limits limits = measure_limits(of_fp32);
  const auto& config = encoder.config();
  std::vector<Figure> figures;
  struct Shape {
    int texts, tokens;
  };
  for (const auto& [texts, tokens] : {Shape{1, 16}, Shape{128, 32}, Shape{32, 128}, Shape{16, 256}}) {
    const int length = std::min(tokens, config.positions);
    Random random(1);
    std::vector<std::vector<model::TokenId>> batch(texts, std::vector<model::TokenId>(length));
    for (auto& text : batch) {
      for (auto& token : text) token = static_cast<model::TokenId>(random.below(config.vocabulary));
    }
    const double seconds =
        TRY(median_seconds(settings.seconds, [&]() -> Status { return TRY(encoder.embed(stream, batch)), Status{}; }));
    figures.push_back({fmt::format("embed {}x{}", texts, length), texts * length / seconds, "tok/s",
                       limits.flops / token_flops(config, length), "arithmetic"});
  }
  return figures;
}

}  // namespace tandem::bench
