// Calls of each dialect as grammars, a file each. What several need is in call_parts.h.
//
// The dialect's parser reads every text of such a grammar back as calls of the tools, with arguments that are valid by
// their parameters. kInvalid names the tool and its mistake. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "model/constraint/grammar.h"

namespace tandem::model::constraint {

struct OfferedTool {
  std::string name;
  Json parameters;  // their JSON Schema
};

struct CallsAsked {
  std::vector<OfferedTool> tools;  // none where there are no calls
  bool calls = true;
  bool text = false;  // may be all, or stand before the calls where the dialect has that
  bool one = false;   // call and no more
};

Result<Grammar> hermes_calls(const CallsAsked& asked);
Result<Grammar> qwen3_coder_calls(const CallsAsked& asked);
Result<Grammar> glm4_calls(const CallsAsked& asked);
Result<Grammar> llama3_calls(const CallsAsked& asked);
Result<Grammar> deepseek_v3_calls(const CallsAsked& asked);
Result<Grammar> deepseek_v31_calls(const CallsAsked& asked);
Result<Grammar> kimi_k2_calls(const CallsAsked& asked);
Result<Grammar> mistral_calls(const CallsAsked& asked);
Result<Grammar> mistral_v11_calls(const CallsAsked& asked);

}  // namespace tandem::model::constraint
