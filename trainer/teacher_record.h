// What a teacher behind an endpoint is asked about the samples of a step, and what it said, on disk.
//
// RUN/trajectories/teacher/step_N is written before the step is taken and never changed: a step that is taken again,
// after a restart or by `tandem replay`, has the same bits, whether the teacher is still there or not. The file is a
// line of JSON, {format, step, batch, values, digest}, and the logprobs as float32, of the trained tokens of all
// samples in order. `batch` is a digest of the samples' tokens.
//
// Thread safety: functions of their arguments and of files.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "trainer/learn/learner.h"

namespace tandem::trainer {

// The folder in the run directory.
inline constexpr const char* kTeacherFolder = "trajectories/teacher";
fs::path teacher_record_name(uint64_t step);  // below the run directory

// The sequences to ask about: the segments of the samples, each up to its last trained token.
struct TeacherQuestions {
  struct Place {
    size_t sample = 0, begin = 0;  // which of the samples, and its token that the sequence begins with
  };
  std::vector<std::vector<int32_t>> sequences;
  std::vector<Place> places;
};
TeacherQuestions questions_of(std::span<const Sample> samples);

// Sets teacher_logprobs of the samples; answers[i] has a logprob for each token of sequences[i].
void put_answers(const TeacherQuestions& questions, std::span<const std::vector<float>> answers,
                 std::span<Sample> samples);

Status write_teacher_record(const fs::path& run_dir, uint64_t step, std::span<const Sample> samples);
// Sets teacher_logprobs of the samples. kNotFound where the step has no record, kInvalid where it is of a newer format,
// kCorrupt where it is damaged, or of other samples.
Status read_teacher_record(const fs::path& run_dir, uint64_t step, std::span<Sample> samples);
// The same of bytes.
Status parse_teacher_record(std::string_view bytes, uint64_t step, std::span<Sample> samples);

}  // namespace tandem::trainer
