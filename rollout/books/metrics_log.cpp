#include "rollout/books/metrics_log.h"

#include <spdlog/spdlog.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/text.h"

namespace tandem::rollout {

MetricsLog::MetricsLog(fs::path path) : path_(std::move(path)) {
  const auto text = read_file(path_);
  if (!text) return;  // there is none yet
  const std::string_view whole = std::string_view(*text).substr(0, text->rfind('\n') + 1);
  std::error_code error;
  if (whole.size() < text->size()) fs::resize_file(path_, whole.size(), error);
  if (error) spdlog::warn("{}: the torn last line cannot be cut: {}", path_.string(), error.message());
  for (const auto line : split(whole, '\n')) {
    const auto parsed = parse_json(line);
    if (!parsed || !parsed->is_object()) continue;
    const auto step = parsed->find("step");
    if (step != parsed->end() && step->is_number_unsigned()) steps_.insert(step->get<uint64_t>());
  }
}

std::vector<uint64_t> MetricsLog::missing(uint64_t last) const {
  std::vector<uint64_t> steps;
  for (uint64_t step = 1; step <= last; ++step) {
    if (!steps_.contains(step)) steps.push_back(step);
  }
  return steps;
}

uint64_t MetricsLog::bytes() const {
  std::error_code error;
  const auto size = fs::file_size(path_, error);
  return error ? 0 : size;
}

void MetricsLog::append(const Json& line) {
  Json with_format = {{"format", kMetricsFormat}};
  with_format.update(line);
  const std::string text = dump_json(with_format) + "\n";
  std::FILE* const file = std::fopen(path_.c_str(), "a");
  const bool written = file && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if ((file && std::fclose(file) != 0) || !written) {
    spdlog::warn("{} cannot be written: {}", path_.string(), std::strerror(errno));
    return;
  }
  steps_.insert(line["step"].get<uint64_t>());
}

}  // namespace tandem::rollout
