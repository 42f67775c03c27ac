// A harness profile: which tools a model has, how it is told of them, and how much of a result it is shown. A model is
// trained under one, carries it (profile.yaml in its folder), and is run under it.
//
// Thread safety: values and functions of their arguments.
#pragma once

#include <string>
#include <vector>

#include "base/file.h"

namespace tandem::envs {

// A conversation that outgrows `at` tokens is summed up by the model, which goes on from its own summary: the opening
// messages once more, with the summary behind the task.
struct Compaction {
  int at = 0;                    // tokens of a conversation, with what its next turn would begin with; 0: never
  int most = 8;                  // in one episode; afterwards it ends where there is no room
  std::string request, heading;  // what the model is asked, and what its summary stands under
  friend bool operator==(const Compaction&, const Compaction&) = default;
};
inline constexpr int kMostCompactions = 64;
extern const char* const kCompactionRequest;  // where a profile does not say another
extern const char* const kCompactionHeading;

struct Profile {
  std::vector<std::string> tools;  // names, in the order in which they are shown
  int output_bytes = 2000;         // of a call's output that the model is shown
  double call_seconds = 10;        // time limit of a call
  std::string system;              // the system message where the model's chat template writes the tools
  Compaction compaction;
  friend bool operator==(const Profile&, const Profile&) = default;
};

inline constexpr const char* kProfileFile = "profile.yaml";  // in the folder of a model

// The profile for models of a few hundred million parameters: the tools of training, short outputs.
Profile small_profile();
// All tools that there are without an encoder, outputs of 20,000 bytes, calls of 120 s.
Profile default_profile();

// kInvalid names file, key and fix: an unknown key, a tool that there is not, a number out of bounds.
Result<Profile> read_profile(const fs::path& file);
// The profile in a model's folder; `otherwise` where it has none.
Result<Profile> profile_of_model(const fs::path& model_directory, const Profile& otherwise);
// Writes the format of read_profile, with a digest of the content as the name.
std::string to_yaml(const Profile& profile);
std::string digest_of(const Profile& profile);  // hexadecimal

// A line for each key in which they differ: "tools: grep is not offered".
std::vector<std::string> differences(const Profile& learned, const Profile& used);

}  // namespace tandem::envs
