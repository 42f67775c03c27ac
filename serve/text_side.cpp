#include "serve/text_side.h"

#include <ctime>

#include "base/file.h"

namespace tandem::serve {

Result<TextSide> TextSide::load(const fs::path& directory) {
  TextSide side;
  if (!fs::exists(directory / "tokenizer.json")) return side;
  side.tokenizer = TRY(model::Tokenizer::load(directory));
  auto chat_template = model::ChatTemplate::load(directory);
  if (chat_template)
    side.chat_template = std::move(*chat_template);
  else if (chat_template.error().code() != Code::kNotFound)
    return tl::unexpected(chat_template.error());
  std::string both = digest_of(TRY(read_file(directory / "tokenizer.json"))).hex();
  for (const bool with_tools : {false, true}) {
    if (side.chat_template) both += "\n" + digest_of(side.chat_template->source(with_tools)).hex();
  }
  side.digest = digest_of(both);
  return side;
}

Result<model::RenderedIds> TextSide::render(const Json& messages, const Json& tools,
                                            model::RenderOptions options) const {
  if (!chat_template) {
    return fail(Status::invalid("\"messages\" needs a chat template in the model directory")
                    .hint("give \"prompt\" or \"tokens\" instead"));
  }
  const std::time_t now = std::time(nullptr);
  std::tm time{};
  ::localtime_r(&now, &time);
  options.now = time;
  options.special_in_content = special_in_content;
  return chat_template->render_ids(*tokenizer, messages, tools, options);
}

model::MessageFormat TextSide::format(bool with_tools, std::string_view prompt) const {
  return model::message_format(*chat_template, with_tools, prompt, tokenizer_or_null());
}

}  // namespace tandem::serve
