// The generation that a request asks for, independent of the endpoint: prompts, sampling, parsing of the answer.
//
// Values; see fields of docs/serving.md for what each means.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rollout/engine/engine.h"
#include "serve/choice.h"
#include "serve/constraints.h"
#include "serve/fields.h"
#include "serve/priority.h"
#include "serve/response_store.h"

namespace tandem::serve {

struct Generation {
  std::vector<std::vector<int32_t>> prompts;
  int n = 1;  // answers to each prompt; answer i draws with seed + i
  rollout::TurnRequest turn;
  std::shared_ptr<ChoiceSettings> choice = std::make_shared<ChoiceSettings>();
  Priority priority = Priority::kInteractive;

  int answers() const { return static_cast<int>(prompts.size()) * n; }
};

// The view of a model for parsing requests. Belongs to the thread that prepares its requests.
struct ModelView {
  std::string name;  // that the request asks for
  const TextSide& text;
  const model::ModelConfig& config;
  Constraints& constraints;
  int max_tokens = 0;               // prompt and answer together
  RouteShape routes = {};           // that the engine records; not any(): none
  ResponseStore* stored = nullptr;  // of answers that a request may go on from; null: there is none
  bool keeps = true;                // whether this one may become one of those
  std::string key;                  // whose request it is
};

// Rows of the fields that all endpoints share that sample.
std::span<const FieldRow> sampling_fields();
// Reads those fields into `generation`: sampling, stops, limits, biases. `max_tokens`: the field that bounds an answer;
// `otherwise`: where it is missing, 0 for all that there is room for.
Status read_sampling(Fields& fields, const ModelView& model, std::string_view max_tokens, int otherwise,
                     Generation& generation);
// Cuts the answer to the room that the longest prompt leaves, or says that there is none.
Status fit_answer(Fields& fields, std::string_view param, const ModelView& model, Generation& generation);

// [1, 2, 3]; kInvalid names the place of what is no token of the model.
Result<std::vector<int32_t>> read_tokens(Fields& fields, std::string_view param, const Json& tokens,
                                         const ModelView& model);
// Text as tokens, with what the tokenizer puts around it.
Result<std::vector<int32_t>> encode(Fields& fields, std::string_view param, const std::string& text,
                                    const ModelView& model, bool add_special);
}  // namespace tandem::serve
