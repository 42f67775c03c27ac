// Samples of transcripts, read whole and checked before any of it is trained on.
//
// All mistakes are gathered and told at once, or with on_mistake kSkip the transcripts that have one are left out. A
// transcript is held out for validation by the hash of its content, so
// the same transcript falls on the same side whatever stands beside it, and its copies with it.
//
// Thread safety: none.
#pragma once

#include <string>
#include <vector>

#include "base/digest.h"
#include "trainer/sft/chat_renderer.h"

namespace tandem::trainer {

// How an unusable transcript is handled.
enum class OnMistake : uint8_t { kStop, kSkip };

struct SampleSetSettings {
  int max_tokens = 4096;        // longer ones are left out
  double min_reward = 1;        // of episodes; others are left out
  double validation_share = 0;  // of what is read for training
  OnMistake on_mistake = OnMistake::kStop;
  bool pairs = false;    // lines are pairs of answers (preference.h)
  bool rewards = false;  // of pairs: samples end with the token that a reward model reads
  double margin = 0;     // of pairs that say none
};

struct PlacedSample {
  Sample sample;
  std::string place;  // "chats.jsonl:12"
  double margin = 0;  // of a pair, with its preferred answer (reward_loss.h)
};

struct SampleSet {
  // Pairs are the preferred answer, then the other.
  std::vector<PlacedSample> train, validation;
  bool pairs = false;
  // Left out of what was read; of pairs, pairs.
  int64_t too_long = 0, shortest_too_long = 0;  // the second in tokens
  int64_t low_reward = 0, without_reward = 0, heldout = 0;
  int64_t muted = 0;                  // every assistant message has weight 0
  int64_t mistaken = 0;               // with kSkip
  std::vector<std::string> mistakes;  // the first of those, each with its place
  int64_t without_end = 0;            // not left out: what is trained last is not an end token of the model
  int64_t files = 0;

  // The digest of the tokens, masks and margins of all samples in order: what a resumed training must find again.
  Digest digest() const;
};

enum class Purpose : uint8_t { kTrain, kValidate };

class SampleReader {
 public:
  // `renderer` outlives it.
  SampleReader(const ChatRenderer& renderer, const SampleSetSettings& settings)
      : renderer_(renderer), settings_(settings) {}

  // JSON Lines or a JSON document of transcripts, or of pairs. A file that cannot be read is a mistake as a line of it
  // is.
  void add_file(const fs::path& file, Purpose purpose);
  void add_episode(const std::string& place, Episode episode, Purpose purpose);
  // Two of one prompt, of which one is preferred, and has a reward.
  void add_pair(const std::string& place, Episode chosen, Episode rejected, Purpose purpose);
  // One that ends the training whatever is done with transcripts.
  void add_mistake(std::string mistake);

  // kInvalid where there was a mistake, or nothing is left to train on, or to validate on although that was asked for.
  Result<SampleSet> finish();

 private:
  void pass_over(std::string mistake);
  void add_line(const std::string& place, const Json& json, Purpose purpose);
  void add_pair(const std::string& place, const Json& json, Purpose purpose);
  // A sample, or the two of a pair: both or none.
  void keep(const std::string& place, std::vector<Sample> samples, const Digest& content, Purpose purpose,
            double margin = 0);
  // What is wrong with its tokens; empty: nothing.
  std::string mistake_of(const Sample& sample) const;

  const ChatRenderer& renderer_;
  const SampleSetSettings settings_;
  SampleSet set_;
  std::vector<std::string> mistakes_;  // the first of them
  int64_t mistaken_ = 0, read_ = 0, tokens_ = 0;
  bool validation_asked_ = false;
};

}  // namespace tandem::trainer
