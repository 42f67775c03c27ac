// The parts of a request's body that a gateway needs: the model, and keys of the prompt's prefix.
//
// Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace tandem::gateway {

struct RequestView {
  std::string model;             // empty: the body names none
  std::string session;           // prompt_cache_key, safety_identifier or user, as the body says; or empty
  std::vector<uint64_t> prefix;  // PrefixChain of tools, messages and prompts, within `salt`
  double tokens = 0;             // about: a quarter of the bytes, and what the answer may have
  bool stream = false;
  std::optional<std::string> previous;  // previous_response_id
  Json body;
};

// kInvalid where it is no JSON object, or its members are of other types.
Result<RequestView> view_of(std::string_view body, std::string_view salt);

}  // namespace tandem::gateway
