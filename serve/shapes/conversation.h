// A conversation that a chat endpoint has read, in OpenAI's terms, and what it makes of a generation.
#pragma once

#include "serve/generation.h"

namespace tandem::serve {

struct Conversation {
  Json messages = Json::array();
  Json tools = Json::array();  // that are shown to the model; empty: none
  Json tool_choice;            // "required" or one function; null: the model decides
  Json response_format;        // null: text
  bool one_call = false;
  bool continues = false;             // the answer goes on with the last message
  bool add_generation_prompt = true;  // where it does not
  Json variables = Json::object();    // of the template
};

// Sets prompt, dialect, reasoning and constraint of `generation`; errors name "messages", "tool_choice" or
// "response_format".
Status apply_conversation(Fields& fields, const ModelView& model, const Conversation& conversation,
                          Generation& generation);

}  // namespace tandem::serve
