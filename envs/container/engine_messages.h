// Decoders of a container engine's responses, with limits for untrusted bytes.
//
// The form is that of the Docker Engine API 1.40, which podman serves as well. Fields that are not asked for are not
// looked at. Errors are kCorrupt and name the field.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tandem::envs {

struct EngineVersion {
  std::string name;         // "Podman Engine", "Docker Engine"
  std::string version;      // of the engine
  std::string api_version;  // "1.41"
};

struct EngineImage {
  std::string id;                        // "sha256:..."
  std::string folder;                    // that its programs begin in (WORKDIR); empty where it says none
  std::vector<std::string> environment;  // "NAME=value"
};

struct EngineContainer {
  std::string id;
  std::map<std::string, std::string> labels;
};

struct EngineState {
  bool running = false;
  pid_t process = 0;  // its first one, as the engine's machine counts; 0 where none runs
  int exit_code = 0;
};

Result<EngineVersion> read_engine_version(std::string_view answer);
Result<EngineImage> read_engine_image(std::string_view answer);
Result<std::vector<EngineContainer>> read_engine_containers(std::string_view answer);
Result<std::string> read_created_container(std::string_view answer);  // its id
Result<EngineState> read_engine_state(std::string_view answer);
// The last line of a build that says what went wrong; empty where none does.
std::string read_engine_progress_error(std::string_view answer);
// The message of a refusal, for people; never empty.
std::string read_engine_error(std::string_view answer);

}  // namespace tandem::envs
