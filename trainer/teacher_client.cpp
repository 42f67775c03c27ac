#include "trainer/teacher_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "wire/attempts.h"
#include "wire/completions_url.h"
#include "wire/json_request.h"

namespace tandem::trainer {
namespace {

// Texts whose tokens tell one tokenizer from another: words, code, numbers, JSON, other scripts.
constexpr const char* kProbes[] = {"The quick brown fox jumps over 13 lazy dogs, twice in 2026.",
                                   "def area(r):\n    return 3.14159 * r ** 2  # of a circle\n",
                                   "{\"name\": \"read_file\", \"arguments\": {\"path\": \"src/main.cpp\"}}",
                                   "Grüße aus München, 世界, привет! 🙂"};
constexpr size_t kMostSpecial = 32;  // special tokens that are asked about
constexpr size_t kLargestModels = size_t{4} << 20;

bool wait_until(const Clock& clock, Time at, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any changed;
  std::unique_lock lock(mutex);
  const auto left = at - clock.now();
  if (left > Duration::zero()) changed.wait_for(lock, stop, left, [] { return false; });
  return !stop.stop_requested();
}

// Ordinary tokens, special ones, and the largest: an endpoint with a smaller vocabulary refuses it.
std::vector<int32_t> telling_tokens(const model::Tokenizer& tokenizer) {
  std::vector<int32_t> tokens;
  for (int32_t id = 0; id < tokenizer.size() && tokens.size() < 2; ++id) {
    if (!tokenizer.name_of(id).empty() && !tokenizer.is_special(id)) tokens.push_back(id);
  }
  for (int32_t id = tokenizer.size() - 1; id >= 0 && tokens.size() < kMostSpecial; --id) {
    if (tokenizer.is_special(id)) tokens.push_back(id);
  }
  for (int32_t id = tokenizer.size() - 1; id >= 0; --id) {
    if (tokenizer.name_of(id).empty()) continue;
    tokens.push_back(id);
    break;
  }
  return tokens;
}

}  // namespace

Failure TeacherClient::named(Status status) const {
  return fail(std::move(status).at(fmt::format("the teacher {} at {}", endpoint_.model, endpoint_.url)));
}

Status TeacherClient::ask(const std::string& body, size_t largest, const Read& read, const std::stop_token& stop,
                          uint64_t seed, TeacherUse& use) const {
  wire::Attempts attempts({.tries = endpoint_.retries + 1, .seed = seed});
  Status last;
  auto action = attempts.step(wire::RequestWanted{}, clock_.now());
  while (const auto* send = std::get_if<wire::SendAt>(&action)) {
    if (!wait_until(clock_, send->at, stop)) return Status::cancelled("asking the teacher was cancelled");
    ++use.requests;
    const auto answer = wire::request_json({.url = wire::api_url(endpoint_.url, "/completions"),
                                            .key = key_,
                                            .body = body,
                                            .seconds = endpoint_.seconds,
                                            .largest_answer = largest,
                                            .stop = stop});
    last = answer ? read(*answer) : answer.error();
    if (last.ok() || last.code() == Code::kCancelled) return last;
    ++use.failed;
    action = attempts.step(wire::AttemptFailed{.passing = last.code() != Code::kInvalid}, clock_.now());
  }
  return last;
}

Status TeacherClient::choose_form(const std::stop_token& stop) {
  const std::vector<int32_t> tokens = {0, 0, 0};
  std::string words;
  for (const TeacherForm form : kTeacherForms) {
    Status said;  // of an endpoint that answers, in another shape
    const Status asked = ask(
        teacher_request(form, endpoint_.model, tokens), largest_teacher_answer(tokens.size()),
        [&](std::string_view answer) {
          const auto logprobs = read_teacher_logprobs(form, answer, tokens);
          said = logprobs ? Status() : logprobs.error();
          return Status();
        },
        stop, 0, use_);
    // Who refuses the form with a status of its own may know another one.
    if (!asked.ok() && asked.code() != Code::kInvalid) return asked;
    if (asked.ok() && said.ok()) {
      form_ = form;
      return {};
    }
    words += fmt::format("; by \"{}\" it {}", to_string(form), asked.ok() ? said.message() : asked.message());
  }
  return Status::invalid("does not say the logprobs of a sequence" + words)
      .hint(
          "it must answer POST /v1/completions with the logprobs of a prompt of tokens, as vLLM and `tandem serve` "
          "do; the model there is algorithm.teacher.model");
}

Status TeacherClient::check_context(int max_tokens, const std::stop_token& stop) {
  const auto models = wire::request_json({.url = wire::api_url(endpoint_.url, "/models"),
                                          .method = "GET",
                                          .key = key_,
                                          .seconds = endpoint_.seconds,
                                          .largest_answer = kLargestModels,
                                          .stop = stop});
  // What is not to be had is found out by the questions themselves.
  if (!models && models.error().code() != Code::kInvalid) return models.error();
  if (!models) return {};
  const auto context = TRY(read_teacher_context(*models, endpoint_.model));
  const int needed = max_tokens + 1;
  if (!context || *context >= needed) return {};
  return Status::invalid(fmt::format("takes sequences of {} tokens, and rollout.max_tokens is {}: with the token that "
                                     "it samples behind each it needs room for {}",
                                     *context, max_tokens, needed))
      .hint(fmt::format("serve it with a longer context, or set rollout.max_tokens to {}", *context - 1));
}

Status TeacherClient::check_tokenizer(const model::Tokenizer& tokenizer, const std::stop_token& stop) {
  for (const char* text : kProbes) {
    TRY(ask(
        teacher_request(*form_, endpoint_.model, std::string(text)), kLargestModels,
        [&](std::string_view answer) { return check_teacher_tokens(*form_, answer, text, tokenizer); }, stop, 1, use_));
  }
  const auto tokens = telling_tokens(tokenizer);
  Status names = ask(
      teacher_request(*form_, endpoint_.model, tokens), largest_teacher_answer(tokens.size()),
      [&](std::string_view answer) { return check_teacher_names(*form_, answer, tokens, tokenizer); }, stop, 2, use_);
  if (names.ok()) return names;
  return std::move(names).at(fmt::format("asked about special tokens and {}, the largest", tokens.back()));
}

Status TeacherClient::prepare(const model::Tokenizer* tokenizer, int max_tokens, const std::stop_token& stop) {
  if (Status context = check_context(max_tokens, stop); !context) return named(std::move(context));
  if (Status chosen = form_ ? Status() : choose_form(stop); !chosen) return named(std::move(chosen));
  if (tokenizer == nullptr) return {};
  if (Status same = check_tokenizer(*tokenizer, stop); !same) return named(std::move(same));
  return {};
}

Result<std::vector<std::vector<float>>> TeacherClient::logprobs(std::span<const std::vector<int32_t>> sequences,
                                                                const std::stop_token& stop) {
  if (Status chosen = form_ ? Status() : choose_form(stop); !chosen) return named(std::move(chosen));
  std::vector<std::vector<float>> all(sequences.size());
  std::vector<Status> failures(sequences.size());
  std::stop_source ending;  // of the others, when one has failed
  const std::stop_callback stopped(stop, [&] { ending.request_stop(); });
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  const auto work = [&] {
    TeacherUse use;
    for (size_t i = next++; i < sequences.size() && !ending.stop_requested(); i = next++) {
      const auto& tokens = sequences[i];
      const auto read = [&](std::string_view answer) -> Status {
        all[i] = TRY(read_teacher_logprobs(*form_, answer, tokens));
        return {};
      };
      failures[i] = ask(teacher_request(*form_, endpoint_.model, tokens), largest_teacher_answer(tokens.size()), read,
                        ending.get_token(), i, use);
      if (!failures[i].ok()) ending.request_stop();
    }
    const std::lock_guard lock(mutex);
    use_.requests += use.requests;
    use_.failed += use.failed;
  };
  const size_t count = std::min(sequences.size(), static_cast<size_t>(std::max(1, endpoint_.concurrency)));
  std::vector<std::jthread> threads;
  for (size_t i = 1; i < count; ++i) threads.emplace_back(work);
  if (count > 0) work();
  threads.clear();  // joins
  if (stop.stop_requested()) return fail(Status::cancelled("asking the teacher was cancelled"));
  // Those that were ended by the failure of another are no reason.
  const auto failed = std::ranges::find_if(
      failures, [](const Status& status) { return !status.ok() && status.code() != Code::kCancelled; });
  if (failed == failures.end()) return all;
  const auto at = static_cast<size_t>(failed - failures.begin());
  return named(Status(*failed).at(fmt::format("a sequence of {} tokens", sequences[at].size())));
}

}  // namespace tandem::trainer
