#include "trainer/teacher_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "base/digest.h"
#include "base/json_file.h"

namespace tandem::trainer {
namespace {

constexpr int kRecordFormat = 1;

// Calls `each` with sample and token of every trained token that has a logprob.
template <typename Each>
void visit_trained(std::span<const Sample> samples, const Each& each) {
  for (size_t s = 0; s < samples.size(); ++s) {
    for (size_t i = 1; i < samples[s].tokens.size(); ++i) {
      if (samples[s].trained[i]) each(s, i);
    }
  }
}

std::string digest_of_samples(std::span<const Sample> samples) {
  std::string bytes;
  const auto put = [&](const void* data, size_t size) { bytes.append(static_cast<const char*>(data), size); };
  for (const Sample& sample : samples) {
    const uint64_t sizes[] = {sample.tokens.size(), sample.later_segments.size()};
    put(sizes, sizeof(sizes));
    put(sample.tokens.data(), sample.tokens.size() * sizeof(int32_t));
    put(sample.trained.data(), sample.trained.size());
    put(sample.later_segments.data(), sample.later_segments.size() * sizeof(uint32_t));
  }
  return digest_of(bytes).hex();
}

Status damaged(const char* what) { return Status::corrupt(fmt::format("the record is damaged: {}", what)); }

}  // namespace

fs::path teacher_record_name(uint64_t step) { return fs::path(kTeacherFolder) / fmt::format("step_{}", step); }

TeacherQuestions questions_of(std::span<const Sample> samples) {
  TeacherQuestions questions;
  for (size_t s = 0; s < samples.size(); ++s) {
    const Sample& sample = samples[s];
    std::vector<size_t> begins = {0};
    begins.insert(begins.end(), sample.later_segments.begin(), sample.later_segments.end());
    begins.push_back(sample.tokens.size());
    for (size_t segment = 0; segment + 1 < begins.size(); ++segment) {
      const size_t begin = begins[segment];
      size_t end = begins[segment + 1];
      while (end > begin + 1 && !sample.trained[end - 1]) --end;
      if (end <= begin + 1) continue;  // its first token has no logprob
      questions.places.push_back({s, begin});
      questions.sequences.emplace_back(sample.tokens.begin() + static_cast<ptrdiff_t>(begin),
                                       sample.tokens.begin() + static_cast<ptrdiff_t>(end));
    }
  }
  return questions;
}

void put_answers(const TeacherQuestions& questions, std::span<const std::vector<float>> answers,
                 std::span<Sample> samples) {
  for (Sample& sample : samples) sample.teacher_logprobs.assign(sample.tokens.size(), 0);
  for (size_t q = 0; q < answers.size(); ++q) {
    const auto& [s, begin] = questions.places[q];
    Sample& sample = samples[s];
    for (size_t i = 1; i < answers[q].size(); ++i) {
      if (sample.trained[begin + i]) sample.teacher_logprobs[begin + i] = answers[q][i];
    }
  }
}

Status write_teacher_record(const fs::path& run_dir, uint64_t step, std::span<const Sample> samples) {
  std::vector<float> values;
  visit_trained(samples, [&](size_t s, size_t i) { values.push_back(samples[s].teacher_logprobs[i]); });
  const std::string_view payload(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  const Json head = {{"step", step},
                     {"batch", digest_of_samples(samples)},
                     {"values", values.size()},
                     {"digest", digest_of(payload).hex()}};
  const std::string line = with_format(head, kRecordFormat).dump() + "\n";
  const std::string_view parts[] = {line, payload};
  TRY(make_directories(run_dir / kTeacherFolder));
  return write_file(run_dir / teacher_record_name(step), parts);
}

Status parse_teacher_record(std::string_view bytes, uint64_t step, std::span<Sample> samples) {
  const size_t end = bytes.find('\n');
  if (end == std::string_view::npos) return damaged("it has no first line");
  const auto head = parse_json(bytes.substr(0, end));
  if (!head || !head->is_object()) return damaged("its first line is no JSON object");
  const auto number = [&](const char* name) -> uint64_t {
    const bool is_there = head->contains(name) && head->at(name).is_number_unsigned();
    return is_there ? head->at(name).get<uint64_t>() : UINT64_MAX;
  };
  const auto word = [&](const char* name) -> std::string {
    return head->contains(name) && head->at(name).is_string() ? head->at(name).get<std::string>() : "";
  };
  if (const uint64_t format = number("format"); format != kRecordFormat) {
    return Status::invalid(fmt::format("is of format {}, and {} is read",
                                       format == UINT64_MAX ? "none" : fmt::to_string(format), kRecordFormat));
  }
  const std::string_view payload = bytes.substr(end + 1);
  if (payload.size() % sizeof(float) != 0 || payload.size() / sizeof(float) != number("values"))
    return damaged("it is cut short");
  if (word("digest") != digest_of(payload).hex()) return damaged("its digest is another");
  if (number("step") != step) return Status::corrupt(fmt::format("is of another step than {}", step));
  size_t wanted = 0;
  visit_trained(samples, [&](size_t, size_t) { ++wanted; });
  if (word("batch") != digest_of_samples(samples) || wanted != number("values"))
    return Status::corrupt("is of other samples than the step has");
  std::vector<float> values(wanted);
  if (wanted > 0) std::memcpy(values.data(), payload.data(), payload.size());
  if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); }))
    return damaged("it has a logprob that is not finite");
  for (Sample& sample : samples) sample.teacher_logprobs.assign(sample.tokens.size(), 0);
  size_t next = 0;
  visit_trained(samples, [&](size_t s, size_t i) { samples[s].teacher_logprobs[i] = values[next++]; });
  return {};
}

Status read_teacher_record(const fs::path& run_dir, uint64_t step, std::span<Sample> samples) {
  const fs::path path = run_dir / teacher_record_name(step);
  const auto bytes = read_file(path, uint64_t{4} << 30);
  if (!bytes) return bytes.error();
  Status read = parse_teacher_record(*bytes, step, samples);
  return read.ok() ? read : std::move(read).at(path.string());
}

}  // namespace tandem::trainer
