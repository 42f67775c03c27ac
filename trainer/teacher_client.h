// Asks a teacher behind an OpenAI-compatible endpoint (algorithm.teacher.url) for the logprobs of sequences.
//
// Every failure is an error, and never a number: a request that fails is sent again, within limits, and then the whole
// call fails. Logprobs are those at temperature 1.
//
// Thread safety: calls of one client one after the other; it sends several requests at a time on threads of its own,
// which have ended when a call returns.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "base/clock.h"
#include "trainer/learn/algorithm.h"
#include "trainer/teacher_answer.h"

namespace tandem::trainer {

struct TeacherUse {
  uint64_t requests = 0;  // each try
  uint64_t failed = 0;    // of these
};

class TeacherClient {
 public:
  TeacherClient(TeacherEndpoint endpoint, std::string key, const Clock& clock)
      : endpoint_(std::move(endpoint)), key_(std::move(key)), clock_(clock) {}

  // Chooses how the endpoint is asked, and checks that its tokens are those of `tokenizer`, where one is given, and
  // that its context has room for sequences of `max_tokens`, where it says how much it has. Done by the first
  // logprobs() else. kInvalid: it is not fit to teach this model; other codes: it cannot be asked now. Errors name the
  // endpoint.
  Status prepare(const model::Tokenizer* tokenizer, int max_tokens, const std::stop_token& stop = {});
  // How it is asked, once it is known.
  std::optional<TeacherForm> form() const { return form_; }

  // The logprob of each token of each sequence, as read_teacher_logprobs has them. The error is that of the first
  // sequence that could not be asked about; kCancelled where `stop` was asked for.
  Result<std::vector<std::vector<float>>> logprobs(std::span<const std::vector<int32_t>> sequences,
                                                   const std::stop_token& stop = {});
  TeacherUse use() const { return use_; }

 private:
  using Read = std::function<Status(std::string_view answer)>;
  // One question until it is answered, or there are no tries left. `use` counts.
  Status ask(const std::string& body, size_t largest, const Read& read, const std::stop_token& stop, uint64_t seed,
             TeacherUse& use) const;
  Status choose_form(const std::stop_token& stop);
  Status check_context(int max_tokens, const std::stop_token& stop);
  Status check_tokenizer(const model::Tokenizer& tokenizer, const std::stop_token& stop);
  Failure named(Status status) const;

  const TeacherEndpoint endpoint_;
  const std::string key_;
  const Clock& clock_;
  std::optional<TeacherForm> form_;
  TeacherUse use_;
};

}  // namespace tandem::trainer
