#include "trainer/learn/teacher.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/config.h"
#include "model/same_tokenizer.h"
#include "trainer/learn/learner.h"

namespace tandem::trainer {

Status check_teacher(const fs::path& teacher, const fs::path& model, int max_tokens) {
  const auto theirs = TRY(model::read_config(teacher)), ours = TRY(model::read_config(model));
  TRY(model::check_same_tokenizer(teacher, model, "teacher"));
  // Rows of padding may be more; a token that only the model can say has no logprob.
  if (theirs.vocabulary < ours.vocabulary) {
    return Status::invalid(fmt::format("the teacher {} has {} tokens, fewer than the {} of the model {}",
                                       teacher.string(), theirs.vocabulary, ours.vocabulary, model.string()))
        .hint("a teacher has the tokenizer of the model; models of one family often share it");
  }
  if (theirs.max_positions < max_tokens) {
    return Status::invalid(fmt::format("rollout.max_tokens is {}, the teacher {} takes at most {}", max_tokens,
                                       teacher.string(), theirs.max_positions));
  }
  return {};
}

Result<model::Weights> load_teacher(const fs::path& teacher, const fs::path& model, model::WeightFormat format) {
  TRY(check_teacher(teacher, model));
  return model::load_weights(teacher, false, format);
}

Status Learner::keep_teacher(model::Weights weights) {
  if (weights.config().vocabulary < weights_->config().vocabulary) {
    return Status::invalid(fmt::format("the teacher has {} tokens, and the model {}", weights.config().vocabulary,
                                       weights_->config().vocabulary));
  }
  if (on_device_) {
    teacher_tape_ = TRY(Tape::on_device(device_, weights, weights.config().max_positions));
    TRY(weights.encode(stream_));
  } else {
    teacher_tape_ = std::make_unique<Tape>(weights.config(), weights.config().max_positions);
    TRY(weights.pack(stream_));
    weights.give_back_flat();
  }
  teacher_ = std::make_unique<model::Weights>(std::move(weights));
  return {};
}

}  // namespace tandem::trainer
