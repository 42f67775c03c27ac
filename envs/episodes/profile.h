// A harness profile: which tools a model has, how it is told of them, and how much of a result it is shown. A model is
// trained under one, carries it (profile.yaml in its folder), and is run under it.
//
// Thread safety: values and functions of their arguments.
#pragma once

#include <string>
#include <vector>

#include "base/file.h"

namespace tandem::envs {

struct Profile {
  std::vector<std::string> tools;  // names, in the order in which they are shown
  int output_bytes = 2000;         // of a call's output that the model is shown
  double call_seconds = 10;        // time limit of a call
  std::string system;              // the system message where the model's chat template writes the tools
  friend bool operator==(const Profile&, const Profile&) = default;
};

inline constexpr const char* kProfileFile = "profile.yaml";  // in the folder of a model

// What a model of some hundred million parameters can hold: the tools that training names, short outputs.
Profile small_profile();
// All tools that there are without an encoder, outputs of 20,000 bytes, calls of 120 s.
Profile default_profile();

// kInvalid names file, key and fix: an unknown key, a tool that there is not, a number out of bounds.
Result<Profile> read_profile(const fs::path& file);
// That of a model's folder; `otherwise` where it has none.
Result<Profile> profile_of_model(const fs::path& model_directory, const Profile& otherwise);
// What read_profile reads, with a digest of the content as its name.
std::string to_yaml(const Profile& profile);
std::string digest_of(const Profile& profile);  // hexadecimal

// A line for each key in which they differ: "tools: grep is not offered".
std::vector<std::string> differences(const Profile& learned, const Profile& used);

}  // namespace tandem::envs
