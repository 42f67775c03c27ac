#include "envs/rewards/played_episode.h"

#include <fmt/format.h>

#include "base/utf8.h"

namespace tandem::envs {
namespace {

constexpr size_t kLargestFile = size_t{64} << 10;
constexpr size_t kMostFileBytes = size_t{1} << 20;

// Content of changed files, within what may be shown of all of them.
class Contents {
 public:
  void put(const char* key, const std::string& content, Json& file) {
    if (!is_valid_utf8(content)) {
      file["binary"] = true;
    } else if (content.size() > kLargestFile || shown_ + content.size() > kMostFileBytes) {
      file["left_out"] = true;
    } else {
      shown_ += content.size();
      file[key] = content;
    }
  }

 private:
  size_t shown_ = 0;
};

Json changed_files(const PlayedEpisode& episode) {
  Json files = Json::array();
  Contents contents;
  for (const auto& [path, content] : episode.after) {
    const auto old = episode.before.find(path);
    if (old != episode.before.end() && old->second == content) continue;
    const bool is_new = old == episode.before.end();
    Json file = {{"path", path}, {"change", is_new ? "added" : "modified"}};
    if (!is_new) contents.put("before", old->second, file);
    contents.put("after", content, file);
    files.push_back(std::move(file));
  }
  if (!episode.files_complete) return files;
  for (const auto& [path, content] : episode.before) {
    if (episode.after.contains(path)) continue;
    Json file = {{"path", path}, {"change", "deleted"}};
    contents.put("before", content, file);
    files.push_back(std::move(file));
  }
  return files;
}

}  // namespace

size_t PlayedEpisode::turns() const {
  size_t count = 0;
  for (const Json& message : messages) count += message.at("role") == "assistant";
  return count;
}

Result<std::string> to_json_text(const PlayedEpisode& episode) {
  const Json json = {
      {"version", 1},
      {"task",
       {{"name", episode.task},
        {"kind", episode.kind},
        {"split", episode.split},
        {"instruction", episode.instruction}}},
      {"outcome", episode.truncated ? "truncated" : "completed"},
      {"answer", episode.answer},
      {"messages", episode.messages},
      {"calls", episode.calls},
      {"files", changed_files(episode)},
      {"files_complete", episode.files_complete},
      {"grade", {{"reward", episode.reward}, {"terms", episode.terms}, {"why", episode.why}}},
  };
  std::string text = dump_json(json);
  if (text.size() <= kLargestPlayedEpisode) return text;
  return fail(Status::exhausted(
      fmt::format("the episode is {} bytes of JSON, at most {} are given", text.size(), kLargestPlayedEpisode)));
}

}  // namespace tandem::envs
