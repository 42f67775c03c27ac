#include "trainer/sft/sample_set.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/segments.h"
#include "base/text.h"
#include "trainer/sft/preference.h"
#include "trainer/sft/transcript_file.h"

namespace tandem::trainer {

namespace {

constexpr size_t kShownMistakes = 20;
constexpr int64_t kMostTokens = int64_t{1} << 30;  // of all samples; about 5 GB

constexpr const char* kNothingSampled = ": has no sampled token: there is nothing to learn from";

bool has_sampled(const Episode& episode) { return std::ranges::find(episode.sampled, 1) != episode.sampled.end(); }

Sample tokens_of(Episode episode) {
  return {.tokens = std::move(episode.tokens),
          .trained = std::move(episode.sampled),
          .logprobs = {},
          .versions = {},
          .later_segments = std::move(episode.later_segments)};
}

// What was sampled as a reward model reads it: the segment of the last token that was sampled, up to that token.
void end_with_reward(Sample& sample) {
  auto end = static_cast<size_t>(std::ranges::find(sample.trained.rbegin(), sample.trained.rend(), 1).base() -
                                 sample.trained.begin());
  size_t begin = 0;
  for (const uint32_t later : sample.later_segments) begin = later < end ? later : begin;
  const auto part = [&](auto& values) {
    values.erase(values.begin() + static_cast<ptrdiff_t>(end), values.end());
    values.erase(values.begin(), values.begin() + static_cast<ptrdiff_t>(begin));
  };
  part(sample.tokens);
  part(sample.trained);
  sample.later_segments.clear();
  std::ranges::fill(sample.trained, 0);
  sample.trained.back() = 1;
}

std::string_view bytes_of(const auto& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0])};
}

}  // namespace

Digest SampleSet::digest() const {
  std::string digests;
  for (const auto* samples : {&train, &validation}) {
    digests += fmt::format("{}:", samples->size());
    for (const auto& [sample, place, margin] : *samples) {
      digests += digest_of(bytes_of(sample.tokens)).hex() + digest_of(bytes_of(sample.trained)).hex();
      if (margin != 0) digests += fmt::format(" margin {};", margin);
    }
  }
  return digest_of(digests);
}

void SampleReader::add_mistake(std::string mistake) {
  ++mistaken_;
  if (mistakes_.size() < kShownMistakes) mistakes_.push_back(std::move(mistake));
}

void SampleReader::pass_over(std::string mistake) {
  if (settings_.on_mistake == OnMistake::kStop) return add_mistake(std::move(mistake));
  ++set_.mistaken;
  if (set_.mistakes.size() < kShownMistakes) set_.mistakes.push_back(std::move(mistake));
}

void SampleReader::add_file(const fs::path& file, Purpose purpose) {
  ++set_.files;
  validation_asked_ = validation_asked_ || purpose == Purpose::kValidate;
  const Status read = visit_transcripts(file, [&](int line, Result<Json> value) -> Status {
    ++read_;
    const std::string place = fmt::format("{}:{}", file.string(), line);
    if (value)
      add_line(place, *value, purpose);
    else
      pass_over(Status(value.error()).at(place).to_string());
    return {};
  });
  if (!read.ok()) add_mistake(read.to_string());
}

void SampleReader::add_line(const std::string& place, const Json& json, Purpose purpose) {
  if (settings_.pairs) return add_pair(place, json, purpose);
  auto transcript = read_transcript(json);
  if (!transcript) return pass_over(Status(transcript.error()).at(place).to_string());
  if (auto* episode = std::get_if<Episode>(&*transcript)) return add_episode(place, std::move(*episode), purpose);
  const auto& chat = std::get<Chat>(*transcript);
  if (!chat.is_learned()) {
    ++set_.muted;
    return;
  }
  auto sample = renderer_.sample(chat);
  if (!sample) return pass_over(Status(sample.error()).at(place).to_string());
  keep(place, {std::move(*sample)}, digest_of(dump_json(json)), purpose);
}

void SampleReader::add_pair(const std::string& place, const Json& json, Purpose purpose) {
  const auto pair = read_preference(json);
  if (!pair) return pass_over(Status(pair.error()).at(place).to_string());
  std::vector<Sample> samples;
  for (const auto& [name, chat] : {std::pair{"chosen", &pair->chosen}, {"rejected", &pair->rejected}}) {
    auto sample = settings_.rewards ? renderer_.answered(*chat) : renderer_.sample(*chat);
    if (!sample) return pass_over(Status(sample.error()).at(name).at(place).to_string());
    samples.push_back(std::move(*sample));
  }
  if (settings_.rewards && samples[0].tokens == samples[1].tokens) {
    return pass_over(place + ": both answers are the same tokens up to the last message of the assistant: no reward " +
                     "can tell them apart");
  }
  double margin = settings_.margin;
  if (settings_.rewards) {
    const auto own = read_margin(json);
    if (!own) return pass_over(Status(own.error()).at(place).to_string());
    margin = own->value_or(margin);
  }
  keep(place, std::move(samples), digest_of(dump_json(json)), purpose, margin);
}

void SampleReader::add_episode(const std::string& place, Episode episode, Purpose purpose) {
  if (!episode.split.empty() && episode.split != "train") {
    ++set_.heldout;
  } else if (!episode.reward) {
    ++set_.without_reward;
  } else if (*episode.reward < settings_.min_reward) {
    ++set_.low_reward;
  } else if (!has_sampled(episode)) {
    pass_over(place + kNothingSampled);
  } else {
    const Digest content = digest_of(bytes_of(episode.tokens));
    keep(place, {tokens_of(std::move(episode))}, content, purpose);
  }
}

void SampleReader::add_pair(const std::string& place, Episode chosen, Episode rejected, Purpose purpose) {
  if (!chosen.reward || *chosen.reward < settings_.min_reward) {
    ++set_.low_reward;
  } else if (!has_sampled(chosen) || !has_sampled(rejected)) {
    pass_over(place + kNothingSampled);
  } else {
    // By what both have been asked, so that groups of one task fall on one side.
    const auto first = std::ranges::find(chosen.sampled, 1);
    const auto prompt = std::span(chosen.tokens).first(static_cast<size_t>(first - chosen.sampled.begin()));
    const Digest content = digest_of(bytes_of(prompt));
    std::vector<Sample> answers = {tokens_of(std::move(chosen)), tokens_of(std::move(rejected))};
    if (settings_.rewards) std::ranges::for_each(answers, end_with_reward);
    // Before its only token there is nothing.
    if (std::ranges::any_of(answers, [](const Sample& answer) { return answer.tokens.size() < 2; }))
      return pass_over(place + kNothingSampled);
    keep(place, std::move(answers), content, purpose, settings_.margin);
  }
}

std::string SampleReader::mistake_of(const Sample& sample) const {
  const int vocabulary = renderer_.config().vocabulary;
  const auto stranger = std::find_if(sample.tokens.begin(), sample.tokens.end(),
                                     [&](int32_t token) { return token < 0 || token >= vocabulary; });
  if (stranger == sample.tokens.end()) return {};
  return fmt::format("has token {}, and the model's vocabulary ends at {}: it is of another model", *stranger,
                     vocabulary - 1);
}

void SampleReader::keep(const std::string& place, std::vector<Sample> samples, const Digest& content, Purpose purpose,
                        double margin) {
  int64_t longest = 0;
  for (const Sample& sample : samples) {
    if (const auto mistake = mistake_of(sample); !mistake.empty()) return pass_over(place + ": " + mistake);
    for (const auto segment : split_at(std::span<const int32_t>(sample.tokens), sample.later_segments))
      longest = std::max(longest, static_cast<int64_t>(segment.size()));
  }
  if (longest > settings_.max_tokens) {
    set_.shortest_too_long = set_.too_long++ == 0 ? longest : std::min(set_.shortest_too_long, longest);
    return;
  }
  bool without_end = false;
  for (Sample& sample : samples) {
    // Nothing stands before it that it could be said after.
    if (!sample.trained.empty()) sample.trained[0] = 0;
    for (const uint32_t begin : sample.later_segments) sample.trained[begin] = 0;
    tokens_ += static_cast<int64_t>(sample.tokens.size());
    without_end = without_end || (!settings_.rewards && !renderer_.ends_its_turn(sample));
  }
  if (tokens_ > kMostTokens) return;  // told at the end
  set_.without_end += without_end;
  // The upper bits of the hash as a number in [0, 1).
  const double draw = static_cast<double>(content.high >> 11) * 0x1p-53;
  const bool held_out = purpose == Purpose::kValidate || draw < settings_.validation_share;
  auto& side = held_out ? set_.validation : set_.train;
  // Answers to one prompt are one group: they share its rows.
  const uint64_t group = side.size();
  for (Sample& sample : samples) {
    if (settings_.pairs) sample.group = group;
    side.push_back({std::move(sample), place, margin});
  }
}

Result<SampleSet> SampleReader::finish() {
  set_.pairs = settings_.pairs;
  if (mistaken_ > 0) {
    std::string text = fmt::format("{} of what data names cannot be learned from:", mistaken_);
    for (const auto& mistake : mistakes_) text += "\n" + mistake;
    if (mistaken_ > static_cast<int64_t>(mistakes_.size()))
      text += fmt::format("\nand {} more", mistaken_ - static_cast<int64_t>(mistakes_.size()));
    return fail(Status::invalid(std::move(text)));
  }
  if (tokens_ > kMostTokens) {
    return fail(Status::invalid(
                    fmt::format("the transcripts have {} tokens together, at most {} are taken", tokens_, kMostTokens))
                    .hint("train on a part of them at a time"));
  }
  if (set_.train.empty()) {
    if (set_.too_long > 0) {
      return fail(Status::invalid(fmt::format(
          "every transcript to train on is longer than data.max_tokens={}: the shortest of those has {} tokens",
          settings_.max_tokens, set_.shortest_too_long)));
    }
    if (set_.low_reward + set_.without_reward + set_.heldout > 0) {
      return fail(Status::invalid(fmt::format(
          "no episode is left to train on: {} have a reward below data.min_reward={}, {} have none, {} are held out",
          set_.low_reward, settings_.min_reward, set_.without_reward, set_.heldout)));
    }
    if (set_.mistaken > 0) {
      return fail(Status::invalid(fmt::format("none of {} transcripts can be learned from; the first: {}",
                                              set_.mistaken + set_.muted, set_.mistakes[0])));
    }
    if (set_.muted > 0) {
      return fail(Status::invalid("there is nothing to learn from: every assistant message has weight 0"));
    }
    return fail(Status::invalid("there is no transcript to train on"));
  }
  if (set_.validation.empty() && (settings_.validation_share > 0 || validation_asked_)) {
    return fail(Status::invalid(fmt::format("no transcript is left to validate on, of {} in all",
                                            set_.train.size() + static_cast<size_t>(set_.too_long)))
                    .hint("raise data.validation_share, or name files in data.validation"));
  }
  return std::move(set_);
}

}  // namespace tandem::trainer
