#include "model/chat_template.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/lfs_pointer.h"
#include "base/text.h"
#include "model/content_marks.h"
#include "model/jinja/builtins.h"
#include "model/jinja/interpreter.h"

namespace tandem::model {

using jinja::Arguments;
using jinja::Dict;
using jinja::Function;
using jinja::List;
using jinja::None;
using jinja::Parameters;
using jinja::TemplateError;
using jinja::Value;

struct ChatTemplate::Compiled {
  std::string source;
  jinja::Body body;
};

namespace {

constexpr uint64_t kLargestTemplate = 4 << 20;
constexpr const char* kReasoningFields[] = {"reasoning_content", "thinking", "reasoning"};
constexpr const char* kForTools = "tool_use";  // the name of the template for requests with tools
constexpr std::string_view kContinueTag = "CONTINUE_FINAL_MESSAGE_TAG ";

Value range(const Arguments& arguments) {
  const List& p = arguments.positional;
  if (p.empty() || p.size() > 3 || !arguments.named.empty())
    throw TemplateError("range takes one to three whole numbers");
  const int64_t begin = p.size() == 1 ? 0 : p[0].integer();
  const int64_t end = p.size() == 1 ? p[0].integer() : p[1].integer();
  const int64_t step = p.size() == 3 ? p[2].integer() : 1;
  constexpr int64_t kMost = 100000;  // jinja2's own limit
  constexpr int64_t kFarthest = int64_t{1} << 40;
  if (step == 0) throw TemplateError("range() arg 3 must not be zero");
  if (std::max({std::abs(begin), std::abs(end), std::abs(step)}) > kFarthest) throw TemplateError("range is too far");
  List list;
  for (int64_t i = begin; step > 0 ? i < end : i > end; i += step) {
    if (static_cast<int64_t>(list.size()) >= kMost)
      throw TemplateError(fmt::format("range of more than {} numbers", kMost));
    list.emplace_back(i);
  }
  return Value::range(std::move(list));
}

Value make_dict(const Arguments& arguments) {
  Dict dict;
  if (!arguments.positional.empty() && arguments.positional[0].is_list()) {
    for (const Value& pair : arguments.positional[0].elements()) {
      const List both = pair.elements();
      if (both.size() != 2) throw TemplateError("dict takes a mapping, or a list of pairs");
      jinja::dict_set(dict, both[0].text(), both[1]);
    }
  } else if (!arguments.positional.empty()) {
    dict = arguments.positional[0].dict();
  }
  if (arguments.positional.size() > 1) throw TemplateError("dict takes one mapping at most");
  for (const auto& [key, value] : arguments.named) jinja::dict_set(dict, key, value);
  return dict;
}

Dict globals_of(const RenderOptions& options) {
  Dict globals;
  globals.emplace_back("range", Function(range));
  globals.emplace_back("dict", Function(make_dict));
  globals.emplace_back("lipsum", Function([](const Arguments&) -> Value {
                         throw TemplateError("lipsum, which makes random text, is not supported");
                       }));
  globals.emplace_back(
      "raise_exception", Function([](const Arguments& arguments) -> Value {
        throw jinja::RaisedByTemplate(Parameters("raise_exception", arguments, {"message"}).need(0).str());
      }));
  globals.emplace_back("strftime_now", Function([now = options.now](const Arguments& arguments) -> Value {
                         if (!now) throw TemplateError("strftime_now is asked for and no time was given");
                         const std::string format = Parameters("strftime_now", arguments, {"format"}).need(0).text();
                         char buffer[1024];
                         const size_t length = std::strftime(buffer, sizeof buffer, format.c_str(), &*now);
                         if (length == 0 && !format.empty())
                           throw TemplateError("strftime_now of a text that is too long");
                         return std::string(buffer, length);
                       }));
  return globals;
}

// What transformers does to messages before a template sees them: keys whose value is null go, and reasoning is found
// under the name that templates read.
Result<Json> prepared(const Json& messages) {
  if (!messages.is_array() || messages.empty())
    return fail(Status::invalid("messages is not a list with at least one message"));
  Json result = Json::array();
  for (const Json& message : messages) {
    if (!message.is_object()) return fail(Status::invalid(fmt::format("messages[{}] is not an object", result.size())));
    Json kept = Json::object();
    for (const auto& [key, value] : message.items()) {
      if (!value.is_null()) kept[key] = value;
    }
    for (const char* field : kReasoningFields) {
      if (!kept.contains(field)) continue;
      const Json reasoning = kept[field];
      Json aliased = Json::object();
      aliased["thinking"] = reasoning;
      aliased.update(kept);
      aliased["reasoning_content"] = reasoning;
      kept = std::move(aliased);
      break;
    }
    result.push_back(std::move(kept));
  }
  return result;
}

// What chat_template_kwargs may have: variables of the template, and no arguments that something else decides.
Status check_variable(const std::string& name, const Json& value) {
  if (name == "messages" || name == "tools" || name == "chat_template")
    return Status::invalid("chat_template_kwargs has the key " + name);
  const auto is_object = [](const Json& document) { return document.is_object(); };
  if (name != "documents" || value.is_null()) return {};
  if (value.is_array() && std::all_of(value.begin(), value.end(), is_object)) return {};
  return Status::invalid("chat_template_kwargs: documents is not a list of objects with \"title\" and \"text\"");
}

// Marks the place that a continued text ends at; the result is the text of the message that is continued.
Result<std::string> mark_continuation(Json& messages, const std::string& field) {
  Json& last = messages.back();
  if (!last.contains(field)) {
    return fail(
        Status::invalid(fmt::format("continue_final_message: the last message has no \"{}\" to continue", field)));
  }
  Json& content = last[field];
  if (content.is_string()) {
    const auto text = content.get<std::string>();
    const bool reasoning =
        std::find(std::begin(kReasoningFields), std::end(kReasoningFields), field) != std::end(kReasoningFields);
    content = text + std::string(kContinueTag);
    for (const char* other : kReasoningFields) {
      if (reasoning && last.contains(other) && last[other] == text) last[other] = text + std::string(kContinueTag);
    }
    return text;
  }
  if (content.is_array()) {
    for (size_t i = content.size(); i > 0; --i) {
      Json& block = content[i - 1];
      if (!block.is_object() || !block.contains("text") || !block["text"].is_string()) continue;
      const auto text = block["text"].get<std::string>();
      block["text"] = text + std::string(kContinueTag);
      return text;
    }
  }
  return fail(Status::invalid("continue_final_message: the last message has no text to continue"));
}

Result<std::string> cut_continuation(std::string text, const std::string& final_message) {
  const size_t tag = text.rfind(trim(kContinueTag));
  const std::string stripped = jinja::strip(final_message, nullptr, true, true);
  if (tag == std::string::npos || text.find(stripped) == std::string::npos) {
    return fail(
        Status::invalid("continue_final_message: the final message does not appear in the text of the template"));
  }
  const bool spacing_kept = text.compare(tag, kContinueTag.size(), kContinueTag) == 0;
  text.resize(tag);
  return spacing_kept ? text : jinja::strip(text, nullptr, false, true);
}

}  // namespace

std::pair<size_t, size_t> tokens_between(const Encoded& tokens, std::string_view text, size_t begin, size_t end) {
  const auto token_at = [&](size_t byte) {
    return static_cast<size_t>(std::upper_bound(tokens.ends.begin(), tokens.ends.end(), byte) - tokens.ends.begin());
  };
  size_t last = end - 1;
  while (last > begin && (static_cast<uint8_t>(text[last]) & 0xc0) == 0x80) --last;
  return {token_at(begin), std::min(token_at(last) + 1, tokens.ids.size())};
}

Result<ChatTemplate> ChatTemplate::parse(std::string_view source, Json special_tokens) {
  if (source.size() > kLargestTemplate) return fail(Status::invalid("chat_template is larger than 4 MiB"));
  ChatTemplate result;
  result.special_tokens_ = std::move(special_tokens);
  try {
    result.templates_["default"] =
        std::make_shared<const Compiled>(Compiled{std::string(source), jinja::parse(source)});
  } catch (const TemplateError& error) {
    return fail(Status::invalid(fmt::format("chat_template: {}", error.what())));
  }
  return result;
}

namespace {

// An object, or an empty one where there is no such file.
Result<Json> read_object(const fs::path& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return Json::object();
  auto read = parse_json(TRY(read_file(path, 64 << 20)));
  if (!read) return fail(std::move(read).error().at(path.string()));
  return read->is_object() ? std::move(*read) : Json::object();
}

// What templates see of the tokens that a file names: bos_token and its like, tokens of the model's own whose keys end
// in _token, and extra_special_tokens by name.
void add_special_tokens(const Json& file, Json& special) {
  const auto add = [&](const std::string& name, const Json& token) {
    if (token.is_string()) special[name] = token;
    if (token.is_object() && token.contains("content") && token["content"].is_string())
      special[name] = token["content"];
  };
  for (const auto& [name, token] : file.items())
    if (name.ends_with("_token")) add(name, token);
  const auto extra = file.find("extra_special_tokens");
  if (extra == file.end() || !extra->is_object()) return;
  for (const auto& [name, token] : extra->items()) add(name, token);
}

}  // namespace

Result<ChatTemplate> ChatTemplate::load(const fs::path& directory) {
  const fs::path config_path = directory / "tokenizer_config.json";
  const fs::path file_path = directory / "chat_template.jinja";
  std::error_code ignored;
  const Json config = TRY(read_object(config_path));
  Json special = Json::object();
  add_special_tokens(config, special);
  if (!config.contains("added_tokens_decoder"))
    add_special_tokens(TRY(read_object(directory / "special_tokens_map.json")), special);
  ChatTemplate result;
  const auto add_named = [&](const std::string& name, std::string_view source, const fs::path& place) -> Status {
    auto parsed = parse(source, special);
    if (!parsed) return std::move(parsed).error().at(place.string());
    result.templates_[name] = parsed->templates_.at("default");
    return {};
  };
  // Templates in files of their own are all that there are.
  std::vector<std::pair<std::string, fs::path>> files;
  if (fs::exists(file_path, ignored)) files.emplace_back("default", file_path);
  for (const auto& entry : fs::directory_iterator(directory / "additional_chat_templates", ignored))
    if (entry.path().extension() == ".jinja") files.emplace_back(entry.path().stem().string(), entry.path());
  const auto found = files.empty() ? config.find("chat_template") : config.end();
  if (found != config.end() && found->is_string()) {
    TRY(add_named("default", found->get_ref<const std::string&>(), config_path));
  } else if (found != config.end() && found->is_array()) {
    for (const Json& entry : *found) {
      if (!entry.is_object() || !entry.contains("name") || !entry["name"].is_string() || !entry.contains("template") ||
          !entry["template"].is_string()) {
        return fail(Status::invalid("chat_template: an entry has no name or no template").at(config_path.string()));
      }
      TRY(add_named(entry["name"].get<std::string>(), entry["template"].get<std::string>(), config_path));
    }
  }
  for (const auto& [name, path] : files) {
    auto source = TRY(read_file(path, kLargestTemplate));
    if (Status status = check_not_lfs_pointer(source); !status.ok()) return fail(std::move(status).at(path.string()));
    TRY(add_named(name, std::move(source), path));
  }
  if (!result.templates_.contains("default") && !result.templates_.contains(kForTools)) {
    if (!fs::is_directory(directory, ignored)) {
      return fail(Status::not_found("there is no such directory").at(directory.string()));
    }
    return fail(Status::not_found("has no chat template: neither chat_template.jinja nor one in tokenizer_config.json")
                    .at(directory.string()));
  }
  result.special_tokens_ = std::move(special);
  return result;
}

const ChatTemplate::Compiled& ChatTemplate::choose(bool with_tools) const {
  const auto for_tools = templates_.find(kForTools);
  const auto plain = templates_.find("default");
  const bool alone = plain == templates_.end();
  return (with_tools || alone) && for_tools != templates_.end() ? *for_tools->second : *plain->second;
}

const std::string& ChatTemplate::source(bool with_tools) const { return choose(with_tools).source; }

std::string ChatTemplate::end_token() const {
  const auto found = special_tokens_.find("eos_token");
  return found != special_tokens_.end() && found->is_string() ? found->get<std::string>() : "";
}

Result<Rendered> ChatTemplate::render(const Json& messages, const Json& tools, const RenderOptions& options) const {
  if (!tools.is_null() && !tools.is_array()) return fail(Status::invalid("tools is not a list"));
  if (tools.is_null() && !templates_.contains("default"))
    return fail(Status::invalid("the only chat template is tool_use, which is for requests with tools"));
  if (!options.variables.is_object()) return fail(Status::invalid("chat_template_kwargs is not an object"));
  const bool continues = !options.continue_final_message.empty();
  if (continues && options.add_generation_prompt) {
    return fail(Status::invalid("continue_final_message and add_generation_prompt exclude each other"));
  }
  Json seen = TRY(prepared(messages));
  std::string final_message;
  if (continues) final_message = TRY(mark_continuation(seen, options.continue_final_message));
  try {
    Dict globals = globals_of(options);
    for (const auto& [name, value] : special_tokens_.items()) jinja::dict_set(globals, name, Value::from_json(value));
    jinja::dict_set(globals, "documents", None{});
    for (const auto& [name, value] : options.variables.items()) {
      TRY(check_variable(name, value));
      if (name == "add_generation_prompt" && value != options.add_generation_prompt)
        return fail(Status::invalid(
            fmt::format("chat_template_kwargs: add_generation_prompt is {} here, and {} by the request's own keys",
                        dump_json(value), options.add_generation_prompt)));
      jinja::dict_set(globals, name, Value::from_json(value));
    }
    jinja::dict_set(globals, "messages", Value::from_json(seen));
    jinja::dict_set(globals, "tools", Value::from_json(tools));
    jinja::dict_set(globals, "add_generation_prompt", options.add_generation_prompt);
    jinja::Output output = jinja::run(choose(!tools.is_null()).body, globals);
    Rendered rendered{std::move(output.text), std::move(output.generated), std::move(output.displaced)};
    if (continues) rendered.text = TRY(cut_continuation(std::move(rendered.text), final_message));
    return rendered;
  } catch (const jinja::RaisedByTemplate& error) {
    return fail(Status::invalid(error.what()));
  } catch (const TemplateError& error) {
    return fail(Status::invalid(fmt::format("chat_template: {}", error.what())));
  }
}

Result<RenderedIds> ChatTemplate::render_ids(const Tokenizer& tokenizer, const Json& messages, const Json& tools,
                                             const RenderOptions& options) const {
  Rendered rendered;
  std::vector<std::pair<size_t, size_t>> plain;
  if (options.special_in_content == SpecialInContent::kText) {
    const auto special_texts = tokenizer.special_texts();
    ContentMarks marks(special_texts, source(!tools.is_null()) + dump_json(options.variables));
    Json both = marks.mark(Json::array({messages, tools}));
    rendered = TRY(render(both[0], both[1], options));
    plain = TRY(marks.restore(rendered));
  } else {
    rendered = TRY(render(messages, tools, options));
  }
  Encoded encoded = TRY(tokenizer.encode_with_ends(rendered.text, plain));
  RenderedIds result{std::move(rendered.text), encoded.ids, {}};
  result.assistant_mask.resize(result.ids.size());
  for (const auto* spans : {&rendered.assistant_spans, &rendered.displaced_spans}) {
    for (const auto& [begin, end] : *spans) {
      if (begin == end) continue;
      const auto [first, last] = tokens_between(encoded, result.text, begin, end);
      std::fill(result.assistant_mask.begin() + static_cast<long>(first),
                result.assistant_mask.begin() + static_cast<long>(last), 1);
    }
  }
  return result;
}

}  // namespace tandem::model
