// `tandem parse`.
#include <fmt/format.h>

#include <array>

#include "base/file.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/json_lines.h"
#include "cli/model/message_json.h"
#include "model/chat_template.h"
#include "model/config.h"
#include "model/constraint/validator.h"
#include "model/message_format.h"
#include "model/tokenizer.h"
#include "run/run_step.h"

namespace tandem::cli {
namespace {

constexpr std::array<std::string_view, 2> kParseKeys = {"text", "tools"};
constexpr std::array<std::string_view, 1> kSchemaKeys = {"text"};

struct ParseOptions {
  JsonLinesOptions lines;
  std::string model, dialect, schema;
};

Result<std::string> text_of(const Json& line) {
  const auto text = line.find("text");
  if (text == line.end() || !text->is_string()) return fail(Status::invalid("\"text\" is not a text"));
  return text->get<std::string>();
}

// How messages of a model begin shows in the prompt that its template makes.
class Format {
 public:
  static Result<Format> of_dialect(const std::string& name) {
    const auto dialect = model::dialect_named(name);
    if (dialect) {
      Format format;
      format.dialect_ = *dialect;
      return format;
    }
    std::vector<std::string_view> names;
    for (const auto one : model::kToolDialects) names.push_back(model::name_of(one));
    return fail(Status::invalid(
        fmt::format("--dialect: there is none of the name \"{}\"; expected one of {}", name, fmt::join(names, ", "))));
  }
  static Result<Format> of_model(const fs::path& directory) {
    Format format;
    format.template_ = TRY(model::ChatTemplate::load(directory));
    if (fs::exists(directory / "tokenizer.json")) format.tokenizer_ = TRY(model::Tokenizer::load(directory));
    if (std::string end = format.template_->end_token(); !end.empty()) format.ends_.push_back(std::move(end));
    // A folder may hold a tokenizer alone.
    if (const auto config = model::read_config(directory); config && format.tokenizer_) {
      for (const auto id : config->eos_tokens) format.ends_.emplace_back(format.tokenizer_->name_of(id));
    }
    return format;
  }

  model::ToolDialect dialect(const Json& tools) const {
    return template_ ? model::dialect_of_template(template_->source(!tools.is_null())) : dialect_;
  }
  // Texts of the model's own end tokens.
  const std::vector<std::string>& ends() const { return ends_; }
  model::MessageFormat with(const std::string& text, const Json& tools) const {
    // Whether the prompt opened the reasoning shows in the text alone.
    if (!template_)
      return {.dialect = dialect_, .begins_in_reasoning = model::ends_reasoning_of_prompt(dialect_, text, tools)};
    const Json messages = Json::array({{{"role", "user"}, {"content", "Hello"}}});
    model::RenderOptions options{.add_generation_prompt = true};
    options.now = std::tm{};
    const auto rendered = template_->render(messages, tools, options);
    return model::message_format(*template_, !tools.is_null(), rendered ? rendered->text : "",
                                 tokenizer_ ? &*tokenizer_ : nullptr);
  }

 private:
  std::optional<model::ChatTemplate> template_;
  std::optional<model::Tokenizer> tokenizer_;
  model::ToolDialect dialect_ = model::ToolDialect::kHermes;
  std::vector<std::string> ends_;
};

Result<Json> parse_line(const Format& format, const Json& line) {
  const std::string given = TRY(text_of(line));
  const Json tools = line.value("tools", Json());
  if (!tools.is_null() && !tools.is_array()) return fail(Status::invalid("\"tools\" is not a list"));
  const std::string text(model::without_end_tokens(format.dialect(tools), given, format.ends()));
  const auto parsed = model::parse_message(format.with(text, tools), text, tools);
  Json errors = Json::array();
  for (const auto& error : parsed.errors) errors.push_back(error.message);
  return Json{{"message", message_json(parsed)}, {"errors", std::move(errors)}};
}

Result<Json> check_line(const Json& schema, const Json& line) {
  const auto value = parse_json(TRY(text_of(line)));
  std::vector<std::string> errors;
  if (value)
    errors = TRY(model::constraint::schema_errors(schema, *value));
  else
    errors.push_back(value.error().message());
  return Json{{"valid", errors.empty()}, {"errors", errors}};
}

Result<int> run_parse(const ParseOptions& options) {
  if (options.schema.empty()) {
    const auto format = options.model.empty() ? TRY(Format::of_dialect(options.dialect))
                                              : TRY(Format::of_model(TRY(run::model_to_check(options.model))));
    return run_json_lines(options.lines, kParseKeys, [&](const Json& line) { return parse_line(format, line); });
  }
  auto schema = parse_json(TRY(read_file(options.schema, 16 << 20)));
  if (!schema) return fail(std::move(schema).error().at(options.schema));
  return run_json_lines(options.lines, kSchemaKeys, [&](const Json& line) { return check_line(*schema, line); });
}

}  // namespace

Action add_parse(CLI::App& command) {
  auto options = std::make_shared<ParseOptions>();
  auto* const how = command.add_option_group("how", "what texts are read by; one of them");
  how->add_option("--model", options->model, "folder with a chat template, which tells the dialect");
  how->add_option("--dialect", options->dialect, "hermes, qwen3_coder, glm4, llama3, deepseek_v3, ..");
  how->add_option("--schema", options->schema, "file with a JSON Schema");
  how->require_option(1);
  command.footer(
      "Lines {\"text\", \"tools\"} give {\"message\", \"errors\"}: reasoning, content and calls of what a model said.\n"
      "Where \"tools\" are given, they tell a call from a text that looks like one, and the types of its arguments; [] "
      "says that none were offered.\n"
      "With --schema, lines {\"text\"} give {\"valid\", \"errors\"}.\n"
      "Example:\n"
      "  echo '{\"text\": \"<think>Hm.</think><tool_call>{\\\"name\\\": \\\"f\\\"}</tool_call>\"}' | tandem parse "
      "--dialect hermes");
  add_json_lines_options(command, options->lines);
  return [options] { return run_parse(*options); };
}

}  // namespace tandem::cli
