#include "standby/streams.h"

namespace tandem::standby {

Streams::Verdict Streams::judge(const std::string& stream, uint64_t life, uint64_t number, bool is_survey) {
  Stream& known = streams_[stream];
  if (life < known.life) return Verdict::kDrop;
  if (life > known.life) {
    if (!is_survey || number != 1) return Verdict::kUnknown;
    known = {.life = life, .next = 1};
  }
  if (known.next == 0) return Verdict::kUnknown;
  if (number == known.next) return Verdict::kApply;
  if (is_survey && number == 1 && known.next == 2) return Verdict::kSurvey;
  return Verdict::kAgain;
}

uint64_t Streams::done(const std::string& stream) const {
  const auto found = streams_.find(stream);
  return found == streams_.end() || found->second.next == 0 ? 0 : found->second.next - 1;
}

}  // namespace tandem::standby
