#include "envs/tasks/report_channel.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>

#include "base/json.h"
#include "base/text.h"
#include "envs/sandbox/report_program.h"

namespace tandem::envs {
namespace {

constexpr const char* kReportFiles = "tandem-report";  // of the workspace, for a moment
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

// Words of a command line, without quotes and what else divides them.
std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || std::string_view("_./-+").find(c) != std::string_view::npos)
      words.back() += c;
    else if (!words.back().empty())
      words.emplace_back();
  }
  return words;
}

bool is_python_program(std::string_view word) {
  word.remove_prefix(word.rfind('/') + 1);
  if (!word.starts_with("python") && !word.starts_with("pypy")) return false;
  word.remove_prefix(word.starts_with("python") ? 6 : 4);
  return std::all_of(word.begin(), word.end(),
                     [](char c) { return c == '.' || std::isdigit(static_cast<unsigned char>(c)) != 0; });
}

bool names_python(std::string_view text) {
  const auto words = words_of(text);
  return std::any_of(words.begin(), words.end(), is_python_program);
}

// "pytest", "python3 -m unittest", "python3 -Bmpytest".
bool names_runner(std::string_view text) {
  const auto is_option = [](std::string_view word) { return word.starts_with('-') && !word.starts_with("--"); };
  const auto words = words_of(text);
  for (size_t i = 0; i < words.size(); ++i) {
    const auto name = words[i].substr(words[i].rfind('/') + 1);
    if (name == "pytest" || name == "py.test" || name == "pytest-3") return true;
    if (is_option(name) && (name.ends_with("munittest") || name.ends_with("mpytest"))) return true;
    if (name == "unittest" && i > 0 && is_option(words[i - 1]) && words[i - 1].ends_with('m')) return true;
  }
  return false;
}

// The channel of one Python process.
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

void ReportChannel::open_for(const CommandCheck& check, Place& place, CheckCommand& command) {
  names_python_ = names_python(command.command);
  names_runner_ = names_runner(command.command);
  std::string tests;
  for (const auto& [path, content] : check.files) {
    if (path.ends_with(".sh")) names_runner_ |= names_runner(content);
    if (path.ends_with(".py")) tests += path + "\n";
  }
  const std::string folder = kReportFiles;
  std::erase_if(place.files,
                [&](const auto& file) { return file.first == folder || file.first.starts_with(folder + "/"); });
  std::erase_if(place.programs, [&](const auto& path) { return !place.files.contains(path); });
  for (const auto& [name, text] : report_files()) place.files[folder + "/" + name] = text;
  place.programs.insert(folder + "/bin/python3");
  place.files[folder + "/keys"] = join(keys_, "\n");
  place.files[folder + "/paths"] = tests;
  // The keys are in a pipe, from which each is taken once, and nowhere else by the time that anything is tested.
  command.command =
      "{ mv /workspace/tandem-report /tmp/ 2> /dev/null || mv tandem-report /tmp/; } && "
      "tandem_keys=$(cat /tmp/tandem-report/keys) && rm /tmp/tandem-report/keys && "
      "{ pwd; cat /tmp/tandem-report/paths; } > /tmp/tandem-report/tests || exit 126\n"
      "exec 97>&1 98<<TANDEM_END\n$tandem_keys\nTANDEM_END\n"
      "tandem_keys=/etc/tandem-report; test -e $tandem_keys/report.py || tandem_keys=/tmp/tandem-report\n"
      "export PYTHONPATH=$tandem_keys${PYTHONPATH:+:$PYTHONPATH} PATH=$tandem_keys/bin:$PATH; unset tandem_keys\n" +
      command.command;
}

ReportChannel::Reading ReportChannel::read(std::string_view output) const {
  Reading reading;
  std::map<size_t, Reporter> reporters;
  std::string changed;
  std::vector<std::string_view> printed;
  for (const auto line : split(output, '\n')) {
    if (!line.starts_with(kReportLine) || !line.ends_with(kReportLineEnd)) {
      // That the grader's own folders stand before each other says nothing of the task.
      if (!line.starts_with("[tests run /tmp/tandem-report/bin/")) printed.push_back(line);
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
  if (any_tests || !reading.why.empty()) return reading;
  reading.report = read_test_report(reading.printed);
  if (!reading.report.empty() && (names_runner_ || (names_python_ && reporters.empty()))) {
    reading.unheard =
        "Python's tests did not report to the grader, and what is printed can be forged; let the system's python3 run "
        "them, without -S and without another sitecustomize.py";
  }
  return reading;
}

}  // namespace tandem::envs
