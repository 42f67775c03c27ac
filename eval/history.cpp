#include "eval/history.h"

#include <algorithm>

#include "base/json_line.h"
#include "base/text.h"

namespace tandem::eval {
namespace {

constexpr size_t kFlakyNights = 20;
constexpr double kFlakyChange = 0.5;
constexpr const char* kBlessed = "blessed.json";

fs::path folder_of(const fs::path& night) {
  std::error_code error;
  auto whole = fs::absolute(night, error).lexically_normal();
  if (whole.filename().empty()) whole = whole.parent_path();  // a slash at the end
  return whole;
}

using NightKey = std::pair<double, std::string>;

// By time, but never before one that a night was compared with: a clock may have been set back between them.
std::vector<HistoryLine> in_order(std::map<NightKey, HistoryLine> open,
                                  const std::map<NightKey, std::set<NightKey>>& before) {
  const auto is_free = [&](const auto& entry) {
    const auto found = before.find(entry.first);
    return found == before.end() || std::none_of(found->second.begin(), found->second.end(),
                                                 [&](const auto& key) { return open.contains(key); });
  };
  std::vector<HistoryLine> lines;
  while (!open.empty()) {
    auto next = std::find_if(open.begin(), open.end(), is_free);
    if (next == open.end()) next = open.begin();  // files that contradict each other
    lines.push_back(std::move(next->second));
    open.erase(next);
  }
  return lines;
}

}  // namespace

HistoryLine history_line(const std::string& name, const Night& night, const NightSummary& summary,
                         const std::optional<NightComparison>& against, int code) {
  HistoryLine line{.night = name,
                   .started = night.started,
                   .suite = night.suite,
                   .model = night.model,
                   .model_digest = night.model_digest,
                   .tasks_digest = night.tasks_digest,
                   .config_digest = night.config_digest,
                   .version = night.version,
                   .seconds_p50 = summary.seconds_p50.value_or(0),
                   .seconds_p95 = summary.seconds_p95.value_or(0),
                   .cost_of_pass = summary.cost_of_pass.value_or(0),
                   .error_share = summary.error_share,
                   .code = code,
                   .tasks = {}};
  if (const auto& rate = summary.pass_rate) {
    line.pass_rate = rate->value;
    line.low = rate->low;
    line.high = rate->high;
  }
  if (against && against->difference) line.points = against->difference->points;
  for (const auto& task : night.tasks) line.tasks[task.task] = {task.passed(), task.verdicts()};
  return line;
}

Json to_json(const HistoryLine& l) {
  return {{"night", l.night},
          {"started", l.started},
          {"suite", l.suite},
          {"model", l.model},
          {"model_digest", l.model_digest},
          {"tasks_digest", l.tasks_digest},
          {"config_digest", l.config_digest},
          {"version", l.version},
          {"pass_rate", l.pass_rate},
          {"ci95", {l.low, l.high}},
          {"points", l.points ? Json(*l.points) : Json()},
          {"seconds", {l.seconds_p50, l.seconds_p95}},
          {"cost_per_pass", l.cost_of_pass},
          {"error_share", l.error_share},
          {"exit", l.code},
          {"tasks", l.tasks}};
}

Result<HistoryLine> history_line_from_json(const Json& json) {
  HistoryLine l;
  try {
    l.night = json.at("night").get<std::string>();
    l.started = json.at("started").get<double>();
    l.suite = json.at("suite").get<std::string>();
    l.model = json.at("model").get<std::string>();
    l.model_digest = json.at("model_digest").get<std::string>();
    l.tasks_digest = json.at("tasks_digest").get<std::string>();
    l.config_digest = json.at("config_digest").get<std::string>();
    l.version = json.at("version").get<std::string>();
    l.pass_rate = json.at("pass_rate").get<double>();
    l.low = json.at("ci95").at(0).get<double>();
    l.high = json.at("ci95").at(1).get<double>();
    if (!json.at("points").is_null()) l.points = json.at("points").get<double>();
    l.seconds_p50 = json.at("seconds").at(0).get<double>();
    l.seconds_p95 = json.at("seconds").at(1).get<double>();
    l.cost_of_pass = json.at("cost_per_pass").get<double>();
    l.error_share = json.at("error_share").get<double>();
    l.code = json.at("exit").get<int>();
    for (const auto& [task, counts] : json.at("tasks").items())
      l.tasks[task] = {counts.at(0).get<int>(), counts.at(1).get<int>()};
    constexpr double kMost = 1e11;
    for (const double time : {l.started, l.seconds_p50, l.seconds_p95}) {
      if (time < 0 || time > kMost) return fail(Status::corrupt("no line of a history: a time is out of range"));
    }
  } catch (const Json::exception& error) {
    return fail(Status::corrupt(std::string("no line of a history: ") + error.what()));
  }
  return l;
}

std::string history_text(const std::vector<HistoryLine>& lines) {
  std::string text;
  for (const auto& line : lines) text += dump_json_line(to_json(line)) + "\n";
  return text;
}

Result<std::vector<HistoryLine>> read_history(const fs::path& directory) {
  const fs::path path = directory / "history.jsonl";
  std::vector<HistoryLine> lines;
  std::error_code error;
  if (!fs::exists(path, error)) return lines;
  const auto text = TRY(read_file(path));
  int number = 0;
  for (const auto line : split_lines(text)) {
    ++number;
    const auto read = [&]() -> Result<HistoryLine> { return history_line_from_json(TRY(parse_json(line))); };
    auto one = read();
    if (!one) return fail(Status(one.error()).at(path.string(), number));
    lines.push_back(std::move(*one));
  }
  return lines;
}

Result<std::vector<HistoryLine>> gather_history(const fs::path& directory) {
  std::vector<fs::path> folders = {directory};
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    std::error_code ignored;
    if (entry.is_directory(ignored)) folders.push_back(entry.path());
  }
  if (error) return fail(Status::from_errno(directory.string(), error.value()));
  std::map<NightKey, HistoryLine> by_time;  // by when and what, whatever the folder is called now
  std::map<NightKey, std::set<NightKey>> before;
  for (const auto& folder : folders) {
    auto lines = TRY(read_history(folder));
    std::optional<NightKey> last;
    for (size_t i = 0; i < lines.size(); ++i) {
      NightKey key(lines[i].started, lines[i].model_digest + lines[i].tasks_digest);
      if (last && *last != key) before[key].insert(*last);
      last = key;
      const bool own = i + 1 == lines.size();
      if (own) lines[i].night = folder_of(folder).filename().string();
      if (own)
        by_time.insert_or_assign(std::move(key), std::move(lines[i]));
      else
        by_time.try_emplace(std::move(key), std::move(lines[i]));
    }
  }
  if (by_time.empty()) {
    return fail(Status::invalid("has no evaluation that has ended, and no folder in it has one")
                    .at(directory.string())
                    .hint("give what --out of `tandem eval` named, or the folder that those lie in"));
  }
  return in_order(std::move(by_time), before);
}

std::set<std::string> flaky_tasks(const std::vector<HistoryLine>& lines) {
  struct Course {
    std::optional<double> extreme;  // since the last turn
    int direction = 0;              // of the last large change
    int turns = 0;
  };
  std::map<std::string, Course> courses;
  const size_t from = lines.size() > kFlakyNights ? lines.size() - kFlakyNights : 0;
  for (size_t i = from; i < lines.size(); ++i) {
    for (const auto& [task, counts] : lines[i].tasks) {
      if (counts.second == 0) continue;
      const double rate = static_cast<double>(counts.first) / counts.second;
      Course& course = courses[task];
      if (!course.extreme) {
        course.extreme = rate;
        continue;
      }
      const double change = rate - *course.extreme;
      const int direction = change >= kFlakyChange ? 1 : change <= -kFlakyChange ? -1 : 0;
      if (direction != 0 && direction != course.direction) {
        if (course.direction != 0) ++course.turns;
        course.direction = direction;
        course.extreme = rate;
      } else if (course.direction != 0 && change * course.direction > 0) {
        course.extreme = rate;
      }
    }
  }
  std::set<std::string> flaky;
  for (const auto& [task, course] : courses) {
    if (course.turns >= 2) flaky.insert(task);
  }
  return flaky;
}

Result<fs::path> blessed_beside(const fs::path& night) {
  const auto parent = folder_of(night).parent_path();
  const auto path = parent / kBlessed;
  std::error_code error;
  if (!fs::exists(path, error)) return fs::path();
  const Json json = parse_json(TRY(read_file(path))).value_or(Json());
  if (!json.is_object() || !json.contains("night") || !json.at("night").is_string()) {
    return fail(
        Status::invalid("names no evaluation").at(path.string()).hint("`tandem eval bless DIR` writes it anew"));
  }
  return parent / json.at("night").get<std::string>();
}

Status bless(const fs::path& night, double now) {
  TRY(read_night(night));
  const auto folder = folder_of(night);
  const Json json = {{"night", folder.filename().string()}, {"blessed", now}};
  return write_file(folder.parent_path() / kBlessed, json.dump(2) + "\n");
}

}  // namespace tandem::eval
