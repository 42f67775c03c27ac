// How the containers of sandboxes are made, as the engine's API has it.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "envs/container/rendezvous.h"
#include "envs/sandbox/sandbox.h"

namespace tandem::envs {

inline constexpr std::string_view kOwnerLabel = "tandem.owner";
inline constexpr std::string_view kPreparedName = "localhost/tandem-prepared";
inline constexpr std::string_view kPreparation = "1";  // another one where prepared images differ

// Settings of a sandbox's container; `image` is a prepared one.
Json settings_of(const SandboxSpec& spec, const std::string& image, const Rendezvous& rendezvous,
                 const std::string& owner, const std::string& label);

// Settings of the container in which an image is prepared.
Json settings_of_preparation(const std::string& image, const Rendezvous& rendezvous, const std::string& owner);

}  // namespace tandem::envs
