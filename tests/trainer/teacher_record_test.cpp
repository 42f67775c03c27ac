// What a teacher is asked about the samples of a step, and the record of what it said.
#include "trainer/teacher_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/envs/scratch.h"

namespace tandem::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// The first has two segments, the second nothing that is trained, the third a tail of a tool.
std::vector<Sample> asked_samples() {
  std::vector<Sample> samples(3);
  samples[0] = {.tokens = {1, 2, 3, 1, 4, 5}, .trained = {0, 1, 1, 0, 0, 1}};
  samples[0].later_segments = {3};
  samples[1] = {.tokens = {1, 2}, .trained = {0, 0}};
  samples[2] = {.tokens = {7, 8, 9, 9}, .trained = {0, 1, 0, 0}};
  return samples;
}

std::vector<Sample> answered_samples() {
  auto samples = asked_samples();
  put_answers(questions_of(samples), std::vector<std::vector<float>>{{0, -1, -2}, {0, -3, -4}, {0, -5}}, samples);
  return samples;
}

TEST(TeacherRecord, segments_are_asked_about_up_to_what_is_trained) {
  EXPECT_THAT(questions_of(asked_samples()).sequences,
              ElementsAre(ElementsAre(1, 2, 3), ElementsAre(1, 4, 5), ElementsAre(7, 8)));
  EXPECT_THAT(questions_of({}).sequences, IsEmpty());
  const auto samples = answered_samples();
  EXPECT_THAT(samples[0].teacher_logprobs, ElementsAre(0, -1, -2, 0, 0, -4));
  EXPECT_THAT(samples[1].teacher_logprobs, ElementsAre(0, 0));
  EXPECT_THAT(samples[2].teacher_logprobs, ElementsAre(0, -5, 0, 0));
}

TEST(TeacherRecord, a_step_has_what_was_said_of_its_samples_and_of_no_others) {
  const envs::Scratch scratch;
  auto samples = asked_samples();
  EXPECT_EQ(read_teacher_record(scratch.path, 4, samples).code(), Code::kNotFound);
  ASSERT_TRUE(write_teacher_record(scratch.path, 4, answered_samples()));
  ASSERT_TRUE(read_teacher_record(scratch.path, 4, samples));
  for (size_t s = 0; s < samples.size(); ++s)
    EXPECT_EQ(samples[s].teacher_logprobs, answered_samples()[s].teacher_logprobs);

  auto others = asked_samples();
  others[1].tokens[0] = 2;
  const Status other = read_teacher_record(scratch.path, 4, others);
  EXPECT_EQ(other.code(), Code::kCorrupt);
  EXPECT_THAT(other.message(), HasSubstr("is of other samples"));
  others.pop_back();
  EXPECT_EQ(read_teacher_record(scratch.path, 4, others).code(), Code::kCorrupt);
  fs::rename(scratch.path / teacher_record_name(4), scratch.path / teacher_record_name(5));
  EXPECT_THAT(read_teacher_record(scratch.path, 5, samples).message(), HasSubstr("of another step"));
}

TEST(TeacherRecord, damage_is_seen_wherever_it_is) {
  const envs::Scratch scratch;
  ASSERT_TRUE(write_teacher_record(scratch.path, 4, answered_samples()));
  const std::string whole = *read_file(scratch.path / teacher_record_name(4));
  auto samples = asked_samples();
  ASSERT_TRUE(parse_teacher_record(whole, 4, samples));
  for (size_t length = 0; length < whole.size(); ++length)
    EXPECT_FALSE(parse_teacher_record(whole.substr(0, length), 4, samples)) << length;
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    EXPECT_FALSE(parse_teacher_record(bytes, 4, samples)) << at;
  }
}

}  // namespace
}  // namespace tandem::trainer
