#include "eval/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace tandem::eval {
namespace {

std::string folder_name(const fs::path& folder) {
  std::error_code error;
  const auto whole = fs::absolute(folder, error).lexically_normal();
  return (whole.filename().empty() ? whole.parent_path() : whole).filename().string();
}

Result<NightComparison> compare_with(const fs::path& other, const Night& night, double confidence,
                                     const std::set<std::string>& flaky) {
  auto comparison = compare(TRY(read_night(other)), night, confidence, flaky);
  comparison.directory = other.string();
  return comparison;
}

// Another set of tasks altogether is a mistake of who named the folder; no verdicts tonight are none.
Status check_shares_tasks(const fs::path& other, const Night& then, const Identity& now) {
  std::map<std::string, std::string> digests;
  for (const auto& task : then.tasks) digests[task.task] = task.digest;
  const auto own = now.own_tasks();
  const bool shares = std::any_of(own.begin(), own.end(), [&](const TaskIdentity& task) {
    const auto found = digests.find(task.task);
    return found != digests.end() && found->second == task.digest;
  });
  if (shares || own.empty()) return {};
  return Status::invalid(fmt::format("has none of these {} tasks as they are now", own.size()))
      .at(other.string())
      .hint("compare with an evaluation of the same suite; where all tasks were changed, leave --against out");
}

}  // namespace

Status check_comparable(const Identity& identity, const fs::path& folder, const fs::path& against) {
  if (!against.empty()) {
    std::error_code error;
    if (fs::equivalent(against, folder, error))
      return Status::invalid("is the folder of --out").at("--against").hint("name the evaluation of another night");
    TRY(check_shares_tasks(against, TRY(read_night(against)), identity));
    TRY(read_history(against));
  }
  const auto blessed = TRY(blessed_beside(folder));
  if (blessed.empty() || folder_name(blessed) == folder_name(folder)) return {};
  if (auto night = read_night(blessed); !night) {
    return Status(night.error())
        .at("the blessed evaluation")
        .hint(fmt::format("`tandem eval bless DIR` blesses another one; or remove {}",
                          (blessed.parent_path() / "blessed.json").string()));
  }
  return {};
}

Result<Verdict> judge(const Identity& identity, const std::map<SampleKey, SampleResult>& samples,
                      const fs::path& folder, const Terms& terms, const fs::path& against) {
  Verdict out;
  out.night = night_of(identity, samples);
  out.summary = summarize(out.night, terms.prices);
  const auto name = folder_name(folder);
  if (!against.empty()) {
    for (auto& line : TRY(read_history(against))) {
      if (line.night != name || line.started != out.night.started) out.history.push_back(std::move(line));
    }
  }
  const auto flaky = flaky_tasks(out.history);
  if (!against.empty()) out.against = TRY(compare_with(against, out.night, terms.gates.confidence, flaky));
  const auto blessed = TRY(blessed_beside(folder));
  if (!blessed.empty() && folder_name(blessed) != name)
    out.blessed = TRY(compare_with(blessed, out.night, terms.gates.confidence, flaky));
  out.gates = check_gates(terms.gates, out.summary, out.against ? &*out.against : nullptr,
                          out.blessed ? &*out.blessed : nullptr);
  out.code = exit_code_of(out.gates);
  out.history.push_back(history_line(name, out.night, out.summary, out.against, out.code));
  if (out.history.size() > kMostNights)
    out.history.erase(out.history.begin(), out.history.end() - static_cast<std::ptrdiff_t>(kMostNights));
  return out;
}

}  // namespace tandem::eval
