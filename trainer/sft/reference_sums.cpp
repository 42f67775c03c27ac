#include "trainer/sft/reference_sums.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace tandem::trainer {

namespace {

constexpr size_t kReferredAtOnce = 16;  // samples, between looks at whether to stop

// What the file has of them; nothing of other samples, and up to the first line that was not written whole.
Result<std::vector<double>> read_sums(const fs::path& file, const std::string& digest, size_t most) {
  std::vector<double> sums;
  std::error_code error;
  if (!fs::exists(file, error)) return sums;
  const std::string text = TRY(read_file(file));
  bool first = true;
  for (const auto line : split(text, '\n')) {
    const auto json = parse_json(line);
    if (!json) break;
    if (std::exchange(first, false)) {
      if (!json->is_object() || json->value("samples", "") != digest) return sums;
      continue;
    }
    if (!json->is_array() || sums.size() + json->size() > most ||
        !std::ranges::all_of(*json, [](const Json& sum) { return sum.is_number(); }))
      break;
    for (const Json& sum : *json) sums.push_back(sum.get<double>());
  }
  return sums;
}

bool begin_alike(const std::vector<double>& a, const std::vector<double>& b) {
  return std::equal(a.begin(), a.begin() + static_cast<ptrdiff_t>(std::min(a.size(), b.size())), b.begin());
}

}  // namespace

Result<std::optional<ReferenceSums>> reference_sums(const fs::path& file, const SampleSet& samples, Learner& learner,
                                                    const std::function<void(const Json&)>& tell,
                                                    const std::stop_token& stop) {
  std::vector<const Sample*> all;
  for (const auto* side : {&samples.train, &samples.validation}) {
    for (const PlacedSample& placed : *side) all.push_back(&placed.sample);
  }
  const std::string digest = samples.digest().hex();
  const auto next_sums = [&](size_t begin) -> Result<std::vector<double>> {
    std::vector<Sample> part;
    for (size_t i = begin; i < std::min(begin + kReferredAtOnce, all.size()); ++i) part.push_back(*all[i]);
    return learner.sums_of_logprobs(part);
  };
  auto sums = TRY(read_sums(file, digest, all.size()));
  // Sums of another model, or computed elsewhere, where the first ones are not the same bits, are dropped.
  if (!sums.empty() && !begin_alike(sums, TRY(next_sums(0)))) sums.clear();
  // Whole again, without what may have been cut off behind it.
  std::string text = dump_json(Json{{"samples", digest}}) + "\n";
  if (!sums.empty()) text += dump_json(Json(sums)) + "\n";
  TRY(write_file(file, text));
  const FileDescriptor out(::open(file.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  if (!out) return fail(Status::from_errno(file.string(), errno));
  while (sums.size() < all.size()) {
    if (stop.stop_requested()) return std::nullopt;
    const auto found = TRY(next_sums(sums.size()));
    TRY(write_all(out.get(), dump_json(Json(found)) + "\n", file.string()));
    sums.insert(sums.end(), found.begin(), found.end());
    tell({{"event", "reference"}, {"samples", sums.size()}, {"of", all.size()}});
  }
  const auto middle = sums.begin() + static_cast<ptrdiff_t>(samples.train.size());
  return ReferenceSums{{sums.begin(), middle}, {middle, sums.end()}};
}

}  // namespace tandem::trainer
