// Pairs of answers to one prompt, of which one is preferred, as data sets of preferences have them.
//
// A line is {"prompt": .., "chosen": .., "rejected": ..}: the prompt a text, which is a message of the user, or a list
// of messages; the answers texts, a message, or lists of messages that follow the prompt. Or both answers are whole
// conversations, beginning with a message of somebody else than the assistant: what they have in common at their
// beginning is the prompt, and a prompt beside them is passed over. `tools` and `chat_template_kwargs` as in
// transcripts.
//
// Pure functions of JSON that nobody vouches for.
#pragma once

#include "trainer/sft/transcript.h"

namespace tandem::trainer {

// Messages of the prompt are muted in both.
struct Preference {
  Chat chosen, rejected;
};

// kInvalid says what is wrong, with the message where there is one: "chosen messages[1] (tool): ...".
Result<Preference> read_preference(const Json& json);
// `margin` of a line: by how much the reward of the chosen answer is to be above the other's; nothing where it says
// none.
Result<std::optional<double>> read_margin(const Json& json);

}  // namespace tandem::trainer
