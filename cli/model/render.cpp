// `tandem render`.
#include <fmt/format.h>

#include <array>
#include <ctime>

#include "base/iso_time.h"
#include "cli/command.h"
#include "cli/json_lines.h"
#include "model/chat_template.h"
#include "run/run_step.h"

namespace tandem::cli {
namespace {

struct RenderKey {
  std::string_view name, help;
};
constexpr std::array kKeysOfRender = {
    RenderKey{"messages", "a chat, in OpenAI's format"},
    RenderKey{"tools", "functions, in OpenAI's format (none)"},
    RenderKey{"add_generation_prompt", "true: the beginning of an answer stands at the end (false)"},
    RenderKey{"continue_final_message", "the last message has no end; true, or the field's name (false)"},
    RenderKey{"chat_template_kwargs",
              "variables of the template, such as enable_thinking, and documents: a list of "
              "{title, text} (none)"},
    RenderKey{"now", "the time that a template may write, such as 2026-03-01T12:30:00 (that of this machine)"}};
constexpr auto kRenderKeys = [] {
  std::array<std::string_view, kKeysOfRender.size()> names;
  for (size_t i = 0; i < names.size(); ++i) names[i] = kKeysOfRender[i].name;
  return names;
}();

Result<std::tm> parse_time(const Json& value) {
  const auto time = value.is_string() ? parse_iso_time(value.get<std::string>()) : std::nullopt;
  if (time) return *time;
  return fail(Status::invalid(fmt::format("now is {}, not an ISO time like 2026-03-01T12:30:00", dump_json(value))));
}

Result<Json> render(const model::ChatTemplate& chat_template, const model::Tokenizer& tokenizer, const Json& line) {
  model::RenderOptions options;
  options.add_generation_prompt = TRY(bool_at(line, "add_generation_prompt", false));
  if (const auto found = line.find("continue_final_message"); found != line.end() && found->is_string()) {
    options.continue_final_message = found->get<std::string>();
  } else if (TRY(bool_at(line, "continue_final_message", false))) {
    options.continue_final_message = "content";
  }
  if (const auto found = line.find("chat_template_kwargs"); found != line.end() && !found->is_null())
    options.variables = *found;
  const auto now = line.find("now");
  options.now = now == line.end() || now->is_null() ? local_time() : TRY(parse_time(*now));
  const auto messages = line.find("messages");
  if (messages == line.end()) return fail(Status::invalid("has no messages"));
  const auto tools = line.find("tools");
  const auto rendered =
      TRY(chat_template.render_ids(tokenizer, *messages, tools == line.end() ? Json(nullptr) : *tools, options));
  return Json{{"text", rendered.text}, {"ids", rendered.ids}, {"assistant_mask", rendered.assistant_mask}};
}

}  // namespace

Action add_render(CLI::App& command) {
  struct Options {
    JsonLinesOptions lines;
    std::string model;
  };
  auto options = std::make_shared<Options>();
  command.add_option("--model", options->model, "folder with tokenizer.json and a chat template")->required();
  std::string keys = "Keys of a line:\n";
  for (const auto& key : kKeysOfRender) keys += fmt::format("  {:<24}{}\n", key.name, key.help);
  command.footer(keys +
                 "\nExample:\n"
                 "  echo '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}' | "
                 "tandem render --model models/SmolLM2-135M-Instruct");
  add_json_lines_options(command, options->lines);
  return [options]() -> Result<int> {
    const fs::path model = TRY(run::model_to_check(options->model));
    const auto tokenizer = TRY(model::Tokenizer::load(model));
    const auto chat_template = TRY(model::ChatTemplate::load(model));
    return run_json_lines(options->lines, kRenderKeys,
                          [&](const Json& line) { return render(chat_template, tokenizer, line); });
  };
}

}  // namespace tandem::cli
