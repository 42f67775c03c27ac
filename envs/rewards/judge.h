// A judge: a language model behind an OpenAI-compatible endpoint that scores work by a rubric, or compares two works.
//
// What is judged may try to talk the judge into a verdict. So each work stands between two lines with a random word
// that it cannot know, with the instruction that nothing between them is one; and a verdict counts only as a JSON
// object with another random word that stands outside of the work. What a work brings along as a verdict has neither.
//
// Thread safety: all of it. score() and compare() block for settings.seconds at most.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>

#include "base/status.h"
#include "envs/rewards/source.h"

namespace tandem::envs {

struct JudgeUse {
  uint64_t asked = 0, answered = 0;  // questions
  uint64_t prompt_tokens = 0, completion_tokens = 0;
  uint64_t without_usage = 0;  // answers that did not say their tokens, or said what cannot be: counted as none
};

// The words of a question and of its answer, which no work knows.
struct JudgeWords {
  std::string fence, canary;
};
JudgeWords draw_judge_words();

// The part of an episode for the judge: task, last message, changed files; at most `most_bytes`, cut in the middle.
std::string shown_to_judge(const PlayedEpisode& episode, size_t most_bytes);

class Judge {
 public:
  // `url` is that of the API ("https://HOST/v1") or of its chat completions.
  struct Settings {
    std::string url, model, key, rubric;
    double seconds = 20;
    size_t output_bytes = 65'536;
  };
  explicit Judge(Settings settings);

  // From 0 to 1. kCorrupt for an answer that is no verdict; the errors of wire::request_json.
  Result<double> score(const std::string& shown);
  enum class Winner : uint8_t { kFirst, kSecond, kNeither };
  Result<Winner> compare(const std::string& first, const std::string& second);

  JudgeUse use() const;
  // Questions that are under way end at once, and all later ones: kCancelled.
  void stop() { stop_.request_stop(); }

 private:
  Result<Json> ask(const std::string& task, const std::string& works, const JudgeWords& words, const Json& verdict);
  void count_usage(const Json& answer);
  Result<std::string> post(const std::string& system, const std::string& user, const Json& schema);

  const Settings settings_;
  std::atomic<bool> is_constrained_{true};  // the endpoint takes a schema for its answer
  std::stop_source stop_;
  mutable std::mutex mutex_;
  JudgeUse use_;
};

// The judge of a config, with the rubric in `folder`. Fails as wire::read_server_key does, and where the rubric is not
// there.
Result<std::shared_ptr<Judge>> judge_of(const RewardSettings& settings, const fs::path& folder);

// The term "judge": its score, of training episodes alone.
inline constexpr const char* kJudgeTerm = "judge";
// The term of comparisons within a group, made when it is complete.
inline constexpr const char* kPreferredTerm = "preferred";
std::unique_ptr<RewardSource> judge_source(std::shared_ptr<Judge> judge, const RewardSettings& settings);

}  // namespace tandem::envs
