#include "trainer/learn/demonstrations.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "base/digest.h"
#include "base/json.h"
#include "base/random.h"
#include "base/text.h"

namespace tandem::trainer {

namespace {

constexpr int kDemonstrationFormat = 1;
constexpr uint64_t kMostDemonstrationBytes = uint64_t{1} << 30;
constexpr uint64_t kDemonstrationStream = 17;  // of the order of an epoch

// [begin, end) of the trained tokens.
Json runs_of(const Sample& sample) {
  Json runs = Json::array();
  for (size_t i = 0; i < sample.trained.size(); ++i) {
    if (!sample.trained[i]) continue;
    const size_t begin = i;
    while (i < sample.trained.size() && sample.trained[i]) ++i;
    runs.push_back({begin, i});
  }
  return runs;
}

Result<Sample> sample_from(const Json& json, int vocabulary, int max_tokens) {
  try {
    Sample sample{.tokens = json.at("tokens").get<std::vector<int32_t>>(), .part = kDemonstrationPart};
    const auto known = [&](int32_t token) { return token >= 0 && token < vocabulary; };
    if (sample.tokens.empty() || sample.tokens.size() > static_cast<size_t>(max_tokens))
      return fail(Status::corrupt(fmt::format("{} tokens, not 1 to {}", sample.tokens.size(), max_tokens)));
    if (!std::ranges::all_of(sample.tokens, known))
      return fail(Status::corrupt(fmt::format("a token that is not one of {}", vocabulary)));
    sample.trained.assign(sample.tokens.size(), 0);
    for (const Json& run : json.at("trained")) {
      const auto begin = run.at(0).get<uint64_t>(), end = run.at(1).get<uint64_t>();
      if (begin >= end || end > sample.tokens.size())
        return fail(Status::corrupt(fmt::format("trained tokens {} to {} of {}", begin, end, sample.tokens.size())));
      std::fill(sample.trained.begin() + static_cast<ptrdiff_t>(begin),
                sample.trained.begin() + static_cast<ptrdiff_t>(end), 1);
    }
    return sample;
  } catch (const Json::exception& error) {
    return fail(Status::corrupt(error.what()));
  }
}

}  // namespace

Status write_demonstrations(const fs::path& path, std::span<const Sample> samples) {
  std::string text;
  for (const Sample& sample : samples) {
    text += dump_json(Json{{"tokens", sample.tokens}, {"trained", runs_of(sample)}}) + "\n";
    if (text.size() > kMostDemonstrationBytes) {
      return Status::exhausted(
          fmt::format("demonstrations are more than {} MiB of tokens", kMostDemonstrationBytes >> 20));
    }
  }
  const Json head = {{"format", kDemonstrationFormat}, {"samples", samples.size()}, {"digest", digest_of(text).hex()}};
  return write_file(path, dump_json(head) + "\n" + text);
}

Result<Demonstrations> Demonstrations::read(const fs::path& path, int vocabulary, int max_tokens) {
  const std::string text = TRY(read_file(path, kMostDemonstrationBytes + (uint64_t{1} << 20)));
  const auto lines = split_lines(text);
  const auto bad = [&](size_t line, std::string_view what) {
    return fail(Status::corrupt(std::string(what)).at(fmt::format("{}:{}", path.string(), line + 1)));
  };
  if (lines.empty()) return bad(0, "is empty");
  const auto head = parse_json(lines[0]);
  if (!head) return bad(0, head.error().message());
  if (!head->is_object() || head->value("format", Json()) != kDemonstrationFormat)
    return bad(0, fmt::format("its format is not {}, the only one that is read", kDemonstrationFormat));
  std::vector<Sample> samples;
  for (size_t i = 1; i < lines.size(); ++i) {
    const auto json = parse_json(lines[i]);
    if (!json) return bad(i, json.error().message());
    auto sample = sample_from(*json, vocabulary, max_tokens);
    if (!sample) return bad(i, sample.error().message());
    samples.push_back(std::move(*sample));
  }
  if (samples.empty() || head->value("samples", Json()) != samples.size())
    return bad(0, fmt::format("has {} samples, and not as many as it says", samples.size()));
  // A token that became another would train another model without a word.
  if (head->value("digest", Json()) != digest_of(std::string_view(text).substr(text.find('\n') + 1)).hex())
    return bad(0, "its samples are not those that were written: their digest differs from the one that it says");
  return Demonstrations(std::move(samples));
}

std::vector<Sample> Demonstrations::of_step(uint64_t step, size_t count, uint64_t seed) const {
  std::vector<Sample> chosen;
  std::vector<size_t> order;
  uint64_t ordered = UINT64_MAX;  // the epoch of `order`
  for (uint64_t at = (step - 1) * count; chosen.size() < count; ++at) {
    if (const uint64_t epoch = at / samples_.size(); epoch != std::exchange(ordered, epoch)) {
      order.resize(samples_.size());
      std::iota(order.begin(), order.end(), size_t{0});
      Random(derive_seed(seed, {kDemonstrationStream, epoch})).shuffle(order);
    }
    chosen.push_back(samples_[order[at % samples_.size()]]);
  }
  return chosen;
}

}  // namespace tandem::trainer
