#include "envs/tasks/test_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <vector>

#include "base/text.h"

namespace tandem::envs {
namespace {

std::optional<TestEnd> pytest_end(std::string_view word) {
  if (word == "PASSED" || word == "XFAIL") return TestEnd::kPassed;
  if (word == "SKIPPED") return TestEnd::kSkipped;
  if (word == "FAILED" || word == "ERROR" || word == "XPASS") return TestEnd::kFailed;
  return std::nullopt;
}

std::optional<TestEnd> unittest_end(std::string_view words) {
  if (words == "ok" || words == "expected failure") return TestEnd::kPassed;
  if (words.starts_with("skipped ")) return TestEnd::kSkipped;
  if (words == "FAIL" || words == "ERROR" || words == "unexpected success") return TestEnd::kFailed;
  return std::nullopt;
}

bool is_summary(std::string_view line) {
  constexpr std::string_view kTitle = " short test summary info ";
  const size_t at = line.find(kTitle);
  return line.starts_with('=') && line.ends_with('=') && at != std::string_view::npos &&
         line.find_first_not_of('=') == at && line.find_last_not_of('=') == at + kTitle.size() - 1;
}

// All of them, where several runs follow each other.
TestReport pytest_summaries(const std::vector<std::string_view>& lines) {
  TestReport report;
  bool inside = false;
  for (const auto line : lines) {
    if (line.starts_with('=')) inside = is_summary(trim(line));
    const size_t space = line.find(' ');
    const auto end = inside ? pytest_end(line.substr(0, space)) : std::nullopt;
    if (!end || space == std::string_view::npos) continue;
    auto name = trim(line.substr(space + 1));
    if (*end == TestEnd::kFailed) name = name.substr(0, name.find(" - "));  // the reason follows
    if (!name.empty()) add_to(report, name, *end);
  }
  return report;
}

// "tests/test_a.py::test_b PASSED    [ 50%]"
TestReport pytest_lines(const std::vector<std::string_view>& lines) {
  TestReport report;
  for (auto line : lines) {
    line = trim(line);
    if (line.ends_with("%]")) line = trim(line.substr(0, line.rfind('[')));
    if (line.ends_with(')') && line.find(" (") != std::string_view::npos) line = line.substr(0, line.rfind(" ("));
    const size_t space = line.rfind(' ');
    if (space == std::string_view::npos || line.find("::") > space) continue;
    if (const auto end = pytest_end(line.substr(space + 1))) add_to(report, trim(line.substr(0, space)), *end);
  }
  return report;
}

bool is_unittest_name(std::string_view text) {
  const size_t open = text.find(" (");
  const auto fits = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; };
  return open != std::string_view::npos && open > 0 && text.ends_with(')') &&
         std::all_of(text.begin(), text.begin() + static_cast<ptrdiff_t>(open), fits);
}

// "test_b (tests.test_a.TestA) ... ok", where the end may come lines later, behind what the test printed; and with the
// first line of a docstring between: "test_b (tests.test_a.TestA)", "It holds. ... ok".
TestReport unittest_lines(const std::vector<std::string_view>& lines) {
  constexpr std::string_view kDots = " ... ";
  TestReport report;
  std::vector<std::string_view> open;  // names of the test that runs
  std::string_view before;
  for (auto line : lines) {
    line = trim(line);
    auto end = unittest_end(line);
    if (const size_t dots = (std::string(line) + ' ').find(kDots); dots != std::string::npos) {
      const auto name = line.substr(0, dots);
      if (is_unittest_name(name)) {
        open = {name};
      } else if (is_unittest_name(before)) {
        open = {before, name};
      }
      end = unittest_end(trim(line.substr(std::min(line.size(), dots + kDots.size()))));
    }
    before = line;
    if (!end) continue;
    for (const auto name : open) add_to(report, name, *end);
    open.clear();
  }
  return report;
}

}  // namespace

void add_to(TestReport& report, std::string_view name, TestEnd end) {
  const auto add = [&](std::string key) {
    const auto [place, fresh] = report.emplace(std::move(key), end);
    if (!fresh) place->second = std::max(place->second, end);
  };
  add(test_name(name));
  if (const size_t space = name.find(' '); space != std::string_view::npos && name.find("::") < space)
    add(std::string(name.substr(0, space)));
}

TestReport read_test_report(std::string_view output) {
  const auto lines = split(output, '\n');
  auto report = pytest_summaries(lines);
  const bool whole =
      std::any_of(report.begin(), report.end(), [](const auto& test) { return test.second == TestEnd::kPassed; });
  if (whole) return report;  // it names the tests that passed, so it names them all
  for (const auto& [name, end] : pytest_lines(lines)) add_to(report, name, end);
  return report.empty() ? unittest_lines(lines) : report;
}

std::string test_name(std::string_view written) {
  written = trim(written);
  // Python 3.11 and later say the method a second time: "test_b (tests.test_a.TestA.test_b)".
  const size_t open = written.find(" (");
  if (open == std::string_view::npos || !written.ends_with(')')) return std::string(written);
  const auto again = "." + std::string(written.substr(0, open)) + ")";
  if (!written.ends_with(again)) return std::string(written);
  return std::string(written.substr(0, written.size() - again.size())) + ")";
}

double share_that_passed(const TestReport& report, std::span<const std::string> wanted) {
  const auto passed = [](const auto& test) { return test.second == TestEnd::kPassed; };
  if (wanted.empty()) {
    const auto count = std::count_if(report.begin(), report.end(), passed);
    return report.empty() ? 0 : static_cast<double>(count) / static_cast<double>(report.size());
  }
  const auto count = std::count_if(wanted.begin(), wanted.end(), [&](const std::string& name) {
    const auto found = report.find(test_name(name));
    return found != report.end() && passed(*found);
  });
  return static_cast<double>(count) / static_cast<double>(wanted.size());
}

std::string why_not_passed(const TestReport& report, std::span<const std::string> wanted) {
  constexpr size_t kMostNamed = 5;
  if (report.empty()) return "no tests were reported by pytest (-rA or -v) or unittest (-v)";
  std::vector<std::string> wrong;
  const auto look_at = [&](const std::string& name, const TestEnd* end) {
    if (!end) wrong.push_back(name + " was not reported");
    if (end && *end == TestEnd::kFailed) wrong.push_back(name + " failed");
    if (end && *end == TestEnd::kSkipped) wrong.push_back(name + " was skipped");
  };
  if (wanted.empty()) {
    for (const auto& [name, end] : report) look_at(name, &end);
  }
  for (const auto& name : wanted) {
    const auto found = report.find(test_name(name));
    look_at(name, found == report.end() ? nullptr : &found->second);
  }
  if (wrong.empty()) return "";
  const size_t more = wrong.size() > kMostNamed ? wrong.size() - kMostNamed : 0;
  wrong.resize(wrong.size() - more);
  return join(wrong, "; ") + (more > 0 ? fmt::format("; and {} more", more) : "");
}

}  // namespace tandem::envs
