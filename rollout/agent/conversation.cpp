#include "rollout/agent/conversation.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "envs/tools/output.h"
#include "model/content_marks.h"
#include "rollout/agent/text_calls.h"

namespace tandem::rollout {

namespace {

// Stands for what the model said; no template changes it.
constexpr std::string_view kSaid = "SAID-BY-THE-MODEL";

// What a turn is followed by does not depend on what came before it, so a short conversation stands for the real one.
Json beginning() { return {{{"role", "system"}, {"content", "s"}}, {{"role", "user"}, {"content", "u"}}}; }

Json joined(Json messages, const Json& more) {
  for (const Json& message : more) messages.push_back(message);
  return messages;
}

Json list_of(Json message) {
  Json list = Json::array();
  list.push_back(std::move(message));
  return list;
}

Json user_message(std::string content) { return {{"role", "user"}, {"content", std::move(content)}}; }

// A call to try a template with.
Json probe_tools() {
  return Json::parse(R"([{"type": "function", "function": {"name": "find_lines", "description": "Finds lines.",
      "parameters": {"type": "object", "properties": {"path": {"type": "string"}, "most": {"type": "integer"}},
                     "required": ["path", "most"]}}}])");
}
Said probe_of(size_t calls) {
  Said said;
  for (size_t i = 0; i < calls; ++i) {
    envs::ParsedCall call;
    call.call = {"find_lines", {{"path", fmt::format("file-{}.txt", i)}, {"most", i + 7}}};
    said.calls.push_back(std::move(call));
  }
  return said;
}

}  // namespace

Result<Conversation> Conversation::load(const fs::path& directory, const ConversationSettings& settings) {
  Conversation c(TRY(model::read_config(directory)), TRY(model::Tokenizer::load(directory)),
                 TRY(model::ChatTemplate::load(directory)), settings);
  c.format_ = model::message_format(c.template_, true);
  if (c.format_.reads_tools) {
    c.notation_.listing = envs::ToolListing::kByTemplate;
  } else {
    c.format_.dialect = model::ToolDialect::kHermes;  // as the system message asks for
  }
  if (Status status = c.find_end(); !status.ok()) return fail(std::move(status).at(directory.string()));
  const auto opened = TRY(c.write(beginning(), probe_tools(), true)).text;
  const auto dialect = c.notation_.dialect = c.format_.dialect;
  c.format_ = model::message_format(c.template_, true, opened, &c.tokenizer_);
  c.format_.dialect = dialect;
  if (c.notation_.listing == envs::ToolListing::kInMessages) return c;
  if (Status status = c.find_notation(); !status.ok()) return fail(std::move(status).at(directory.string()));
  return c;
}

Status Conversation::find_end() {
  const Json turn = list_of({{"role", "assistant"}, {"content", kSaid}});
  const auto behind = [](std::string_view text) {
    return text.substr(std::min(text.size(), text.find(kSaid) + kSaid.size()));
  };
  const auto closed = TRY(write(joined(beginning(), turn), Json(), false)).text;
  const auto followed = TRY(write(joined(joined(beginning(), turn), list_of(user_message("v"))), Json(), false)).text;
  for (const auto& [text, closes] : {std::pair(behind(closed), true), std::pair(trim(behind(followed)), false)}) {
    for (const int32_t token : config_.eos_tokens) {
      const auto name = tokenizer_.name_of(token);
      if (name.empty() || !text.starts_with(name)) continue;
      if (closes) end_text_ = name;
      end_token_ = token;
      return {};
    }
  }
  return Status::invalid("the chat template does not end an assistant's message with an end token of the model")
      .hint("set eos_token_id in generation_config.json to the token that ends a turn");
}

Status Conversation::find_notation() {
  const Json tools = probe_tools();
  Status trouble;
  for (const bool one_call : {false, true}) {
    const Said probe = probe_of(one_call ? 1 : 2);
    for (const bool as_text : {false, true}) {
      notation_.arguments_as_text = as_text;
      notation_.one_call = one_call;
      std::vector<envs::Call> calls;
      Reply reply;
      for (const auto& call : probe.calls) {
        calls.push_back(call.call);
        reply.results.push_back("FOUND-IN-" + call.call.arguments["path"].get<std::string>());
      }
      const auto tokens = spoken(calls, "", tools);
      const auto between = text_between(message_of(probe, notation_), messages_of(probe, reply, notation_), tools);
      if (!tokens || !between) {
        trouble = tokens ? between.error() : tokens.error();
        continue;
      }
      const Said read_back = read(*tokens, tools);
      const bool reads = std::ranges::equal(read_back.calls, calls, [](const auto& parsed, const auto& call) {
        return parsed.error.empty() && parsed.call == call;
      });
      const bool answers = std::ranges::all_of(
          reply.results, [&](const auto& result) { return between->text.find(result) != std::string::npos; });
      if (reads && answers) return {};
    }
  }
  Status status = Status::invalid(
      fmt::format("the chat template writes tools, but calls in a way that the dialect {} does not read, or no results "
                  "of them{}",
                  name_of(format_.dialect), trouble.ok() ? "" : ": " + trouble.message()));
  const bool date = trouble.message().find("strftime_now") != std::string::npos;
  return std::move(status).hint(date ? "set model.now, such as model.now=2026-01-31"
                                     : "use a template of a dialect that docs/models.md names, or one without tools");
}

Result<Conversation::Written> Conversation::write(const Json& messages, const Json& tools, bool open_turn) const {
  model::RenderOptions options;
  options.add_generation_prompt = open_turn;
  options.now = settings_.now;
  const Json offered = notation_.listing == envs::ToolListing::kByTemplate ? tools : Json();
  const auto named = [](Status status) {
    if (status.message().find("strftime_now") == std::string::npos) return status;
    return std::move(status).hint("set model.now, such as model.now=2026-01-31");
  };
  if (settings_.special_in_content == model::SpecialInContent::kTokens) {
    auto rendered = template_.render(messages, offered, options);
    if (!rendered) return fail(named(rendered.error()));
    return Written{std::move(rendered->text), {}};
  }
  model::ContentMarks marks(special_texts_, template_.source(!offered.is_null()));
  const Json marked = marks.mark(Json::array({messages, offered}));
  auto rendered = template_.render(marked[0], marked[1], options);
  if (!rendered) return fail(named(rendered.error()));
  auto plain = TRY(marks.restore(*rendered));
  return Written{std::move(rendered->text), std::move(plain)};
}

Conversation::Written Conversation::Written::from(size_t begin) const {
  Written rest{text.substr(begin), {}};
  for (const auto& [from, to] : plain) {
    if (to > begin) rest.plain.emplace_back(std::max(from, begin) - begin, to - begin);
  }
  return rest;
}

Result<std::vector<int32_t>> Conversation::tokens_of(const Written& written) const {
  const auto encoded = TRY(tokenizer_.encode_with_ends(written.text, written.plain));
  return std::vector<int32_t>(encoded.ids.begin(), encoded.ids.end());
}

Result<std::vector<int32_t>> Conversation::prompt(const envs::Opening& opening) const {
  Json messages = Json::array();
  for (const auto& message : opening.messages) messages.push_back(message_of(message));
  return tokens_of(TRY(write(messages, opening.tools, true)));
}

Said Conversation::read(std::span<const int32_t> turn, const Json& tools) const {
  auto parsed = model::parse_message(format_, text_of(turn), tools);
  const bool in_messages = notation_.listing == envs::ToolListing::kInMessages;
  const auto example = in_messages ? std::string(R"(<tool_call>{"name": ..., "arguments": {...}}</tool_call>)")
                                   : model::format_tool_call(format_.dialect, "NAME", {{"ARGUMENT", "VALUE"}});
  Said said{.text = std::move(parsed.content), .reasoning = std::move(parsed.reasoning), .calls = {}};
  for (const size_t i : parsed.order) {
    if (said.calls.size() + 1 == envs::kMostCalls) {
      said.calls.push_back({.call = {},
                            .error = fmt::format("Error: a message may have {} calls at most.", envs::kMostCalls),
                            .id = {}});
      break;
    }
    if (i < parsed.calls.size()) {
      auto& call = parsed.calls[i];
      said.calls.push_back({.call = {.name = std::move(call.name), .arguments = std::move(call.arguments)},
                            .error = {},
                            .id = std::move(call.id)});
    } else {
      const auto& error = parsed.errors[i - parsed.calls.size()];
      said.calls.push_back({.call = {},
                            .error = fmt::format("Error: {}. Write {}", envs::make_printable(error.message), example),
                            .id = {}});
    }
  }
  return said;
}

size_t Conversation::end_of_turn(std::string_view text) const {
  if (end_text_.empty()) return text.size();
  const size_t place = text.rfind(end_text_);
  return place == std::string_view::npos ? place : place + end_text_.size();
}

Result<Conversation::Written> Conversation::text_between(const Json& turn, const Json& reply, const Json& tools) const {
  const auto text_after = [&](const Json& message, std::string_view from) -> Result<std::optional<Written>> {
    const auto with_turn = joined(beginning(), list_of(message));
    const auto closed = TRY(write(with_turn, tools, false)).text;
    const auto followed = TRY(write(joined(with_turn, reply), tools, true));
    const size_t here = closed.find(from), there = followed.text.find(from), end = end_of_turn(closed);
    if (here == std::string::npos || there == std::string::npos || end == std::string::npos || end < here)
      return std::nullopt;
    const auto said = std::string_view(closed).substr(here, end - here);
    if (!std::string_view(followed.text).substr(there).starts_with(said)) return std::nullopt;
    return followed.from(there + said.size());
  };
  if (auto text = TRY(text_after(turn, ""))) return std::move(*text);
  // A template may write what comes before the turn's content in another way when more follows.
  Json marked = turn;
  marked["content"] = kSaid;
  if (auto text = TRY(text_after(marked, kSaid))) return std::move(*text);
  return fail(Status::invalid("the chat template changes an assistant's message when another follows"));
}

Result<NextTurn> Conversation::next_turn(std::span<const int32_t> turn, const Said& said, const Reply& reply,
                                         const Json& tools) const {
  const auto tokens = without_end(turn);
  const auto text = tokenizer_.decode(tokens);
  // In the messages the text stands as it is.
  const bool in_messages = notation_.listing == envs::ToolListing::kInMessages;
  const Json message = in_messages ? Json{{"role", "assistant"}, {"content", text}} : message_of(said, notation_);
  const Json following = messages_of(said, reply, notation_);
  NextTurn next;
  next.is_retokenised = true;
  Written between;
  const auto opened = TRY(write(beginning(), tools, true)).text;
  const auto whole = write(joined(joined(beginning(), list_of(message)), following), tools, true);
  if (whole && whole->text.starts_with(opened) &&
      std::string_view(whole->text).substr(opened.size()).starts_with(text + end_text_)) {
    between = whole->from(opened.size() + text.size() + end_text_.size());
    const bool ended_so = end_text_.empty() || (!turn.empty() && turn.back() == end_token_);
    next.is_retokenised = !ended_so || TRY(tokenizer_.encode(text, model::AddSpecial::kNo)) != tokens;
  } else {
    Said bare = said;
    bare.text = bare.reasoning = "";
    between = TRY(text_between(said.calls.empty() || in_messages ? Json{{"role", "assistant"}, {"content", kSaid}}
                                                                 : message_of(bare, notation_),
                               following, tools));
  }
  next.tokens = TRY(tokens_of(between));
  if (!end_text_.empty() || next.tokens.empty()) return next;
  // The beginning of the next message has been sampled.
  if (!turn.empty() && next.tokens.front() == turn.back()) {
    next.tokens.erase(next.tokens.begin());
  } else {
    next.is_retokenised = true;
  }
  return next;
}

std::vector<int32_t> Conversation::without_end(std::span<const int32_t> tokens) const {
  while (!tokens.empty() &&
         std::find(config_.eos_tokens.begin(), config_.eos_tokens.end(), tokens.back()) != config_.eos_tokens.end()) {
    tokens = tokens.first(tokens.size() - 1);
  }
  return {tokens.begin(), tokens.end()};
}

std::string Conversation::text_of(std::span<const int32_t> tokens) const {
  return tokenizer_.decode(without_end(tokens));
}

Result<std::vector<int32_t>> Conversation::spoken(std::span<const envs::Call> calls, const std::string& answer,
                                                  const Json& tools, size_t calls_before) const {
  Said said{.text = answer, .reasoning = {}, .calls = {}};
  Reply reply{.results = {}, .instruction = "v"};
  for (const auto& call : calls) {
    said.calls.push_back({.call = call, .error = {}, .id = {}});
    said.calls.back().id = id_of(said.calls.back(), calls_before + said.calls.size() - 1, notation_);
    reply.results.emplace_back("r");
  }
  const Json message = message_of(said, notation_), following = messages_of(said, reply, notation_);
  const auto between = TRY(text_between(message, following, tools));
  const auto whole = TRY(write(joined(joined(beginning(), list_of(message)), following), tools, true)).text;
  const auto opening = TRY(write(beginning(), tools, true)).text;
  std::string_view opened = opening;
  // Where a template opens the reasoning, a turn without any is written with the end of it.
  constexpr std::string_view kThink = "<think>";
  const bool opens_reasoning = !whole.starts_with(opened) && trim(opened).ends_with(kThink);
  if (opens_reasoning) opened = opened.substr(0, opened.rfind(kThink));
  if (!whole.starts_with(opened) || !whole.ends_with(between.text) ||
      whole.size() < opened.size() + between.text.size())
    return fail(Status::invalid("the chat template changes an assistant's message when another follows"));
  auto text = std::string_view(whole).substr(opened.size(), whole.size() - between.text.size() - opened.size());
  if (!end_text_.empty() && text.ends_with(end_text_)) text.remove_suffix(end_text_.size());
  auto tokens =
      TRY(tokenizer_.encode((opens_reasoning ? "\n</think>\n\n" : "") + std::string(text), model::AddSpecial::kNo));
  const auto next = end_text_.empty() ? TRY(tokens_of(between)) : std::vector<int32_t>();
  tokens.push_back(next.empty() ? end_token_ : next.front());
  return tokens;
}

}  // namespace tandem::rollout
