#include "trainer/sft/chat_renderer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <regex>

#include "base/text.h"
#include "model/reasoning.h"
#include "rollout/agent/text_calls.h"

namespace tandem::trainer {

// Bytes [begin, end) and tokens [first, last).
struct ChatRenderer::Turn {
  size_t begin = 0, end = 0, first = 0, last = 0;
};

struct ChatRenderer::Whole {
  std::string text;
  std::vector<std::pair<size_t, size_t>> blocks;  // bytes that {% generation %} blocks wrote
  model::Encoded tokens;

  size_t begin_of(size_t token) const { return token == 0 ? 0 : tokens.ends[token - 1]; }
  // The token that begins at `byte`; nothing where none does.
  std::optional<size_t> token_at(size_t byte) const {
    const auto found = std::upper_bound(tokens.ends.begin(), tokens.ends.end(), byte);
    const auto token = static_cast<size_t>(found - tokens.ends.begin());
    if (begin_of(token) != byte) return std::nullopt;
    return token;
  }
};

namespace {

constexpr const char* kUntold = "use a template with {% generation %} blocks, or transcripts that end with this turn";

std::string text_of(const Json& content) {
  if (content.is_string()) return content.get<std::string>();
  std::string text;
  for (const Json& part : content) text += part.value("text", "");
  return text;
}

constexpr std::array kReasoningKeys = {"reasoning_content", "reasoning", "thinking"};

std::string reasoning_of(const Json& message, const char* key) {
  const auto found = message.find(key);
  return found != message.end() && found->is_string() ? found->get<std::string>() : "";
}

std::string message_name(const Chat& chat, size_t index) {
  return fmt::format("messages[{}] ({})", chat.numbers[index], chat.messages[index]["role"].get<std::string>());
}

// An end token within an answer would be learned as the answer's end.
Status check_ends(const Chat& chat, const model::Tokenizer& tokenizer, const model::ModelConfig& config) {
  for (size_t i = 0; i < chat.messages.size(); ++i) {
    const Json& message = chat.messages[i];
    if (message["role"] != "assistant" || chat.muted[i]) continue;
    const Json content = message.value("content", Json());
    std::string said = content.is_null() ? "" : text_of(content);
    for (const char* key : kReasoningKeys) said += "\n" + reasoning_of(message, key);
    if (message.contains("tool_calls")) said += "\n" + dump_json(message["tool_calls"]);
    for (const auto id : TRY(tokenizer.encode(said))) {
      if (std::find(config.eos_tokens.begin(), config.eos_tokens.end(), id) == config.eos_tokens.end()) continue;
      return Status::invalid(fmt::format("says the end token {} within, which would be learned as its end",
                                         tokenizer.decode(std::vector<model::TokenId>{id})))
          .at(message_name(chat, i))
          .hint("take it out of the text, or give the message \"weight\": 0");
    }
  }
  return {};
}

// Templates of some models put arguments together as text, others write objects; OpenAI's notation is text.
Chat with_arguments_as_text(Chat chat) {
  for (Json& message : chat.messages) {
    if (!message.contains("tool_calls")) continue;
    for (Json& call : message["tool_calls"]) {
      Json& arguments = call["function"]["arguments"];
      arguments = dump_json(arguments);
    }
  }
  return chat;
}

// Some templates cannot do without the content of a message that calls tools and says nothing.
Chat with_empty_contents(Chat chat) {
  for (Json& message : chat.messages) {
    if (message.value("content", Json()).is_null()) message["content"] = "";
  }
  return chat;
}

// Whether there were any.
bool erase_calls(Json& messages) {
  bool any = false;
  for (Json& message : messages) any = message.erase("tool_calls") > 0 || any;
  return any;
}

Status with_hint_of_date(Status status) {
  const bool date = status.message().find("strftime_now") != std::string::npos;
  return date ? std::move(status).hint("set data.now, such as data.now=2026-01-31") : status;
}

// Calls and results as the workspace tasks have them: results that follow each other are one message.
Chat with_calls_in_messages(const Chat& chat) {
  Chat written{.messages = Json::array(), .tools = Json(), .variables = chat.variables, .muted = {}, .numbers = {}};
  std::vector<std::string> results;
  const auto add = [&](Json message, size_t from) {
    written.messages.push_back(std::move(message));
    written.muted.push_back(chat.muted[from]);
    written.numbers.push_back(chat.numbers[from]);
  };
  for (size_t i = 0; i < chat.messages.size(); ++i) {
    Json message = chat.messages[i];
    if (message["role"] == "tool") {
      results.push_back(text_of(message["content"]));
      if (i + 1 < chat.messages.size() && chat.messages[i + 1]["role"] == "tool") continue;
      add({{"role", "user"}, {"content", rollout::write_results(results)}}, i);
      results.clear();
      continue;
    }
    if (message.contains("tool_calls")) {
      std::vector<envs::Call> calls;
      for (const Json& call : message["tool_calls"])
        calls.push_back({call["function"]["name"].get<std::string>(), call["function"]["arguments"]});
      std::string text = text_of(message.value("content", Json("")));
      if (!text.empty()) text += '\n';
      message["content"] = text + rollout::write_calls(calls);
      message.erase("tool_calls");
    }
    add(std::move(message), i);
  }
  return written;
}

}  // namespace

Result<ChatRenderer> ChatRenderer::load(const fs::path& directory, const RenderingSettings& settings) {
  return ChatRenderer(TRY(model::read_config(directory)), TRY(model::Tokenizer::load(directory)),
                      TRY(model::ChatTemplate::load(directory)), settings);
}

bool ChatRenderer::has_generation_blocks(bool with_tools) const {
  static const std::regex kBlock(R"(\{%-?\s*generation\s*-?%\})");
  return std::regex_search(template_.source(with_tools), kBlock);
}

bool ChatRenderer::is_end(int32_t token) const {
  return std::find(config_.eos_tokens.begin(), config_.eos_tokens.end(), token) != config_.eos_tokens.end();
}

bool ChatRenderer::ends_its_turn(const Sample& sample) const {
  for (size_t i = sample.tokens.size(); i > 0; --i) {
    if (sample.trained[i - 1]) return is_end(sample.tokens[i - 1]);
  }
  return false;
}

std::vector<TokenRun> ChatRenderer::runs_of(const Sample& sample) const {
  std::vector<TokenRun> runs;
  for (size_t begin = 0; begin < sample.tokens.size();) {
    size_t end = begin + 1;
    while (end < sample.tokens.size() && sample.trained[end] == sample.trained[begin]) ++end;
    runs.push_back(
        {tokenizer_.decode(std::span(sample.tokens).subspan(begin, end - begin)), sample.trained[begin] == 1});
    begin = end;
  }
  return runs;
}

Result<model::Rendered> ChatRenderer::render(const Chat& chat, size_t messages, bool open_turn) const {
  model::RenderOptions options;
  options.add_generation_prompt = open_turn;
  options.variables = chat.variables;
  options.now = settings_.now;
  if (messages == chat.messages.size()) return template_.render(chat.messages, chat.tools, options);
  Json first = Json::array();
  for (size_t i = 0; i < messages; ++i) first.push_back(chat.messages[i]);
  return template_.render(first, chat.tools, options);
}

Result<Sample> ChatRenderer::sample(const Chat& chat) const { return in_notation(chat, &ChatRenderer::sample_of); }

Result<Sample> ChatRenderer::answered(const Chat& chat) const { return in_notation(chat, &ChatRenderer::answer_of); }

bool ChatRenderer::writes_calls() const {
  return settings_.calls == CallWriting::kText || template_.source(true).find("tools") != std::string::npos;
}

Result<Sample> ChatRenderer::in_notation(const Chat& chat,
                                         Result<Sample> (ChatRenderer::*make)(const Chat&) const) const {
  if (settings_.calls == CallWriting::kText) return (this->*make)(with_calls_in_messages(chat));
  if (!chat.tools.is_null() && !writes_calls()) {
    return fail(Status::invalid("has tools, which the model's chat template does not write")
                    .hint("set data.tool_calls=text, and name the tools in the system message"));
  }
  auto sample = (this->*make)(chat);
  const bool calls = std::any_of(chat.messages.begin(), chat.messages.end(),
                                 [](const Json& message) { return message.contains("tool_calls"); });
  if (sample || !calls) return sample;
  for (const Chat& notation : {with_empty_contents(chat), with_arguments_as_text(chat)}) {
    if (auto other = (this->*make)(notation)) return other;
  }
  return sample;
}

Result<Sample> ChatRenderer::sample_of(const Chat& chat) const {
  auto rendered = render(chat, chat.messages.size(), false);
  if (!rendered) return fail(with_hint_of_date(std::move(rendered).error()));
  if (!rendered->displaced_spans.empty()) {
    return fail(
        Status::invalid("the template has {% generation %} within a macro, a filter or a set block: what it wrote "
                        "is somewhere else than where transformers takes it to be")
            .hint("write the block outside of it, or leave it out: turns are found without blocks, too"));
  }
  TRY(check_ends(chat, tokenizer_, config_));
  Whole whole{.text = std::move(rendered->text), .blocks = std::move(rendered->assistant_spans), .tokens = {}};
  whole.tokens = TRY(tokenizer_.encode_with_ends(whole.text));
  Sample sample;
  sample.tokens.assign(whole.tokens.ids.begin(), whole.tokens.ids.end());
  sample.trained.assign(sample.tokens.size(), 0);
  if (has_generation_blocks(!chat.tools.is_null()))
    TRY(mark_blocks(chat, whole, sample));
  else
    TRY(mark_turns(chat, whole, sample));
  if (std::find(sample.trained.begin() + std::min<size_t>(1, sample.trained.size()), sample.trained.end(), 1) ==
      sample.trained.end())
    return fail(Status::invalid("the template writes nothing of what the assistant says"));
  return sample;
}

namespace {

// A template that leaves out thoughts would teach the model to answer without them.
Status check_reasoning(const Chat& chat, size_t index, std::string_view said) {
  const Json& message = chat.messages[index];
  std::vector<std::string> thoughts;
  for (const char* key : kReasoningKeys) thoughts.push_back(reasoning_of(message, key));
  const Json content = message.value("content", Json());
  const auto parts = model::ReasoningSplitter(false).push(content.is_null() ? "" : text_of(content), true);
  thoughts.push_back(parts.reasoning);
  bool any = false;
  for (const auto& thought : thoughts) {
    if (trim(thought).empty()) continue;
    if (said.find(trim(thought)) != std::string_view::npos) return {};
    any = true;
  }
  if (!any) return {};
  const bool later = index + 1 < chat.messages.size();
  return Status::invalid(fmt::format("the model's chat template does not write its reasoning{}",
                                     later ? " where more follows, so the answer would be learned without it" : ""))
      .at(message_name(chat, index))
      .hint(later ? kUntold : "leave the reasoning out of the transcript to learn the answer alone");
}

// A template that passes over calls would teach the model to answer without them.
Status check_calls(const Chat& chat, size_t index, std::string_view said) {
  const Json& message = chat.messages[index];
  if (!message.contains("tool_calls")) return {};
  for (const Json& call : message["tool_calls"]) {
    const auto& name = call["function"]["name"].get_ref<const std::string&>();
    if (said.find(name) != std::string_view::npos) continue;
    return Status::invalid(fmt::format("the model's chat template does not write the call of {}", name))
        .at(message_name(chat, index))
        .hint("set data.tool_calls=text to have calls written into the messages as the workspace tasks do");
  }
  return {};
}

std::vector<size_t> turns_of(const Chat& chat) {
  std::vector<size_t> turns;
  for (size_t i = 0; i < chat.messages.size(); ++i) {
    if (chat.messages[i]["role"] == "assistant") turns.push_back(i);
  }
  return turns;
}

}  // namespace

Result<Sample> ChatRenderer::answer_of(const Chat& chat) const {
  const auto turns = turns_of(chat);
  if (turns.empty()) return fail(Status::invalid("has no message of the assistant"));
  Json messages = Json::array();
  for (size_t i = 0; i <= turns.back(); ++i) messages.push_back(chat.messages[i]);
  model::RenderOptions options;
  options.variables = chat.variables;
  options.now = settings_.now;
  options.special_in_content = model::SpecialInContent::kText;
  auto rendered = template_.render_ids(tokenizer_, messages, chat.tools, options);
  if (!rendered) return fail(with_hint_of_date(std::move(rendered).error()));
  if (erase_calls(messages)) {
    const auto without = template_.render_ids(tokenizer_, messages, chat.tools, options);
    if (without && without->text == rendered->text) {
      return fail(Status::invalid("the model's chat template does not write tool calls")
                      .hint("train the reward model with data.tool_calls=text, which writes them into the messages"));
    }
  }
  std::vector<int32_t> tokens(rendered->ids.begin(), rendered->ids.end());
  // Behind the end token templates write line breaks, which nobody says.
  size_t end = tokens.size();
  while (end > 0 && !is_end(tokens[end - 1]) && trim(tokenizer_.decode(std::span(tokens).subspan(end - 1, 1))).empty())
    --end;
  if (end > 0 && is_end(tokens[end - 1])) tokens.resize(end);
  if (tokens.size() < 2) return fail(Status::invalid("the template writes nothing of what the assistant says"));
  Sample sample{.tokens = std::move(tokens), .trained = {}, .logprobs = {}, .versions = {}};
  sample.trained.assign(sample.tokens.size(), 0);
  sample.trained.back() = 1;
  return sample;
}

Status ChatRenderer::mark_blocks(const Chat& chat, const Whole& whole, Sample& sample) const {
  const auto turns = turns_of(chat);
  const bool aligned = turns.size() == whole.blocks.size();
  if (!aligned && std::find(chat.muted.begin(), chat.muted.end(), true) != chat.muted.end()) {
    return Status::invalid(fmt::format(
        "the template has {} generation blocks for {} messages of the assistant: those of weight 0 cannot be told",
        whole.blocks.size(), turns.size()));
  }
  for (size_t i = 0; i < whole.blocks.size(); ++i) {
    const auto [begin, end] = whole.blocks[i];
    if (aligned) TRY(check_calls(chat, turns[i], std::string_view(whole.text).substr(begin, end - begin)));
    if (begin == end || (aligned && chat.muted[turns[i]])) continue;
    const auto [first, last] = model::tokens_between(whole.tokens, whole.text, begin, end);
    std::fill(sample.trained.begin() + static_cast<long>(first), sample.trained.begin() + static_cast<long>(last), 1);
  }
  return {};
}

Status ChatRenderer::mark_turns(const Chat& chat, const Whole& whole, Sample& sample) const {
  size_t before = 0;  // a token before which the text falls apart: the one after the last turn, if that ended specially
  for (const size_t message : turns_of(chat)) {
    auto found = find_turn(chat, message, before, whole);
    if (!found) return Status(found.error()).at(message_name(chat, message));
    const auto said = std::string_view(whole.text).substr(found->begin, found->end - found->begin);
    TRY(check_calls(chat, message, said));
    if (!chat.muted[message]) {
      TRY(check_reasoning(chat, message, said));
      std::fill(sample.trained.begin() + static_cast<long>(found->first),
                sample.trained.begin() + static_cast<long>(found->last), 1);
    }
    before = tokenizer_.is_special(whole.tokens.ids[found->last - 1]) ? found->last : 0;
  }
  return {};
}

Result<ChatRenderer::Turn> ChatRenderer::find_turn(const Chat& chat, size_t message, size_t before,
                                                   const Whole& whole) const {
  if (message == 0) {
    return fail(Status::invalid("is the first message: where the assistant begins cannot be told")
                    .hint("put a user's message before it, or use a template with {% generation %} blocks"));
  }
  const std::string_view text = whole.text;
  const auto opening = render(chat, message, true);
  if (!opening) return fail(Status(opening.error()).hint(kUntold));
  Turn turn;
  turn.begin = opening->text.size();
  if (!text.starts_with(opening->text)) {
    return fail(Status::invalid("the template writes what comes before it in another way when it follows, so where the "
                                "assistant begins cannot be told")
                    .hint(kUntold));
  }
  // A sampler is given the tokens of what comes before, so those are what the turn must follow.
  const auto first = whole.token_at(turn.begin);
  const size_t from = whole.begin_of(before);
  std::vector<model::TokenId> alone;
  if (first && *first >= before) alone = TRY(tokenizer_.encode(text.substr(from, turn.begin - from)));
  if (!first || *first < before ||
      !std::equal(alone.begin(), alone.end(), whole.tokens.ids.begin() + static_cast<long>(before),
                  whole.tokens.ids.begin() + static_cast<long>(*first))) {
    return fail(Status::invalid("its first characters share a token with what comes before them").hint(kUntold));
  }
  turn.first = *first;

  const auto closed = render(chat, message + 1, false);
  if (closed && text.starts_with(closed->text) && closed->text.size() > turn.begin) {
    turn.end = closed->text.size();
    const auto last = whole.token_at(turn.end);
    if (!last)
      return fail(Status::invalid("its last characters share a token with what comes after them").hint(kUntold));
    turn.last = *last;
    for (size_t i = turn.last; i > turn.first; --i) {
      if (!is_end(whole.tokens.ids[i - 1])) continue;
      turn.last = i;
      break;
    }
  } else {
    // Some templates write the last turn in another way than those before it. The end token closes the turn, unless the
    // message itself says such a token.
    turn.last = turn.first;
    while (turn.last < whole.tokens.ids.size() && !is_end(whole.tokens.ids[turn.last])) ++turn.last;
    const bool ends = turn.last < whole.tokens.ids.size();
    turn.last += ends;
    const auto said = text.substr(turn.begin, whole.begin_of(turn.last) - turn.begin);
    if (!ends ||
        said.find(trim(text_of(chat.messages[message].value("content", Json(""))))) == std::string_view::npos) {
      return fail(
          Status::invalid("the template writes it in another way when more follows, so where the assistant ends "
                          "cannot be told")
              .hint(kUntold));
    }
  }
  turn.end = whole.begin_of(turn.last);
  return turn;
}

}  // namespace tandem::trainer
