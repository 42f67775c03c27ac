#include "cli/model/generate_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <climits>

#include "cli/model/message_json.h"

namespace tandem::cli {

namespace {

constexpr std::array kKeysOfGenerate = {
    GenerateKey{"tokens", "the prompt as token ids"},
    GenerateKey{"prompt", "the prompt as text"},
    GenerateKey{"messages", "the prompt as a chat, in OpenAI's format; the answer has a \"message\""},
    GenerateKey{"tools", "functions that the model may call, in OpenAI's format"},
    GenerateKey{"tool_choice", "\"auto\", \"none\", \"required\", or one function"},
    GenerateKey{"parallel_tool_calls", "false: at most one call"},
    GenerateKey{"chat_template_kwargs", "variables of the chat template"},
    GenerateKey{"continue_final_message", "the answer goes on with the last message; true, or the field's name"},
    GenerateKey{"response_format", "JSON by a schema, or any JSON object"},
    GenerateKey{"max_tokens", "most tokens of the answer (256)"},
    GenerateKey{"min_tokens", "end tokens cannot be drawn before (0)"},
    GenerateKey{"n", "answers (1); more than one come as \"choices\", answer i drawn with seed + i"},
    GenerateKey{"temperature", "0 takes the likeliest token (1)"},
    GenerateKey{"top_p", "share of probability that is sampled from (1)"},
    GenerateKey{"top_k", "the likeliest tokens that are sampled from; 0: all (0)"},
    GenerateKey{"min_p", "least probability relative to the likeliest token (0)"},
    GenerateKey{"presence_penalty", "taken off the logits of tokens that the answer has said, -2 to 2 (0)"},
    GenerateKey{"frequency_penalty", "taken off for each time that it has, -2 to 2 (0)"},
    GenerateKey{"seed", "any integer (0)"},
    GenerateKey{"stop", "texts that end the answer"},
    GenerateKey{"stop_token_ids", "tokens that end the answer"},
    GenerateKey{"ignore_eos", "true: the model's end tokens end nothing"}};

// The integer `value`, which the request calls `name`.
template <typename T>
Result<T> integer_of(const Json& value, std::string_view name, T least, T most) {
  // A float may be any number at all.
  const auto fits = [&] {
    if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX)) return false;
    const auto number = value.get<int64_t>();
    return number >= static_cast<int64_t>(least) && number <= static_cast<int64_t>(most);
  };
  if (fits()) return static_cast<T>(value.get<int64_t>());
  return fail(Status::invalid(
      fmt::format("\"{}\" is {}, expected an integer from {} to {}", name, dump_json(value), least, most)));
}
template <typename T>
Result<T> integer_of(const Json& line, const char* key, T otherwise, T least, T most) {
  return line.contains(key) ? integer_of<T>(line[key], key, least, most) : Result<T>(otherwise);
}
Result<float> number_of(const Json& line, const char* key, double otherwise, double least, double most) {
  if (!line.contains(key)) return static_cast<float>(otherwise);
  const Json& value = line[key];
  if (value.is_number() && value.get<double>() >= least && value.get<double>() <= most) return value.get<float>();
  return fail(Status::invalid(
      fmt::format("\"{}\" is {}, expected a number from {} to {}", key, dump_json(value), least, most)));
}
Result<std::vector<int32_t>> tokens_of(const Json& line, const char* key, int vocabulary) {
  std::vector<int32_t> tokens;
  if (!line.contains(key)) return tokens;
  if (!line[key].is_array()) return fail(Status::invalid(fmt::format("\"{}\" must be an array of tokens", key)));
  for (const Json& token : line[key])
    tokens.push_back(TRY(integer_of<int32_t>(token, fmt::format("{}[{}]", key, tokens.size()), 0, vocabulary - 1)));
  return tokens;
}
Result<std::vector<std::string>> texts_of(const Json& line, const char* key) {
  std::vector<std::string> texts;
  if (!line.contains(key)) return texts;
  for (const Json& text : line[key].is_array() ? line[key] : Json::array({line[key]})) {
    if (!text.is_string()) return fail(Status::invalid(fmt::format("\"{}\" must be a text or a list of texts", key)));
    texts.push_back(text.get<std::string>());
  }
  std::erase(texts, "");  // it would end every answer before it begins
  return texts;
}

Json without_nulls(const Json& line) {
  Json kept = Json::object();
  for (const auto& [key, value] : line.items())
    if (!value.is_null()) kept[key] = value;
  return kept;
}

bool any_is_strict(const Json& tools) {
  return tools.is_array() && std::any_of(tools.begin(), tools.end(), [](const Json& tool) {
           return tool.is_object() && tool.contains("function") && tool["function"].is_object() &&
                  tool["function"].value("strict", Json()) == Json(true);
         });
}

Status read_chat(const Json& line, const serve::TextSide& side, GenerateRequest& request) {
  request.tools = line.value("tools", Json());
  if (!request.tools.is_null() && !request.tools.is_array())
    return Status::invalid("\"tools\" must be a list of functions");
  model::RenderOptions options;
  if (const auto field = line.find("continue_final_message"); field != line.end() && field->is_string())
    options.continue_final_message = field->get<std::string>();
  else if (TRY(bool_at(line, "continue_final_message", false)))
    options.continue_final_message = "content";
  options.add_generation_prompt = options.continue_final_message.empty();
  if (line.contains("chat_template_kwargs")) options.variables = line["chat_template_kwargs"];
  const bool continues_reasoning = !options.add_generation_prompt && options.continue_final_message != "content";
  auto rendered = TRY(side.render(line["messages"], request.tools, std::move(options)));
  request.prompt = std::move(rendered.ids);
  request.format = side.format(!request.tools.is_null(), rendered.text);
  if (continues_reasoning) request.format->begins_in_reasoning = true;
  if (!request.tools.empty() && !request.format->reads_tools)
    request.warning = "the model's chat template writes no \"tools\": the model does not see them";
  return {};
}

}  // namespace

std::span<const GenerateKey> generate_keys() { return kKeysOfGenerate; }

Result<GenerateRequest> read_generate_request(const Json& given, const model::ModelConfig& config,
                                              const serve::TextSide& side, serve::Constraints& constraints) {
  Json line = without_nulls(given);
  GenerateRequest request;
  try {
    if (line.contains("tokens") + line.contains("prompt") + line.contains("messages") != 1)
      return fail(Status::invalid("give one of \"tokens\", \"prompt\" and \"messages\""));
    for (const char* key : {"tools", "chat_template_kwargs", "continue_final_message", "parallel_tool_calls"}) {
      if (line.contains(key) && !line.contains("messages"))
        return fail(Status::invalid(
            fmt::format("\"{}\" {} with \"messages\"", key, std::string_view(key) == "tools" ? "go" : "goes")));
    }
    if (line.contains("tokens")) {
      request.prompt = TRY(tokens_of(line, "tokens", config.vocabulary));
    } else if (!side.tokenizer) {
      return fail(Status::invalid("text needs a tokenizer.json in the model directory"));
    } else if (line.contains("prompt")) {
      if (!line["prompt"].is_string()) return fail(Status::invalid("\"prompt\" must be a text"));
      request.prompt = TRY(side.tokenizer->encode(line["prompt"].get<std::string>(), model::AddSpecial::kYes));
    } else {
      TRY(read_chat(line, side, request));
    }
    auto& turn = request.turn;
    turn.max_new_tokens = TRY(integer_of<int>(line, "max_tokens", 256, 1, INT_MAX));
    turn.min_new_tokens = TRY(integer_of<int>(line, "min_tokens", 0, 0, INT_MAX));
    request.n = TRY(integer_of<int>(line, "n", 1, 1, 128));
    turn.sampling.temperature = TRY(number_of(line, "temperature", 1, 0, 1000));
    turn.sampling.top_k = TRY(integer_of<int>(line, "top_k", 0, 0, INT_MAX));
    turn.sampling.top_p = TRY(number_of(line, "top_p", 1, 0, 1));
    turn.sampling.min_p = TRY(number_of(line, "min_p", 0, 0, 1));
    turn.presence_penalty = TRY(number_of(line, "presence_penalty", 0, -2, 2));
    turn.frequency_penalty = TRY(number_of(line, "frequency_penalty", 0, -2, 2));
    // Any integer; negative ones count as those that have their bits.
    if (line.contains("seed") && !line["seed"].is_number_integer())
      return fail(Status::invalid(fmt::format("\"seed\" is {}, expected an integer", dump_json(line["seed"]))));
    turn.seed = line.value("seed", uint64_t{0});
    turn.stop_tokens = TRY(tokens_of(line, "stop_token_ids", config.vocabulary));
    if (!TRY(bool_at(line, "ignore_eos", false)))
      turn.stop_tokens.insert(turn.stop_tokens.end(), config.eos_tokens.begin(), config.eos_tokens.end());
    request.stop_texts = TRY(texts_of(line, "stop"));
    if (!request.stop_texts.empty() && !side.tokenizer)
      return fail(Status::invalid("\"stop\" needs a tokenizer.json in the model directory"));
    if (request.stop_texts.empty()) line.erase("stop");  // it says nothing, then, beside a constraint
    request.one_call = !TRY(bool_at(line, "parallel_tool_calls", true));
    const Json choice = line.value("tool_choice", Json());
    if (choice == Json("auto")) {
      if (!line.contains("messages")) return fail(Status::invalid("\"tool_choice\" goes with \"messages\""));
      if (!line.contains("tools")) return fail(Status::invalid("\"tool_choice\" needs \"tools\""));
      // The model decides; what it calls is held to the schemas only where a tool asks for that.
      if (!any_is_strict(line["tools"])) line.erase("tool_choice");
    }
    turn.constraint = TRY(constraints.of(line, request.format ? std::optional(request.format->dialect) : std::nullopt));
  } catch (const Json::exception& error) {
    return fail(Status::invalid(error.what()));
  }
  // An answer in a format of its own is content, however it begins.
  if (request.turn.constraint && line.contains("response_format")) request.tools = Json::array();
  if (request.format && request.turn.constraint && line.value("tool_choice", Json()) != Json("auto"))
    request.format->begins_in_reasoning = false;
  if (line.value("tool_choice", Json()) == Json("none")) request.tools = Json::array();
  return request;
}

Json message_of(const GenerateRequest& request, const std::string& text) {
  size_t end = text.size();
  for (const auto& stop : request.stop_texts) end = std::min(end, text.find(stop));
  auto parsed = model::parse_message(*request.format, std::string_view(text).substr(0, end), request.tools);
  if (request.one_call && parsed.calls.size() > 1) parsed.calls.resize(1);
  Json message = message_json(parsed);
  for (const auto& error : parsed.errors) message["tool_call_errors"].push_back(error.message);
  return message;
}

}  // namespace tandem::cli
