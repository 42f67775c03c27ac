#include "envs/episodes/profile.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/digest.h"
#include "base/text.h"
#include "base/yaml.h"
#include "envs/episodes/opening.h"
#include "envs/tasks/yaml_reader.h"
#include "envs/tools/tool.h"

namespace tandem::envs {

namespace {

constexpr int kVersion = 1;
constexpr double kLeastBytes = 100, kMostBytes = 1e7, kLeastCallSeconds = 0.1, kMostCallSeconds = 3600;
constexpr double kLeastTokens = 16, kMostTokens = 1e8;
constexpr size_t kLongestWording = 4096;  // bytes

Compaction compaction_of(const YAML::Node& section, YamlReader& reader) {
  Compaction compaction{.request = kCompactionRequest, .heading = kCompactionHeading};
  const auto wording = [&](const YAML::Node& value, const std::string& key, std::string& into) {
    into = reader.text(value, key).value_or("");
    if (into.empty() || into.size() > kLongestWording)
      reader.mistake(value, fmt::format("{} has 1 to {} bytes", key, kLongestWording));
  };
  reader.map(section, "compaction", {"at", "most", "request", "heading"},
             [&](const std::string& key, const YAML::Node&, const YAML::Node& value) {
               if (key == "at")
                 compaction.at = static_cast<int>(reader.number(value, key, kLeastTokens, kMostTokens).value_or(0));
               if (key == "most")
                 compaction.most = static_cast<int>(reader.number(value, key, 1, kMostCompactions).value_or(1));
               if (key == "request") wording(value, key, compaction.request);
               if (key == "heading") wording(value, key, compaction.heading);
             });
  if (compaction.at == 0)
    reader.mistake(section, "compaction needs at: the tokens beyond which a summary is asked for");
  return compaction;
}

Profile profile_of(const YAML::Node& root, YamlReader& reader) {
  Profile profile = small_profile();
  bool has_version = false;
  reader.map(root, "the profile", {"version", "tools", "output_bytes", "call_seconds", "system", "compaction"},
             [&](const std::string& key, const YAML::Node&, const YAML::Node& value) {
               if (key == "version") has_version = reader.number(value, key, kVersion, kVersion).has_value();
               if (key == "compaction") profile.compaction = compaction_of(value, reader);
               if (key == "system") profile.system = reader.text(value, key).value_or("");
               if (key == "output_bytes")
                 profile.output_bytes =
                     static_cast<int>(reader.number(value, key, kLeastBytes, kMostBytes).value_or(0));
               if (key == "call_seconds")
                 profile.call_seconds = reader.number(value, key, kLeastCallSeconds, kMostCallSeconds).value_or(0);
               if (key != "tools") return;
               auto tools = choose_tools(reader.texts(value, key), WithSearch::kYes);
               if (!tools) return reader.mistake(value, "tools: " + tools.error().message());
               profile.tools = std::move(*tools);
             });
  if (!has_version) reader.mistake(root, fmt::format("the profile needs version: {}", kVersion));
  return profile;
}

// Nothing where nothing is summed up, so that profiles of before keep their digest.
Json json_of(const Compaction& compaction) {
  if (compaction.at == 0) return {};
  return {{"at", compaction.at},
          {"most", compaction.most},
          {"request", compaction.request},
          {"heading", compaction.heading}};
}

}  // namespace

const char* const kCompactionRequest =
    "This conversation is about to outgrow its room. Sum it up for yourself, without a call: what the task is, what "
    "you found out, which files you changed and how, and what is left to do. Only the task and this summary stay.";
const char* const kCompactionHeading = "Your summary of the work so far:";

Profile small_profile() { return {.tools = prompted_tools(), .system = std::string(kSystemMessage)}; }

Profile default_profile() {
  return {.tools = tool_names(), .output_bytes = 20'000, .call_seconds = 120, .system = std::string(kSystemMessage)};
}

Result<Profile> read_profile(const fs::path& file) {
  constexpr uint64_t kLargest = 1 << 20;
  const auto text = TRY(read_file(file, kLargest));
  Mistakes mistakes;
  Profile profile;
  try {
    YamlReader reader(file.string(), mistakes);
    profile = profile_of(load_yaml(text), reader);
  } catch (const YAML::Exception& error) {
    mistakes.add(file.string(), error.mark.line + 1, "is not YAML: " + error.msg);
  }
  TRY(mistakes.status());
  return profile;
}

Result<Profile> profile_of_model(const fs::path& model_directory, const Profile& otherwise) {
  std::error_code error;
  const auto file = model_directory / kProfileFile;
  if (!fs::exists(file, error)) return otherwise;
  return read_profile(file);
}

std::string to_yaml(const Profile& profile) {
  const Json compaction = json_of(profile.compaction);
  return fmt::format(
      "# The harness that this model was trained under; `tandem agent` and `tandem eval` run it so. Digest {}.\n"
      "version: {}\ntools: [{}]\noutput_bytes: {}\ncall_seconds: {}\nsystem: {}\n{}",
      digest_of(profile), kVersion, join(profile.tools, ", "), profile.output_bytes, profile.call_seconds,
      dump_json(Json(profile.system)),
      compaction.is_null() ? "" : fmt::format("compaction: {}\n", dump_json(compaction)));
}

std::string digest_of(const Profile& profile) {
  Json content = {{"version", kVersion},
                  {"tools", profile.tools},
                  {"output_bytes", profile.output_bytes},
                  {"call_seconds", profile.call_seconds},
                  {"system", profile.system}};
  if (profile.compaction.at > 0) content["compaction"] = json_of(profile.compaction);
  return tandem::digest_of(dump_json(content)).hex();
}

std::vector<std::string> differences(const Profile& learned, const Profile& used) {
  std::vector<std::string> lines;
  const auto is_in = [](const auto& names, const auto& name) { return std::ranges::find(names, name) != names.end(); };
  for (const auto& name : learned.tools)
    if (!is_in(used.tools, name)) lines.push_back(fmt::format("tools: {} is not offered", name));
  for (const auto& name : used.tools)
    if (!is_in(learned.tools, name)) lines.push_back(fmt::format("tools: {} is offered, which it has not met", name));
  if (lines.empty() && learned.tools != used.tools) lines.emplace_back("tools: in another order");
  if (learned.output_bytes != used.output_bytes)
    lines.push_back(fmt::format("output_bytes: {}, and it learned with {}", used.output_bytes, learned.output_bytes));
  if (learned.call_seconds != used.call_seconds)
    lines.push_back(fmt::format("call_seconds: {}, and it learned with {}", used.call_seconds, learned.call_seconds));
  if (learned.compaction.at != used.compaction.at)
    lines.push_back(fmt::format("compaction: at {} tokens, and it learned with {} (0: never)", used.compaction.at,
                                learned.compaction.at));
  else if (learned.compaction != used.compaction)
    lines.emplace_back("compaction: another number of summaries, or other words");
  if (learned.system != used.system) lines.emplace_back("system: another message");
  return lines;
}

}  // namespace tandem::envs
