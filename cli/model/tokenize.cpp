// `tandem tokenize`.
#include <fmt/format.h>

#include <array>

#include "cli/command.h"
#include "cli/json_lines.h"
#include "model/tokenizer.h"
#include "run/run_step.h"

namespace tandem::cli {
namespace {

Result<Json> encode(const model::Tokenizer& tokenizer, const Json& line, model::AddSpecial special) {
  const auto text = line.find("text");
  if (text == line.end() || !text->is_string()) return fail(Status::invalid("text is not a string"));
  auto ids = TRY(tokenizer.encode(text->get_ref<const std::string&>(), special));
  return Json{{"ids", std::move(ids)}};
}

Result<Json> decode(const model::Tokenizer& tokenizer, const Json& line) {
  const auto list = line.find("ids");
  if (list == line.end() || !list->is_array()) return fail(Status::invalid("ids is not a list"));
  std::vector<model::TokenId> ids;
  for (const Json& id : *list) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > INT32_MAX) {
      return fail(Status::invalid(fmt::format("ids[{}] is {}, not a token id", ids.size(), dump_json(id))));
    }
    ids.push_back(static_cast<model::TokenId>(id.get<int64_t>()));
  }
  return Json{{"text", tokenizer.decode(ids)}};
}

}  // namespace

Action add_tokenize(CLI::App& command) {
  struct Options {
    JsonLinesOptions lines;
    std::string model;
    bool decode = false;
    bool no_special = false;
  };
  auto options = std::make_shared<Options>();
  command.add_option("--model", options->model, "folder with tokenizer.json")->required();
  command.add_flag("--decode", options->decode, "turn {\"ids\"} into {\"text\"}");
  command.add_flag("--no-special", options->no_special, "leave off what the post-processor adds");
  command.footer(
      "Examples:\n"
      "  echo '{\"text\": \"Hello\"}' | tandem tokenize --model models/SmolLM2-135M-Instruct\n"
      "  tandem tokenize --model models/SmolLM2-135M-Instruct --decode --input ids.jsonl --output text.jsonl");
  add_json_lines_options(command, options->lines);
  return [options]() -> Result<int> {
    static constexpr std::array<std::string_view, 1> kEncodeKeys = {"text"};
    static constexpr std::array<std::string_view, 1> kDecodeKeys = {"ids"};
    const auto tokenizer = TRY(model::Tokenizer::load(TRY(run::model_to_check(options->model))));
    const auto special = options->no_special ? model::AddSpecial::kNo : model::AddSpecial::kYes;
    return run_json_lines(options->lines, options->decode ? kDecodeKeys : kEncodeKeys, [&](const Json& line) {
      return options->decode ? decode(tokenizer, line) : encode(tokenizer, line, special);
    });
  };
}

}  // namespace tandem::cli
