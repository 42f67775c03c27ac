// Speculative decoding by a smaller draft model: an engine of its own, whose sequences follow those of the target
// engine.
//
// It samples with the same seeds at the same positions as the target engine, so its drafts are accepted as often as the
// two distributions agree, at any temperature. A draft costs rows of a pass and changes no token.
//
// Thread safety: none; one engine owns it and uses it on its thread.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/file.h"
#include "rollout/engine/engine.h"

namespace tandem::rollout {

class DraftModel {
 public:
  // `engine` runs the small model, with the vocabulary of the large one (model/same_tokenizer.h) and room for as many
  // sequences.
  explicit DraftModel(Engine engine) : engine_(std::move(engine)) {}

  // For weights of load_draft_weights(), beside an engine of these settings.
  static Result<std::shared_ptr<DraftModel>> create(const std::shared_ptr<const model::Weights>& weights,
                                                    const model::Place& place, const EngineSettings& beside);

  struct Wanted {
    SequenceId id = 0;
    std::span<const int32_t> tokens;  // of the sequence; those of an earlier call begin them
    const TurnRequest* turn = nullptr;
    int most = 0;  // at least 1
  };
  // Drafts for each sequence, at most `most` tokens; empty where it has no room or cannot read the tokens. Sequences
  // share passes. After an error the object can only be destroyed.
  Result<std::vector<std::vector<int32_t>>> propose(std::span<const Wanted> wanted);
  // Forgets a sequence.
  void forget(SequenceId id);

  // Recent device seconds for a drafted token; 0 before the first one.
  double seconds_of_token() const { return seconds_of_token_; }

 private:
  bool follow(const Wanted& wanted);

  Engine engine_;
  std::map<SequenceId, std::vector<int32_t>> held_;  // tokens that the engine has, its own guesses included
  double seconds_of_token_ = 0;
};

// Loads the draft model of a directory in its own number format, ready for `place`. kInvalid where a token id has
// another text than in `model`.
Result<std::shared_ptr<const model::Weights>> load_draft_weights(const fs::path& directory, const fs::path& model,
                                                                 const model::Place& place);

}  // namespace tandem::rollout
