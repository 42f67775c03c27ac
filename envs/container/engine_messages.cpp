#include "envs/container/engine_messages.h"

#include <algorithm>
#include <cctype>
#include <limits>

#include "base/json.h"
#include "base/text.h"
#include "envs/tools/output.h"

namespace tandem::envs {
namespace {

constexpr size_t kLongestText = 32 << 10;              // of one field
constexpr size_t kEngineMessagesMostEntries = 10'000;  // of one list
constexpr size_t kLongestError = 500;                  // of what people are shown
constexpr size_t kLongestId = 128;

Status strange(std::string_view field) {
  return Status::corrupt("the container engine's answer has no usable " + std::string(field));
}

// Never empty, also where nothing of it can be printed.
std::string shown_error(const std::string& error) {
  auto text = make_printable(error.substr(0, kLongestError));
  return trim(text).empty() ? "it says no more" : text;
}

Result<Json> object_in(std::string_view answer) {
  auto json = parse_json(answer);
  if (!json || !json->is_object()) return fail(Status::corrupt("the container engine's answer is no JSON object"));
  return json;
}

// Empty where there is none, or null.
Result<std::string> text_of(const Json& object, const char* field) {
  if (!object.is_object()) return fail(strange(field));
  const auto found = object.find(field);
  if (found == object.end() || found->is_null()) return "";
  if (!found->is_string()) return fail(strange(field));
  auto text = found->get<std::string>();
  if (text.size() > kLongestText || text.find('\0') != std::string::npos) return fail(strange(field));
  return text;
}

// Ids become parts of paths in later requests.
Result<std::string> id_of(const Json& object) {
  auto id = TRY(text_of(object, "Id"));
  const auto fits = [](unsigned char c) { return std::isalnum(c) != 0 || c == ':'; };
  if (id.empty() || id.size() > kLongestId || !std::all_of(id.begin(), id.end(), fits)) return fail(strange("Id"));
  return id;
}

}  // namespace

Result<EngineVersion> read_engine_version(std::string_view answer) {
  const auto json = TRY(object_in(answer));
  EngineVersion version;
  version.name = "Docker Engine";
  version.version = make_printable(TRY(text_of(json, "Version")));
  version.api_version = make_printable(TRY(text_of(json, "ApiVersion")));
  if (version.api_version.empty()) return fail(strange("ApiVersion"));
  const auto components = json.find("Components");
  if (components != json.end() && components->is_array() && !components->empty()) {
    const auto name = text_of(components->front(), "Name");
    if (name && !name->empty() && *name != "Engine") version.name = make_printable(*name);
  }
  return version;
}

Result<EngineImage> read_engine_image(std::string_view answer) {
  const auto json = TRY(object_in(answer));
  EngineImage image{.id = TRY(id_of(json)), .folder = {}, .environment = {}};
  const auto config = json.find("Config");
  if (config == json.end() || config->is_null()) return image;
  image.folder = TRY(text_of(*config, "WorkingDir"));
  const auto settings = config->find("Env");
  if (settings == config->end() || settings->is_null()) return image;
  if (!settings->is_array() || settings->size() > kEngineMessagesMostEntries) return fail(strange("Config.Env"));
  for (const auto& setting : *settings) {
    if (!setting.is_string()) return fail(strange("Config.Env"));
    auto text = setting.get<std::string>();
    const auto equals = text.find('=');
    const bool has_name = equals != std::string::npos && equals > 0;
    if (!has_name || text.size() > kLongestText || text.find('\0') != std::string::npos)
      return fail(strange("Config.Env"));
    image.environment.push_back(std::move(text));
  }
  return image;
}

Result<std::vector<EngineContainer>> read_engine_containers(std::string_view answer) {
  const auto json = parse_json(answer);
  if (!json || !json->is_array() || json->size() > kEngineMessagesMostEntries)
    return fail(strange("list of containers"));
  std::vector<EngineContainer> containers;
  for (const auto& entry : *json) {
    EngineContainer container{.id = TRY(id_of(entry)), .labels = {}};
    if (const auto labels = entry.find("Labels"); labels != entry.end() && labels->is_object()) {
      for (const auto& [name, value] : labels->items()) {
        if (value.is_string()) container.labels[name] = value.get<std::string>();
      }
    }
    containers.push_back(std::move(container));
  }
  return containers;
}

Result<std::string> read_created_container(std::string_view answer) { return id_of(TRY(object_in(answer))); }

Result<EngineState> read_engine_state(std::string_view answer) {
  const auto json = TRY(object_in(answer));
  const auto state = json.find("State");
  if (state == json.end() || !state->is_object()) return fail(strange("State"));
  const auto number = [&](const char* field, int64_t most) -> Result<int64_t> {
    const auto found = state->find(field);
    if (found == state->end() || !found->is_number_integer()) return fail(strange(field));
    const auto value = found->get<int64_t>();
    if (value < std::numeric_limits<int>::min() || value > most) return fail(strange(field));
    return value;
  };
  const auto running = state->find("Running");
  if (running == state->end() || !running->is_boolean()) return fail(strange("State.Running"));
  const auto process = TRY(number("Pid", std::numeric_limits<pid_t>::max()));
  const auto exit_code = TRY(number("ExitCode", std::numeric_limits<int>::max()));
  return EngineState{.running = running->get<bool>(),
                     .process = static_cast<pid_t>(std::max<int64_t>(process, 0)),
                     .exit_code = static_cast<int>(exit_code)};
}

std::string read_engine_progress_error(std::string_view answer) {
  std::string found;
  for (const auto line : split(answer, '\n')) {
    const auto json = parse_json(trim(line));
    if (!json || !json->is_object()) continue;
    if (auto error = text_of(*json, "error"); error && !error->empty()) found = std::move(*error);
  }
  return found.empty() ? found : shown_error(found);
}

std::string read_engine_error(std::string_view answer) {
  const auto json = parse_json(answer);
  std::string said;
  if (json && json->is_object()) said = text_of(*json, "message").value_or("");
  if (said.empty()) said = trim(answer);
  return shown_error(said);
}

}  // namespace tandem::envs
