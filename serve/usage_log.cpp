#include "serve/usage_log.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <fstream>

namespace tandem::serve {
namespace {

constexpr uint64_t kMostRead = uint64_t{256} << 20;
constexpr size_t kLongestLine = size_t{64} << 10;

double number_of(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number() ? found->get<double>() : 0;
}

}  // namespace

Result<UsageLog> UsageLog::open(const fs::path& path) {
  if (path.empty()) return UsageLog(path, FileDescriptor());
  // Not waited for: a pipe that nobody reads would hold the server.
  FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0640));
  if (!file && errno == ENXIO) return fail(Status::unavailable("is a pipe that nobody reads").at(path.string()));
  if (!file) return fail(Status::from_errno(path.string(), errno));
  return UsageLog(path, std::move(file));
}

Status UsageLog::reopen() {
  file_ = std::move(TRY(open(path_)).file_);
  return {};
}

void UsageLog::write(const UsageLine& usage) {
  if (path_.empty()) return;
  Json line = {{"time", usage.time},
               {"id", usage.id},
               {"key", usage.key},
               {"model", usage.model},
               {"path", usage.path},
               {"priority", usage.priority},
               {"outcome", usage.outcome},
               {"prompt_tokens", usage.prompt_tokens},
               {"cached_tokens", usage.cached_tokens},
               {"answer_tokens", usage.answer_tokens},
               {"seconds", usage.seconds}};
  if (usage.core_seconds) line["core_seconds"] = *usage.core_seconds;
  if (!usage.upstream.empty()) line["upstream"] = usage.upstream;
  if (usage.taken_over_tokens > 0) line["taken_over_tokens"] = usage.taken_over_tokens;
  if (!usage.adapter.empty()) line["adapter"] = usage.adapter;
  // What a full disk left of the line before is not to spoil this one.
  const Status written = write_all(file_.get(), (torn_ ? "\n" : "") + dump_json(line) + "\n", path_.string());
  torn_ = !written.ok();
  if (written.ok()) return;
  if (lost_++ == 0) spdlog::error("lines of usage are lost: {}", written.to_string());
}

Status UsageLog::visit_since(
    double since, const std::function<void(const std::string& key, double tokens, double time)>& visit) const {
  if (path_.empty()) return {};
  std::error_code error;
  const uint64_t size = fs::file_size(path_, error);
  if (error || !fs::is_regular_file(path_, error)) return {};  // a pipe has no past
  std::ifstream file(path_);
  if (!file) return Status::unavailable("cannot be read").at(path_.string());
  std::string text;
  if (size > kMostRead) {
    file.seekg(static_cast<std::streamoff>(size - kMostRead));
    std::getline(file, text);  // the rest of a line
  }
  while (std::getline(file, text)) {
    if (text.size() > kLongestLine) continue;
    const auto line = parse_json(text);
    if (!line || !line->is_object() || !line->contains("key") || !line->at("key").is_string()) continue;
    const double time = number_of(*line, "time");
    if (time < since) continue;
    const double tokens = number_of(*line, "prompt_tokens") + number_of(*line, "answer_tokens");
    if (tokens > 0) visit(line->at("key").get<std::string>(), tokens, time);
  }
  return {};
}

}  // namespace tandem::serve
