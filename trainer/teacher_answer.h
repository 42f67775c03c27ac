// What a teacher behind an OpenAI-compatible endpoint is asked, and what it answers: the logprob of each token of a
// sequence.
//
// Answers are foreign bytes: a part that is missing, of another type, not finite, or of other tokens is kCorrupt with
// its place. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/tokenizer.h"

namespace tandem::trainer {

// How an endpoint is asked, in the order in which they are tried.
enum class TeacherForm : uint8_t {
  kPromptLogprobs,     // vLLM's "prompt_logprobs": 0, the tokens alone
  kPromptLogprobsTop,  // 1: the likeliest token beside each, for servers that take 0 for none
  kEcho,               // OpenAI's "echo" with "logprobs"
};
inline constexpr TeacherForm kTeacherForms[] = {TeacherForm::kPromptLogprobs, TeacherForm::kPromptLogprobsTop,
                                                TeacherForm::kEcho};
std::string_view to_string(TeacherForm form);
// Tokens that the endpoint samples behind a sequence, for which its context must have room.
int tokens_behind(TeacherForm form);

// The body of POST /v1/completions.
std::string teacher_request(TeacherForm form, const std::string& model, std::span<const int32_t> tokens);
std::string teacher_request(TeacherForm form, const std::string& model, const std::string& text);
// Bytes of the largest answer about so many tokens.
size_t largest_teacher_answer(size_t tokens);

// The logprob of each token; the first has none, and is 0. kInvalid where a token has no probability at all: asking
// again would not change it.
Result<std::vector<float>> read_teacher_logprobs(TeacherForm form, std::string_view answer,
                                                 std::span<const int32_t> tokens);

// Checks the answer about a text: its tokens are those of `tokenizer`, with or without what that puts around a text.
// kInvalid, with the first that differs, where they are not.
Status check_teacher_tokens(TeacherForm form, std::string_view answer, const std::string& text,
                            const model::Tokenizer& tokenizer);
// Checks the answer about tokens: where it says their texts, special tokens have the names that they have in
// `tokenizer`. kInvalid, with the first that differs, where they have not.
Status check_teacher_names(TeacherForm form, std::string_view answer, std::span<const int32_t> tokens,
                           const model::Tokenizer& tokenizer);

// The context of a model by GET /v1/models, where the answer says it. kInvalid, with those that there are, where it
// lists models and `model` is none of them.
Result<std::optional<int64_t>> read_teacher_context(std::string_view answer, const std::string& model);

}  // namespace tandem::trainer
