// Messages into the text that a model was trained on, as transformers' apply_chat_template renders it.
//
// A template is Jinja with transformers' settings (trim_blocks, lstrip_blocks, loop controls, generation blocks, an
// immutable sandbox). It gives the same text as transformers, or a clear error; what the interpreter does not know is
// refused, mostly when the template is read. It cannot loop for ever, eat memory, or reach files.
//
// Thread safety: const methods from any thread.
#pragma once

#include <ctime>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "model/tokenizer.h"

namespace tandem::model {

// How the text of a special token within a message or a tool is encoded: as plain text, so that no content can forge a
// turn, or as that token, as in transformers. The rendered text is the same.
enum class SpecialInContent : uint8_t { kTokens, kText };

struct RenderOptions {
  bool add_generation_prompt = false;
  // The field of the last message that the text ends within ("content"), so that the model goes on with it; empty:
  // none.
  std::string continue_final_message;
  Json variables = Json::object();  // chat_template_kwargs: what the template sees beside messages and tools
  SpecialInContent special_in_content = SpecialInContent::kTokens;
  std::optional<std::tm> now;  // for strftime_now; a template that asks for it fails without
};

struct Rendered {
  std::string text;
  // Bytes [begin, end) that came out of {% generation %} blocks: what the assistant said.
  std::vector<std::pair<size_t, size_t>> assistant_spans;
  // Those of blocks within macros, filters and set blocks, where transformers takes them to be: at the place where the
  // outermost of these began, which need not be what the block wrote.
  std::vector<std::pair<size_t, size_t>> displaced_spans;
};

struct RenderedIds {
  std::string text;
  std::vector<TokenId> ids;
  std::vector<uint8_t> assistant_mask;  // by token: 1 where a generation block wrote it, by transformers' count
};

// The tokens [first, last) that text[begin, end) is written with: from that of its first character to that of its last
// one. begin < end.
std::pair<size_t, size_t> tokens_between(const Encoded& tokens, std::string_view text, size_t begin, size_t end);

class ChatTemplate {
 public:
  // DIR/chat_template.jinja, or the chat_template of DIR/tokenizer_config.json (one, or several by name), and those of
  // DIR/additional_chat_templates by name; with the special tokens that the template may name: those of
  // tokenizer_config.json, and of special_tokens_map.json where the former has no added_tokens_decoder.
  static Result<ChatTemplate> load(const fs::path& directory);
  static Result<ChatTemplate> parse(std::string_view source, Json special_tokens = Json::object());

  // `messages`: a list of objects in OpenAI's format. `tools`: null or a list. An error of the template has its line;
  // one that the template raises has its words.
  Result<Rendered> render(const Json& messages, const Json& tools, const RenderOptions& options) const;
  // The same as ids, without what the tokenizer's post-processor would add.
  Result<RenderedIds> render_ids(const Tokenizer& tokenizer, const Json& messages, const Json& tools,
                                 const RenderOptions& options) const;

  // The text of the template that a call with or without tools uses; where the only one is for tools, that.
  const std::string& source(bool with_tools) const;

  // The text of the end token, by the same files; empty where they name none.
  std::string end_token() const;

 private:
  struct Compiled;
  const Compiled& choose(bool with_tools) const;

  std::map<std::string, std::shared_ptr<const Compiled>> templates_;
  Json special_tokens_ = Json::object();
};

}  // namespace tandem::model
