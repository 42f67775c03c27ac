// A smaller model that says what sequences of an engine will probably say next: an engine of its own, whose sequences
// follow theirs.
//
// It draws as the engine does, by the same seeds at the same positions, so that it is right as often as the two
// distributions agree, at any temperature. What it says is a guess and no more: it costs rows of a pass, and changes no
// token.
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
  // Of the small model, over the vocabulary of the large one (model/same_tokenizer.h); with room for as many sequences.
  explicit DraftModel(Engine engine) : engine_(std::move(engine)) {}

  // Over weights as load_draft_weights gives them, beside an engine of these settings.
  static Result<std::shared_ptr<DraftModel>> create(const std::shared_ptr<const model::Weights>& weights,
                                                    const model::Place& place, const EngineSettings& beside);

  struct Wanted {
    SequenceId id = 0;
    std::span<const int32_t> tokens;  // of the sequence; those of an earlier call begin them
    const TurnRequest* turn = nullptr;
    int most = 0;  // at least 1
  };
  // For each what may follow, `most` tokens or fewer; empty where it has no room, or cannot read the tokens. All in the
  // same passes. An error leaves it fit for nothing but its destruction.
  Result<std::vector<std::vector<int32_t>>> propose(std::span<const Wanted> wanted);
  // Nothing more will be asked about the sequence.
  void forget(SequenceId id);

  // Seconds of the device for a proposed token, of late; 0 before there was one.
  double seconds_of_token() const { return seconds_of_token_; }

 private:
  bool follow(const Wanted& wanted);

  Engine engine_;
  std::map<SequenceId, std::vector<int32_t>> held_;  // tokens that the engine has, its own guesses included
  double seconds_of_token_ = 0;
};

// The small model of a directory, for the model of another one; in its own number format, ready for `place`. kInvalid
// where an id is not the same text to both.
Result<std::shared_ptr<const model::Weights>> load_draft_weights(const fs::path& directory, const fs::path& model,
                                                                 const model::Place& place);

}  // namespace tandem::rollout
