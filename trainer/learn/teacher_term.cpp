#include "trainer/learn/teacher_term.h"

#include <algorithm>
#include <cmath>

namespace tandem::trainer {

void TeacherCounts::add(double sampler_logprob, double teacher_logprob) {
  ++tokens;
  kl += sampler_logprob - teacher_logprob;
  unlikely += teacher_logprob < std::log(kUnlikely);
}

void TeacherCounts::add(const TeacherCounts& other) {
  tokens += other.tokens;
  kl += other.kl;
  unlikely += other.unlikely;
}

void TeacherCounts::write(std::map<std::string, double>& metrics) const {
  if (!(tokens > 0)) return;
  metrics["teacher_kl"] = kl / tokens;
  metrics["teacher_unlikely"] = unlikely / tokens;
}

double teacher_advantage(double sampler_logprob, double teacher_logprob, const Teacher& teacher) {
  const double difference = teacher_logprob - sampler_logprob;
  return teacher.weight * (teacher.clamp > 0 ? std::clamp(difference, -teacher.clamp, teacher.clamp) : difference);
}

TeacherCounts add_teacher(const LossBatch& batch, const Teacher& teacher, Rows& advantages) {
  TeacherCounts counts;
  if (batch.teacher_logprobs.empty()) return counts;
  const Rows& sampler = !batch.rollout_logprobs.empty() ? batch.rollout_logprobs
                        : !batch.old_logprobs.empty()   ? batch.old_logprobs
                                                        : batch.logprobs;
  for (size_t i = 0; i < batch.mask.size(); ++i) {
    if (!batch.mask[i]) continue;
    advantages[i] += teacher_advantage(sampler[i], batch.teacher_logprobs[i], teacher);
    counts.add(sampler[i], batch.teacher_logprobs[i]);
  }
  return counts;
}

}  // namespace tandem::trainer
