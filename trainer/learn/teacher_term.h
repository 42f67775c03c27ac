// On-policy distillation: adds a term of the teacher's logprobs to the advantages of sampled tokens.
//
// The sum of -(l_roll - l_teacher) over what the policy samples is its reverse KL from the teacher, one sample a token
// (Agarwal et al. 2024; Lu et al. 2025). It is held constant, and not discounted: a token answers for itself.
//
// Thread safety: pure functions.
#pragma once

#include <map>
#include <string>

#include "trainer/learn/algorithm.h"
#include "trainer/learn/batch.h"

namespace tandem::trainer {

// A teacher's probability below which it would hardly have said a token.
inline constexpr double kUnlikely = 1e-3;

struct TeacherCounts {
  double tokens = 0, kl = 0, unlikely = 0;  // sums over tokens that count
  void add(double sampler_logprob, double teacher_logprob);
  void add(const TeacherCounts& other);
  // Means, where there are tokens: teacher_kl, without weight and clamp, and teacher_unlikely.
  void write(std::map<std::string, double>& metrics) const;
};

// The term for one token's advantage.
double teacher_advantage(double sampler_logprob, double teacher_logprob, const Teacher& teacher);

// Adds it to the advantages of the tokens that count; nothing where the batch has no logprobs of a teacher. Where the
// sampler's are not given, the old ones stand for them, and without both the policy's own.
TeacherCounts add_teacher(const LossBatch& batch, const Teacher& teacher, Rows& advantages);

}  // namespace tandem::trainer
