#include "trainer/teacher_answer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/json.h"
#include "base/utf8.h"

namespace tandem::trainer {
namespace {

constexpr size_t kAnswerHead = 64 << 10, kAnswerOfToken = 1024;  // bytes
// Rounding makes a logprob of nearly 0 a little more than it.
constexpr double kMostLogprob = 1e-2;
// How vLLM, and this server, write minus infinity, which JSON has not.
constexpr double kNever = -9999;
constexpr size_t kMostNamed = 8;  // models in an error

Failure corrupt(std::string words) { return fail(Status::corrupt(std::move(words))); }

// A member, or null where there is none or `object` is no object.
const Json& member(const Json& object, const char* name) {
  static const Json kNone;
  return object.is_object() && object.contains(name) ? object.at(name) : kNone;
}

// The only choice of an answer.
Result<Json> choice_of(std::string_view answer) {
  auto json = parse_json(answer);
  if (!json) return corrupt("answered no JSON: " + json.error().message());
  const Json& choices = member(*json, "choices");
  if (!choices.is_array() || choices.size() != 1 || !choices.at(0).is_object())
    return corrupt("answered without \"choices\" of one object");
  Json choice = std::move(json->at("choices").at(0));
  // Some servers have it beside the choices.
  if (!member(*json, "prompt_logprobs").is_null() && member(choice, "prompt_logprobs").is_null())
    choice["prompt_logprobs"] = json->at("prompt_logprobs");
  return choice;
}

// The list with an entry a token, the first of which is null; a part of `choice`.
Result<const Json*> entries_of(TeacherForm form, const Json& choice) {
  const bool echoes = form == TeacherForm::kEcho;
  const char* const name = echoes ? "logprobs.token_logprobs" : "prompt_logprobs";
  const Json& list = echoes ? member(member(choice, "logprobs"), "token_logprobs") : member(choice, "prompt_logprobs");
  if (!list.is_array()) return corrupt(fmt::format("answered without a list \"{}\"", name));
  if (list.size() == 0 || !list.at(0).is_null())
    return corrupt(fmt::format("answered a \"{}\" that does not begin with null", name));
  return &list;
}

Result<float> logprob_of(const Json& value, size_t at, std::string_view what) {
  if (!value.is_number())
    return corrupt(
        fmt::format("says of {} at {} the logprob {}, which is no number", what, at, dump_json(value).substr(0, 40)));
  const auto logprob = value.get<double>();
  const auto rounded = static_cast<float>(logprob);
  if (!std::isfinite(rounded) || logprob > kMostLogprob)
    return corrupt(
        fmt::format("says of {} at {} the logprob {}, which is no logarithm of a probability", what, at, logprob));
  if (logprob <= kNever) {
    return fail(
        Status::invalid(
            fmt::format("gives {} at {} a probability of 0, which no weight of the term makes usable", what, at))
            .hint("the teacher must be able to say every token of the model's vocabulary"));
  }
  return rounded;
}

// Of the token in an entry of prompt_logprobs.
const Json& entry_of(const Json& entries, size_t at, int32_t token) {
  return member(entries.at(at), std::to_string(token).c_str());
}

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](unsigned char c) { return c < 0x80; });
}

std::string in_quotes(std::string_view text) { return dump_json(Json(replace_invalid_utf8(std::string(text)))); }

// The place of the first entry that is not the token of `ids` there; nothing where all are.
std::optional<size_t> first_other(TeacherForm form, const Json& entries, const Json& pieces,
                                  std::span<const model::TokenId> ids, const model::Tokenizer& tokenizer) {
  for (size_t i = 1; i < ids.size(); ++i) {
    if (form != TeacherForm::kEcho) {
      if (entry_of(entries, i, ids[i]).is_null()) return i;
      continue;
    }
    // Servers write the bytes of a part of a character in different ways.
    const std::string_view ours = tokenizer.bytes_of(ids[i]);
    if (is_ascii(ours) && pieces.at(i).get<std::string>() != ours) return i;
  }
  return std::nullopt;
}

Json request_of(TeacherForm form, const std::string& model, Json prompt) {
  Json request = {{"model", model}, {"prompt", std::move(prompt)}, {"temperature", 1}};
  request["max_tokens"] = tokens_behind(form);
  if (form == TeacherForm::kEcho) {
    request["echo"] = true;
    request["logprobs"] = 0;
  } else {
    request["prompt_logprobs"] = form == TeacherForm::kPromptLogprobs ? 0 : 1;
  }
  return request;
}

}  // namespace

std::string_view to_string(TeacherForm form) {
  switch (form) {
    case TeacherForm::kPromptLogprobs:
      return "prompt_logprobs: 0";
    case TeacherForm::kPromptLogprobsTop:
      return "prompt_logprobs: 1";
    default:
      return "echo with logprobs";
  }
}

int tokens_behind(TeacherForm form) { return form == TeacherForm::kEcho ? 0 : 1; }

std::string teacher_request(TeacherForm form, const std::string& model, std::span<const int32_t> tokens) {
  return dump_json(request_of(form, model, Json(tokens)));
}

std::string teacher_request(TeacherForm form, const std::string& model, const std::string& text) {
  return dump_json(request_of(form, model, Json(text)));
}

size_t largest_teacher_answer(size_t tokens) { return kAnswerHead + tokens * kAnswerOfToken; }

Result<std::vector<float>> read_teacher_logprobs(TeacherForm form, std::string_view answer,
                                                 std::span<const int32_t> tokens) {
  const Json choice = TRY(choice_of(answer));
  const Json& entries = *TRY(entries_of(form, choice));
  if (entries.size() != tokens.size())
    return corrupt(
        fmt::format("answered logprobs of {} tokens, and was asked about {}", entries.size(), tokens.size()));
  std::vector<float> logprobs(tokens.size(), 0);
  for (size_t i = 1; i < tokens.size(); ++i) {
    const std::string what = fmt::format("token {}", tokens[i]);
    if (form == TeacherForm::kEcho) {
      logprobs[i] = TRY(logprob_of(entries.at(i), i, what));
      continue;
    }
    const Json& entry = entry_of(entries, i, tokens[i]);
    if (!entry.is_object())
      return corrupt(fmt::format("says nothing of {} at {}: {}", what, i, dump_json(entries.at(i)).substr(0, 80)));
    logprobs[i] = TRY(logprob_of(member(entry, "logprob"), i, what));
  }
  return logprobs;
}

Status check_teacher_tokens(TeacherForm form, std::string_view answer, const std::string& text,
                            const model::Tokenizer& tokenizer) {
  const Json choice = TRY(choice_of(answer));
  const Json& entries = *TRY(entries_of(form, choice));
  const Json& pieces = form == TeacherForm::kEcho ? member(member(choice, "logprobs"), "tokens") : entries;
  const auto is_text = [](const Json& piece) { return piece.is_string(); };
  if (form == TeacherForm::kEcho &&
      (!pieces.is_array() || pieces.size() != entries.size() || !std::all_of(pieces.begin(), pieces.end(), is_text)))
    return Status::corrupt("answered without a list \"logprobs.tokens\" of texts beside the logprobs");
  const auto ours = TRY(tokenizer.encode(text)), around = tokenizer.with_special(ours);
  if (entries.size() != ours.size() && entries.size() != around.size())
    return Status::invalid(fmt::format("has another tokenizer: {} are {} tokens there, and {} of the model",
                                       in_quotes(text), entries.size(), ours.size()));
  // A tokenizer may put nothing around a text.
  std::optional<size_t> other;
  for (const auto& ids : {around, ours}) {
    if (ids.size() != entries.size()) continue;
    other = first_other(form, entries, pieces, ids, tokenizer);
    if (!other) return {};
  }
  return Status::invalid(fmt::format("has another tokenizer: in {} token {} is {} there, and not that of the model",
                                     in_quotes(text), *other, dump_json(pieces.at(*other)).substr(0, 120)));
}

Status check_teacher_names(TeacherForm form, std::string_view answer, std::span<const int32_t> tokens,
                           const model::Tokenizer& tokenizer) {
  const Json choice = TRY(choice_of(answer));
  const Json& entries = *TRY(entries_of(form, choice));
  TRY(read_teacher_logprobs(form, answer, tokens));
  for (size_t i = 1; i < tokens.size() && form != TeacherForm::kEcho; ++i) {
    const Json& said = member(entry_of(entries, i, tokens[i]), "decoded_token");
    if (!said.is_string() || !tokenizer.is_special(tokens[i])) continue;
    const auto name = said.get<std::string>();
    // Some say no text of a special token.
    if (name.empty() || name == tokenizer.name_of(tokens[i])) continue;
    return Status::invalid(fmt::format("has another tokenizer: token {} is {} there, and {} of the model", tokens[i],
                                       in_quotes(name), in_quotes(tokenizer.name_of(tokens[i]))));
  }
  return {};
}

Result<std::optional<int64_t>> read_teacher_context(std::string_view answer, const std::string& model) {
  const auto json = parse_json(answer);
  const Json none;
  const Json& models = json ? member(*json, "data") : none;
  if (!models.is_array() || models.size() == 0) return std::optional<int64_t>();
  std::vector<std::string> names;
  for (const Json& each : models) {
    const Json& id = member(each, "id");
    if (!id.is_string()) continue;
    names.push_back(replace_invalid_utf8(id.get<std::string>().substr(0, 80)));
    if (id.get<std::string>() != model) continue;
    const Json& context = member(each, "max_model_len");
    if (!context.is_number_integer() || context.get<int64_t>() <= 0) return std::optional<int64_t>();
    return std::optional<int64_t>(context.get<int64_t>());
  }
  if (names.empty()) return std::optional<int64_t>();
  const bool has_more = names.size() > kMostNamed;
  names.resize(std::min(names.size(), kMostNamed));
  return fail(Status::invalid(
      fmt::format("has no model \"{}\": it serves {}{}", model, fmt::join(names, ", "), has_more ? ", ..." : "")));
}

}  // namespace tandem::trainer
