#include "eval/gates.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem::eval {
namespace {

constexpr const char* kErrorShare = "max_error_share";

GateResult regression_gate(const std::string& name, const Gates& gates, const NightComparison& other) {
  GateResult gate{.name = name, .limit = gates.max_regression_points, .says = verdict_of(other)};
  if (!other.difference) return gate;
  gate.value = other.difference->points == 0 ? 0 : -other.difference->points;
  gate.passed = !(other.is_regression() && *gate.value > gates.max_regression_points);
  return gate;
}

// An increase of a figure of samples that passed. One that is not sure passes, as does what cannot be compared.
GateResult increase_gate(const char* key, const char* figure, double limit, const NightComparison& other,
                         const char* behind) {
  GateResult gate{.name = std::string(key) + behind, .limit = limit, .says = "nothing to compare"};
  const auto* found = other.work.of_passed(figure);
  if (found == nullptr) return gate;
  gate.says = "of samples that passed, " + verdict_of(*found, other.work.confidence);
  if (!found->change) return gate;
  gate.value = found->change->change;
  gate.passed = !(found->change->rose() && *gate.value > limit);
  return gate;
}

void add_increase_gates(const Gates& gates, const NightComparison& other, const char* behind,
                        std::vector<GateResult>& results) {
  const auto add = [&](const char* key, const char* figure, const std::optional<double>& limit) {
    if (limit) results.push_back(increase_gate(key, figure, *limit, other, behind));
  };
  add("max_growth", "lines_changed", gates.max_growth);
  add("max_new_lints_increase", "new_lints", gates.max_new_lints_increase);
  add("max_tests_touched_increase", "tests_touched", gates.max_tests_touched_increase);
}

}  // namespace

std::vector<GateResult> check_gates(const Gates& gates, const NightSummary& summary, const NightComparison* against,
                                    const NightComparison* blessed) {
  std::vector<GateResult> results;
  results.push_back(
      {.name = kErrorShare,
       .passed = summary.error_share <= gates.max_error_share,
       .value = summary.error_share,
       .limit = gates.max_error_share,
       .says = fmt::format("{} of {} samples have no verdict", summary.wanted - summary.verdicts, summary.wanted)});
  if (gates.min_pass_rate) {
    GateResult gate{.name = "min_pass_rate", .passed = false, .limit = *gates.min_pass_rate, .says = "no verdict"};
    if (summary.pass_rate) {
      gate.value = summary.pass_rate->value;
      gate.passed = *gate.value >= gate.limit;
      gate.says = fmt::format("{:.1f} % of the samples passed", *gate.value * 100);
    }
    results.push_back(std::move(gate));
  }
  if (against != nullptr) results.push_back(regression_gate("max_regression_points", gates, *against));
  if (blessed != nullptr) results.push_back(regression_gate("max_regression_points_blessed", gates, *blessed));
  if (gates.max_slowdown && against != nullptr) {
    GateResult gate{.name = "max_slowdown", .value = against->slowdown, .limit = *gates.max_slowdown, .says = ""};
    gate.passed = !gate.value || *gate.value <= gate.limit || !against->is_slower;
    gate.says = gate.value ? fmt::format("the median sample took {:+.1f} % of the time before", *gate.value * 100)
                           : "nothing to compare";
    results.push_back(std::move(gate));
  }
  if (against != nullptr) add_increase_gates(gates, *against, "", results);
  if (blessed != nullptr) add_increase_gates(gates, *blessed, "_blessed", results);
  if (gates.max_cost) {
    GateResult gate{.name = "max_cost", .passed = false, .value = summary.cost_of_pass, .limit = *gates.max_cost};
    gate.passed = gate.value && *gate.value <= gate.limit;
    gate.says = gate.value ? fmt::format("a passed sample costs {:.6g}", *gate.value) : "no sample passed";
    results.push_back(std::move(gate));
  }
  if (gates.no_cheats) {
    results.push_back({.name = "no_cheats",
                       .passed = summary.flagged == 0,
                       .value = static_cast<double>(summary.flagged),
                       .limit = 0,
                       .says = fmt::format("{} samples look like cheats", summary.flagged)});
  }
  return results;
}

ExitCode exit_code_of(const std::vector<GateResult>& gates) {
  const auto failed = [](const GateResult& gate) { return !gate.passed; };
  if (std::any_of(gates.begin(), gates.end(), [](const auto& g) { return !g.passed && g.name == kErrorShare; }))
    return kIncomplete;
  return std::any_of(gates.begin(), gates.end(), failed) ? kRegression : kDone;
}

Json to_json(const std::vector<GateResult>& gates) {
  Json list = Json::array();
  for (const auto& gate : gates) {
    list.push_back({{"name", gate.name},
                    {"passed", gate.passed},
                    {"value", gate.value ? Json(*gate.value) : Json()},
                    {"limit", gate.limit},
                    {"says", gate.says}});
  }
  return list;
}

}  // namespace tandem::eval
