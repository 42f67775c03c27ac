#include "envs/tasks/report_channel.h"

#include <fmt/format.h>
#include <sodium.h>

#include <array>
#include <map>

#include "base/json.h"
#include "base/text.h"
#include "envs/tasks/report_program.h"

namespace tandem::envs {
namespace {

constexpr const char* kReportFolder = "tandem-report";
constexpr std::string_view kReportLine = "[[tandem-report ", kReportLineEnd = "]]";
constexpr int kReportKeys = 64;          // Python processes of a command that can report
constexpr size_t kReportKeyDigits = 30;  // of a key, behind its number

std::string hex_of(const unsigned char* bytes, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += fmt::format("{:02x}", bytes[i]);
  return text;
}

std::string signature(std::string_view text, std::string_view key) {
  std::array<unsigned char, 16> digest{};
  crypto_generichash(digest.data(), digest.size(), reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                     reinterpret_cast<const unsigned char*>(key.data()), key.size());
  return hex_of(digest.data(), digest.size());
}

// Of one Python process.
struct Reporter {
  bool runs_tests = false;  // it was started for that, or has begun to
  bool has_ended = false, has_results = false;
};

}  // namespace

ReportChannel::ReportChannel() {
  for (int i = 0; i < kReportKeys; ++i) {
    std::array<unsigned char, kReportKeyDigits / 2> bytes{};
    randombytes_buf(bytes.data(), bytes.size());
    keys_.push_back(fmt::format("{:02}", i) + hex_of(bytes.data(), bytes.size()));
  }
}

void ReportChannel::open_for(Place& place, CheckCommand& command) const {
  const std::string folder = kReportFolder;
  std::erase_if(place.files,
                [&](const auto& file) { return file.first == folder || file.first.starts_with(folder + "/"); });
  std::erase_if(place.programs, [&](const auto& path) { return !place.files.contains(path); });
  place.files[folder + "/sitecustomize.py"] = kReportProgram;
  place.files[folder + "/bin/python3"] = kIsolatedPython;
  place.programs.insert(folder + "/bin/python3");
  place.files[folder + "/keys"] = join(keys_, "\n");
  // The keys are in a pipe, from which each is taken once, and nowhere else by the time that anything is tested.
  command.command =
      "{ mv /workspace/tandem-report /tmp/ 2> /dev/null || mv tandem-report /tmp/; } && "
      "tandem_keys=$(cat /tmp/tandem-report/keys) && rm /tmp/tandem-report/keys || exit 126\n"
      "exec 97>&1 98<<TANDEM_END\n$tandem_keys\nTANDEM_END\n"
      "unset tandem_keys; export PYTHONPATH=/tmp/tandem-report${PYTHONPATH:+:$PYTHONPATH} "
      "PATH=/tmp/tandem-report/bin:$PATH\n" +
      command.command;
}

ReportChannel::Reading ReportChannel::read(std::string_view output) const {
  Reading reading;
  std::map<size_t, Reporter> reporters;
  std::string changed;
  std::vector<std::string_view> printed;
  for (const auto line : split(output, '\n')) {
    if (!line.starts_with(kReportLine) || !line.ends_with(kReportLineEnd)) {
      printed.push_back(line);
      continue;
    }
    // "NUMBER KIND JSON MAC", signed up to the last space.
    const auto text = line.substr(kReportLine.size(), line.size() - kReportLine.size() - kReportLineEnd.size());
    const size_t mac = text.rfind(' '), first = text.find(' '), second = text.find(' ', first + 1);
    if (first != 2 || second == std::string_view::npos || second >= mac) continue;
    const size_t number = static_cast<size_t>(text[0] - '0') * 10 + static_cast<size_t>(text[1] - '0');
    if (number >= keys_.size() || signature(text.substr(0, mac), keys_[number]) != text.substr(mac + 1)) continue;
    auto& reporter = reporters[number];
    const auto kind = text.substr(first + 1, second - first - 1);
    const auto content = parse_json(text.substr(second + 1, mac - second - 1));
    if (!content) continue;
    if (kind == "began") reporter.runs_tests |= *content == 1;
    if (kind == "run") reporter.runs_tests = true;
    if (kind == "end") reporter.has_ended = true;
    if (kind != "results" || reporter.has_results || !content->is_object()) continue;
    reporter.has_ended = reporter.has_results = reporter.runs_tests = true;
    if (changed.empty()) changed = content->value("changed", "");
    for (const auto& test : content->at("tests")) {
      const int end = test.at(1).get<int>();
      add_to(reading.report, test.at(0).get<std::string>(),
             end == 1   ? TestEnd::kPassed
             : end == 2 ? TestEnd::kSkipped
                        : TestEnd::kFailed);
    }
  }
  reading.printed = join(std::vector<std::string>(printed.begin(), printed.end()), "\n");
  bool any_tests = false, any_cut = false, any_tests_cut = false;
  for (const auto& [number, reporter] : reporters) {
    any_tests |= reporter.runs_tests;
    any_cut |= !reporter.has_ended;
    any_tests_cut |= reporter.runs_tests && !reporter.has_results;
  }
  if (!changed.empty())
    reading.why = fmt::format("the code under test has changed {}, which tests it", changed);
  else if (any_tests ? any_tests_cut : any_cut)
    reading.why = "Python ended before it could say how its tests ended; did the code under test end it?";
  if (!any_tests && reading.why.empty()) reading.report = read_test_report(reading.printed);
  return reading;
}

}  // namespace tandem::envs
