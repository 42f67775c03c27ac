#include "hosts/epochs.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"

namespace tandem::hosts {
namespace {

constexpr int kEpochsFormat = 1;

}  // namespace

Result<Epochs> Epochs::open(const fs::path& file) {
  Epochs epochs;
  epochs.file_ = file;
  std::error_code error;
  if (!fs::exists(file, error)) return epochs;
  const auto damaged = [&] {
    return fail(Status::corrupt("this is no list of epochs of runs")
                    .at(file.string())
                    .hint("remove it once no run that was taken over is on any more"));
  };
  const auto json = parse_json(TRY(read_file(file, 1 << 20)));
  if (!json || !json->is_object()) return damaged();
  if (const auto format = format_of(*json, kEpochsFormat); !format)
    return fail(Status(format.error()).at(file.string()));
  try {
    for (const auto& entry : json->at("runs")) {
      epochs.runs_[std::stoull(entry.at("run").get<std::string>(), nullptr, 16)] = {
          .epoch = entry.at("epoch").get<uint64_t>(),
          .order = ++epochs.order_,
          .holder = entry.at("holder").get<std::string>()};
    }
  } catch (const std::exception&) {
    return damaged();
  }
  return epochs;
}

Result<std::optional<Fenced>> Epochs::admit(uint64_t run, uint64_t epoch, const std::string& holder) {
  const auto found = runs_.find(run);
  const uint64_t known = found == runs_.end() ? 1 : found->second.epoch;
  if (epoch < known) return std::optional(Fenced{.epoch = known, .holder = found->second.holder});
  if (epoch == known) return std::optional<Fenced>();
  runs_[run] = {.epoch = epoch, .order = ++order_, .holder = holder.substr(0, 200)};
  if (runs_.size() > kMostRuns) {
    runs_.erase(std::min_element(runs_.begin(), runs_.end(),
                                 [](const auto& a, const auto& b) { return a.second.order < b.second.order; }));
  }
  TRY(write());
  return std::optional<Fenced>();
}

Status Epochs::write() const {
  std::vector<const std::pair<const uint64_t, Known>*> all;
  for (const auto& entry : runs_) all.push_back(&entry);
  std::sort(all.begin(), all.end(), [](const auto* a, const auto* b) { return a->second.order < b->second.order; });
  Json json = {{"format", kEpochsFormat}, {"runs", Json::array()}};
  for (const auto* entry : all) {
    json["runs"].push_back({{"run", fmt::format("{:016x}", entry->first)},
                            {"epoch", entry->second.epoch},
                            {"holder", entry->second.holder}});
  }
  return write_file(file_, dump_json(json) + "\n");
}

}  // namespace tandem::hosts
