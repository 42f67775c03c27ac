// junit.xml: a test case a task, for CI systems
#include <fmt/format.h>

#include <algorithm>

#include "dashboard/html.h"
#include "eval/outcome_files.h"
#include "rollout/agent/transcript.h"

namespace tandem::eval {
namespace {

// XML has no character for U+FFFE and U+FFFF; control characters are symbols already.
std::string xml(std::string_view text) {
  std::string out = dashboard::escape(text);
  for (const std::string_view mark : {"\xEF\xBF\xBE", "\xEF\xBF\xBF"}) {
    for (size_t at = out.find(mark); at != std::string::npos; at = out.find(mark, at))
      out.replace(at, mark.size(), "\xEF\xBF\xBD");
  }
  return out;
}

std::string property(std::string_view name, std::string_view value) {
  return fmt::format("      <property name=\"{}\" value=\"{}\"/>\n", xml(name), xml(value));
}

// A line with the outcome of each sample.
std::string samples_text(const TaskNight& task) {
  std::string text;
  for (const auto& sample : task.samples) {
    text += fmt::format("sample {}: {}{}{}\n", sample.sample, rollout::to_string(sample.outcome),
                        sample.has_verdict() ? fmt::format(", reward {:g}", sample.reward) : "",
                        sample.why.empty() ? "" : ", " + sample.why);
  }
  return text;
}

struct Counts {
  int failures = 0, errors = 0;
};

std::string test_case(const TaskNight& task, const std::string& class_name, const Verdict& verdict, Counts& counts) {
  double seconds = 0;
  for (const auto& sample : task.samples) seconds += sample.seconds;
  std::string out = fmt::format("    <testcase classname=\"{}\" name=\"{}\" time=\"{:.3f}\">\n", xml(class_name),
                                xml(task.task), seconds);
  out += "      <properties>\n";
  const auto rate = task.rate();
  out += property("pass_rate", rate ? fmt::format("{}", *rate) : "none");
  out += property("samples", fmt::format("{} of {} passed", task.passed(), task.verdicts()));
  out += property("digest", task.digest);
  const auto is_in = [&](const std::vector<std::string>& names) {
    return std::find(names.begin(), names.end(), task.task) != names.end();
  };
  if (verdict.against && is_in(verdict.against->regressed)) out += property("regressed", "true");
  if (verdict.against && is_in(verdict.against->flaky)) out += property("flaky", "true");
  for (const auto& sample : task.samples) {
    for (const auto& flag : sample.flags) out += property(fmt::format("flag.sample_{}", sample.sample), flag);
  }
  out += "      </properties>\n";
  const auto text = xml(samples_text(task));
  if (!rate) {
    ++counts.errors;
    const auto why = task.samples.empty() ? "no sample was run" : task.samples.front().why;
    out += fmt::format("      <error type=\"no_verdict\" message=\"{}\">{}</error>\n", xml(why), text);
  } else if (task.passed() == 0) {
    ++counts.failures;
    const auto why = fmt::format("none of {} samples passed", task.verdicts());
    out += fmt::format("      <failure type=\"not_passed\" message=\"{}\">{}</failure>\n", why, text);
  } else if (task.passed() < task.verdicts()) {
    out += fmt::format("      <system-out>{}</system-out>\n", text);
  }
  return out + "    </testcase>\n";
}

}  // namespace

std::string junit_xml(const Verdict& verdict) {
  const Night& night = verdict.night;
  Counts tasks;
  std::string cases;
  for (const auto& task : night.tasks) cases += test_case(task, night.suite + "." + task.kind, verdict, tasks);
  const auto head = [&](std::string_view name, size_t tests, const Counts& counts, double seconds) {
    return fmt::format(
        "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"0\" time=\"{:.3f}\" "
        "timestamp=\"{}\">\n",
        xml(name), tests, counts.failures, counts.errors, seconds, rollout::iso_time(night.started).substr(0, 19));
  };
  // Test cases are tasks and nothing else; gates are properties of the suite.
  std::string out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n";
  out += head(night.suite, night.tasks.size(), tasks, night.seconds);
  out += "    <properties>\n";
  const std::pair<const char*, std::string> about[] = {{"model", night.model},
                                                       {"model_digest", night.model_digest},
                                                       {"tasks_digest", night.tasks_digest},
                                                       {"config_digest", night.config_digest},
                                                       {"version", night.version},
                                                       {"profile", night.profile}};
  for (const auto& [name, value] : about) out += property(name, value);
  for (const auto& gate : verdict.gates)
    out += property("gate." + gate.name, fmt::format("{}: {}", gate.passed ? "passed" : "failed", gate.says));
  out += "    </properties>\n" + cases + "  </testsuite>\n</testsuites>\n";
  return out;
}

}  // namespace tandem::eval
