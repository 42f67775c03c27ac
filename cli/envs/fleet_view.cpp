#include "cli/envs/fleet_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>

#include "base/text.h"
#include "envs/tools/output.h"

namespace tandem::cli {
namespace {

constexpr size_t kWidestTask = 40;

// What came over a wire must not steer a terminal.
std::string safe(std::string_view text) {
  std::string printable = envs::make_printable(text);
  std::replace(printable.begin(), printable.end(), '\n', ' ');
  return printable;
}

bool is_held(const envs::SandboxHolder& holder) { return holder.lease != 0; }

std::string episode_of(const envs::SandboxHolder& holder) {
  return is_held(holder) ? fmt::format("{}.{}", holder.episode, holder.attempt) : "-";
}

std::string task_of(const envs::SandboxHolder& holder) {
  auto task = safe(holder.task);
  if (task.size() > kWidestTask) task = task.substr(0, kWidestTask - 3) + "...";
  return task.empty() ? "-" : task;
}

std::string time_of(double unix_seconds) {
  const auto seconds = static_cast<std::time_t>(unix_seconds);
  std::tm parts{};
  ::localtime_r(&seconds, &parts);
  const auto milliseconds = static_cast<int>((unix_seconds - static_cast<double>(seconds)) * 1000);
  return fmt::format("{:02}:{:02}:{:02}.{:03}", parts.tm_hour, parts.tm_min, parts.tm_sec, milliseconds);
}

// Sandboxes and calls that were ended, without those that went as they should.
std::vector<std::pair<std::string, uint64_t>> kills_of(const envs::FleetFigures& fleet) {
  std::vector<std::pair<std::string, uint64_t>> kills;
  for (const auto& [why, times] : fleet.ended) {
    if (why != envs::EndReason::kReleased && why != envs::EndReason::kUnwanted)
      kills.emplace_back(to_string(why), times);
  }
  return kills;
}

std::string kills_in_words(const envs::FleetFigures& fleet) {
  std::vector<std::string> parts;
  for (const auto& [why, times] : kills_of(fleet)) parts.push_back(fmt::format("{} {}", why, times));
  return parts.empty() ? "none" : join(parts, ", ");
}

uint64_t given(const envs::FleetFigures& fleet) { return fleet.taken_warm + fleet.made_on_demand; }

std::string warm_share(const envs::FleetFigures& fleet) {
  return given(fleet) == 0 ? "-"
                           : fmt::format("{:.0f}%", 100.0 * static_cast<double>(fleet.taken_warm) /
                                                        static_cast<double>(given(fleet)));
}

std::string cached_share(const envs::ServerFigures& figures) {
  return figures.known_reads == 0 ? "-"
                                  : fmt::format("{:.0f}%", 100.0 * static_cast<double>(figures.cached_reads) /
                                                               static_cast<double>(figures.known_reads));
}

std::string pressure_of(const envs::ServerFigures& figures) {
  if (!figures.pressure) return "not counted by this kernel";
  return fmt::format("{:.0f}% of the last 10 s waited for a core, {:.0f}% for memory, {:.0f}% for a disk",
                     100 * figures.pressure->cpu, 100 * figures.pressure->memory, 100 * figures.pressure->io);
}

uint32_t in_use(const envs::FleetFigures& fleet) { return fleet.leased + fleet.calling + fleet.grading; }

}  // namespace

std::string short_time(double seconds) {
  return seconds < 100 ? fmt::format("{:.1f} s", seconds) : format_seconds(seconds);
}

std::string table_of(std::span<const SeenSandbox> seen) {
  using Line = std::array<std::string, 13>;
  const bool has_runs =
      std::any_of(seen.begin(), seen.end(), [](const auto& each) { return !each.row.holder.run.empty(); });
  std::vector<Line> lines = {{"sandbox", "state", "for", "episode", "task", "doing", "age", "lease", "memory", "procs",
                              "class", "server", has_runs ? "run" : ""}};
  for (const auto& [server, row] : seen) {
    lines.push_back({row.id, std::string(to_string(row.state)), short_time(row.state_seconds), episode_of(row.holder),
                     task_of(row.holder), row.doing.empty() ? "-" : safe(row.doing), short_time(row.age_seconds),
                     row.lease_seconds < 0 ? "-" : short_time(row.lease_seconds), format_bytes(row.usage.memory_bytes),
                     std::to_string(row.usage.processes), safe(row.kind), safe(server),
                     !has_runs                ? ""
                     : row.holder.run.empty() ? "-"
                                              : safe(row.holder.run)});
  }
  std::array<size_t, std::tuple_size_v<Line>> widths{};
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text;
  for (const auto& line : lines) {
    std::string words;
    for (size_t i = 0; i < line.size(); ++i) words += fmt::format("{:<{}}  ", line[i], widths[i]);
    text.append(words.substr(0, words.find_last_not_of(' ') + 1)).append("\n");
  }
  return text;
}

Json to_json(const SeenSandbox& seen) {
  const auto& [server, row] = seen;
  const bool held = is_held(row.holder);
  return {{"server", server},
          {"sandbox", row.id},
          {"state", to_string(row.state)},
          {"state_seconds", row.state_seconds},
          {"episode", held ? Json(row.holder.episode) : Json()},
          {"attempt", held ? Json(row.holder.attempt) : Json()},
          {"task", held ? Json(row.holder.task) : Json()},
          {"run", row.holder.run.empty() ? Json() : Json(row.holder.run)},
          {"lease", held ? Json(row.holder.lease) : Json()},
          {"lease_seconds", row.lease_seconds < 0 ? Json() : Json(row.lease_seconds)},
          {"doing", row.doing.empty() ? Json() : Json(row.doing)},
          {"calls", row.calls},
          {"age_seconds", row.age_seconds},
          {"memory_bytes", row.usage.memory_bytes},
          {"processes", row.usage.processes},
          {"class", row.kind}};
}

std::string line_of(const envs::FleetEvent& event) {
  using envs::FleetEventKind;
  std::string words;
  const std::string what = safe(event.what);
  switch (event.kind) {
    case FleetEventKind::kMade:
      words = fmt::format("{} in {:.1f} ms", what, 1e3 * event.seconds);
      break;
    case FleetEventKind::kLeased:
      words = fmt::format("{} {}{}", episode_of(event.holder), task_of(event.holder), what.empty() ? "" : ", " + what);
      break;
    case FleetEventKind::kCall:
    case FleetEventKind::kExec:
      words = fmt::format("{}  {:.3f} s", what, event.seconds);
      if (event.exit_code > 0) words += fmt::format(", exit {}", event.exit_code);
      if (event.exit_code < 0) words += ", it did not come back";
      break;
    case FleetEventKind::kEnded:
      words = fmt::format("{} after {}", what, short_time(event.seconds));
      break;
    default:
      words = what;
  }
  return fmt::format("{}  {:<10}  {:<8}  {}\n", time_of(event.unix_seconds),
                     event.sandbox.empty() ? "-" : event.sandbox, to_string(event.kind), words);
}

Json to_json(const envs::FleetEvent& event, const std::string& server) {
  const bool held = is_held(event.holder);
  const bool ran = event.kind == envs::FleetEventKind::kCall || event.kind == envs::FleetEventKind::kExec;
  return {{"server", server},
          {"number", event.number},
          {"time", event.unix_seconds},
          {"sandbox", event.sandbox.empty() ? Json() : Json(event.sandbox)},
          {"event", to_string(event.kind)},
          {"what", event.what},
          {"seconds", event.seconds},
          {"exit_code", ran && event.exit_code >= 0 ? Json(event.exit_code) : Json()},
          {"episode", held ? Json(event.holder.episode) : Json()},
          {"attempt", held ? Json(event.holder.attempt) : Json()},
          {"task", held ? Json(event.holder.task) : Json()}};
}

std::string line_of(const envs::ServerFigures& figures) {
  const auto& fleet = figures.fleet;
  return fmt::format(
      "{:.1f} spawns/s, p50 {:.1f} ms, p99 {:.1f} ms; {} in use ({} calling, {} grading), {} warm, {} draining; {} of "
      "{} "
      "waiting; {} given warm; {} of reads cached; kills: {}",
      fleet.spawns_per_second, fleet.spawn_p50_ms, fleet.spawn_p99_ms, in_use(fleet), fleet.calling, fleet.grading,
      fleet.warm, fleet.draining, figures.waiting, figures.queue, warm_share(fleet), cached_share(figures),
      kills_in_words(fleet));
}

std::string lines_of(const std::string& server, const envs::ServerFigures& figures) {
  const auto& fleet = figures.fleet;
  return fmt::format(
      "{}  up {}, {} episodes, {} calls, {} requests failed\n"
      "  spawns   {:.1f}/s, p50 {:.1f} ms, p99 {:.1f} ms; {} in all, {} could not be made, {} given warm\n"
      "  in use   {}: {} between calls, {} calling, {} grading; {} warm, {} draining\n"
      "  queue    {} of {} requests\n"
      "  reads    {} of {} of known content answered from the cache\n"
      "  pressure {}\n"
      "  kills    {}\n",
      safe(server), format_seconds(fleet.uptime_seconds), figures.episodes, fleet.calls, figures.failed,
      fleet.spawns_per_second, fleet.spawn_p50_ms, fleet.spawn_p99_ms, fleet.made, fleet.not_made, warm_share(fleet),
      in_use(fleet), fleet.leased, fleet.calling, fleet.grading, fleet.warm, fleet.draining, figures.waiting,
      figures.queue, figures.cached_reads, figures.known_reads, pressure_of(figures), kills_in_words(fleet));
}

Json to_json(const envs::ServerFigures& figures) {
  const auto& fleet = figures.fleet;
  Json kills = Json::object();
  for (const auto& [why, times] : kills_of(fleet)) kills[why] = times;
  Json pressure;
  if (figures.pressure)
    pressure = {{"cpu", figures.pressure->cpu}, {"memory", figures.pressure->memory}, {"io", figures.pressure->io}};
  return {{"uptime_seconds", fleet.uptime_seconds},
          {"episodes", figures.episodes},
          {"sandboxes",
           {{"warm", fleet.warm},
            {"leased", fleet.leased},
            {"calling", fleet.calling},
            {"grading", fleet.grading},
            {"draining", fleet.draining}}},
          {"queue", {{"waiting", figures.waiting}, {"limit", figures.queue}}},
          {"spawns",
           {{"made", fleet.made},
            {"not_made", fleet.not_made},
            {"per_second", fleet.spawns_per_second},
            {"p50_ms", fleet.spawn_p50_ms},
            {"p99_ms", fleet.spawn_p99_ms},
            {"taken_warm", fleet.taken_warm},
            {"made_on_demand", fleet.made_on_demand}}},
          {"calls", fleet.calls},
          {"reads", {{"known", figures.known_reads}, {"cached", figures.cached_reads}}},
          {"execs", fleet.execs},
          {"pressure", pressure},
          {"failed_requests", figures.failed},
          {"kills", kills}};
}

}  // namespace tandem::cli
