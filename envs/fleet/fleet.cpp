#include "envs/fleet/fleet.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text.h"
#include "envs/tools/output.h"

namespace tandem::envs {
namespace {

constexpr auto kOfLate = std::chrono::seconds(10);  // what a rate is of
constexpr size_t kFleetLongestId = 32;

// Four letters and digits that nobody takes for each other.
std::string mark_of(uint64_t life) {
  constexpr std::string_view kDigits = "0123456789abcdefghjkmnpqrstvwxyz";
  uint64_t mixed = (life ^ (life >> 32)) * 0x9e3779b97f4a7c15u;
  std::string mark;
  for (int i = 0; i < 4; ++i, mixed <<= 5) mark += kDigits[mixed >> 59];
  return mark;
}

// Words of others, for one line of a terminal.
std::string bounded(std::string_view words) {
  std::string text = make_printable(words.substr(0, Fleet::kLongestWords));
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::string kind_of(const SandboxSpec& spec) {
  auto kind = fmt::format("{} processes, {}", spec.processes, format_bytes(spec.memory_bytes));
  if (!spec.links.empty()) kind += fmt::format(", {} links", spec.links.size());
  if (!spec.network.empty()) kind += fmt::format(", {} open hosts", spec.network.size());
  if (spec.workspace) kind += ", a folder of the host";
  return kind;
}

double quantile(const std::vector<float>& sorted, double share) {
  if (sorted.empty()) return 0;
  const auto at = static_cast<size_t>(share * static_cast<double>(sorted.size()));
  return sorted[std::min(at, sorted.size() - 1)];
}

}  // namespace

std::string_view to_string(SandboxState state) {
  constexpr std::array<std::string_view, 5> kNames = {"warm", "leased", "calling", "grading", "draining"};
  return kNames[static_cast<size_t>(state)];
}

std::string_view to_string(EndReason reason) {
  constexpr std::array<std::string_view, kEndReasons> kNames = {"released", "unwanted", "idle",       "operator",
                                                                "lost",     "deadline", "time_limit", "memory"};
  return kNames[static_cast<size_t>(reason)];
}

std::string_view to_string(FleetEventKind kind) {
  constexpr std::array<std::string_view, kFleetEventKinds> kNames = {"made", "not_made", "leased", "call",
                                                                     "exec", "killed",   "ended",  "network"};
  return kNames[static_cast<size_t>(kind)];
}

bool is_sandbox_id(std::string_view id) {
  return !id.empty() && id.size() <= kFleetLongestId && std::all_of(id.begin(), id.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
}

Fleet::Fleet(uint64_t life, Moment begun) : life_(mark_of(life)), begun_(begun.now) {}

std::string Fleet::id_of(uint64_t number) const { return fmt::format("{}-{}", life_, number); }

Fleet::Watched* Fleet::living(uint64_t number) {
  const auto found = sandboxes_.find(number);
  return found == sandboxes_.end() ? nullptr : &found->second;
}

void Fleet::record(FleetEvent event, Moment at) {
  event.number = ++last_event_;
  event.unix_seconds = at.unix_seconds;
  event.what = bounded(event.what);
  if (events_.size() >= kMostEvents) events_.pop_front();
  events_.push_back(std::move(event));
}

void Fleet::enter(Watched& watched, SandboxState state, Moment at) {
  if (watched.state == state) return;
  watched.state = state;
  watched.since = at.now;
}

uint64_t Fleet::made(const SandboxSpec& spec, Duration took, Moment at) {
  const uint64_t number = ++last_number_;
  Watched& watched = sandboxes_[number];
  watched.id = id_of(number);
  watched.kind = kind_of(spec);
  watched.made = watched.since = at.now;
  ++totals_.made;
  if (spawns_.size() >= kMostSpawns) spawns_.pop_front();
  spawns_.push_back({at.now, static_cast<float>(1e3 * to_seconds(took))});
  FleetEvent event{.sandbox = watched.id, .kind = FleetEventKind::kMade, .what = watched.kind};
  event.seconds = to_seconds(took);
  record(std::move(event), at);
  if (spec.holder != SandboxHolder{}) {
    ++totals_.made_on_demand;
    give(watched, spec.holder, at);
  }
  return number;
}

void Fleet::not_made(std::string_view why, Moment at) {
  ++totals_.not_made;
  record({.kind = FleetEventKind::kNotMade, .what = std::string(why)}, at);
}

void Fleet::leased(uint64_t number, const SandboxHolder& holder, Moment at) {
  Watched* watched = living(number);
  if (!watched || watched->holder != SandboxHolder{} || holder == SandboxHolder{}) return;
  ++totals_.taken_warm;
  give(*watched, holder, at);
}

void Fleet::give(Watched& watched, const SandboxHolder& holder, Moment at) {
  watched.holder = holder;
  watched.holder.task = bounded(holder.task);
  enter(watched, holder.grading ? SandboxState::kGrading : SandboxState::kLeased, at);
  record({.sandbox = watched.id,
          .kind = FleetEventKind::kLeased,
          .holder = watched.holder,
          .what = holder.grading ? "to grade" : ""},
         at);
}

void Fleet::call_began(uint64_t number, std::string_view tool, Moment at) {
  Watched* watched = living(number);
  if (!watched) return;
  ++watched->running;
  watched->doing = bounded(tool);
  if (watched->state == SandboxState::kLeased) enter(*watched, SandboxState::kCalling, at);
}

void Fleet::call_ended(uint64_t number, const CallEnd& end, Moment at) {
  Watched* watched = living(number);
  if (!watched) return;
  ++watched->calls;
  ++totals_.calls;
  if (watched->running > 0 && --watched->running == 0) {
    watched->doing.clear();
    if (watched->state == SandboxState::kCalling) enter(*watched, SandboxState::kLeased, at);
  }
  if (end.ended_by) ++totals_.ended[*end.ended_by];
  FleetEvent event{.sandbox = watched->id,
                   .kind = FleetEventKind::kCall,
                   .holder = watched->holder,
                   .what = std::string(end.tool.substr(0, kLongestWords)),
                   .seconds = to_seconds(end.took),
                   .exit_code = end.exit_code};
  if (end.ended_by) event.what += fmt::format(", ended: {}", to_string(*end.ended_by));
  record(std::move(event), at);
}

void Fleet::used_network(uint64_t number, const NetworkUse& use, Moment at) {
  Watched* watched = living(number);
  if (!watched || ++watched->requests > kMostRequests) return;
  record({.sandbox = watched->id,
          .kind = FleetEventKind::kNetwork,
          .holder = watched->holder,
          .what = envs::to_string(use),
          .seconds = use.seconds},
         at);
}

void Fleet::executed(uint64_t number, std::string_view program, Duration took, int exit_code, Moment at) {
  const Watched* watched = living(number);
  ++totals_.execs;
  record({.sandbox = watched ? watched->id : id_of(number),
          .kind = FleetEventKind::kExec,
          .holder = watched ? watched->holder : SandboxHolder{},
          .what = std::string(program),
          .seconds = to_seconds(took),
          .exit_code = exit_code},
         at);
}

void Fleet::ending(uint64_t number, EndReason reason, Moment at) {
  Watched* watched = living(number);
  if (!watched || watched->why) return;
  watched->why = reason;
  enter(*watched, SandboxState::kDraining, at);
  record({.sandbox = watched->id,
          .kind = FleetEventKind::kKilled,
          .holder = watched->holder,
          .what = std::string(to_string(reason))},
         at);
}

void Fleet::lease_ending(uint64_t lease, EndReason reason) {
  for (auto& [number, watched] : sandboxes_) {
    if (watched.holder.lease == lease && watched.holder != SandboxHolder{} && !watched.why) watched.why = reason;
  }
}

void Fleet::ended(uint64_t number, Moment at) {
  const auto found = sandboxes_.find(number);
  if (found == sandboxes_.end()) return;
  const Watched& watched = found->second;
  const bool was_warm = watched.holder == SandboxHolder{};
  const EndReason reason = watched.why.value_or(was_warm ? EndReason::kUnwanted : EndReason::kReleased);
  ++totals_.ended[reason];
  record({.sandbox = watched.id,
          .kind = FleetEventKind::kEnded,
          .holder = watched.holder,
          .what = std::string(to_string(reason)),
          .seconds = to_seconds(at.now - watched.made)},
         at);
  sandboxes_.erase(found);
}

SandboxRow Fleet::row_of(uint64_t number, const Watched& watched, Time now) const {
  SandboxRow row;
  row.number = number;
  row.id = watched.id;
  row.state = watched.state;
  row.holder = watched.holder;
  row.kind = watched.kind;
  row.doing = watched.doing;
  row.age_seconds = to_seconds(now - watched.made);
  row.state_seconds = to_seconds(now - watched.since);
  row.calls = watched.calls;
  return row;
}

std::vector<SandboxRow> Fleet::rows(uint64_t after, size_t most, Time now) const {
  std::vector<SandboxRow> rows;
  for (auto at = sandboxes_.upper_bound(after); at != sandboxes_.end() && rows.size() < most; ++at)
    rows.push_back(row_of(at->first, at->second, now));
  return rows;
}

Result<SandboxRow> Fleet::find(std::string_view id, Time now) const {
  std::vector<std::string_view> names;
  for (const auto& [number, watched] : sandboxes_) {
    if (watched.id == id) return row_of(number, watched, now);
    names.push_back(watched.id);
  }
  for (auto event = events_.rbegin(); event != events_.rend(); ++event) {
    if (event->sandbox == id && event->kind == FleetEventKind::kEnded)
      return fail(Status::not_found(fmt::format("sandbox {} has ended ({})", id, event->what)));
  }
  if (names.empty()) return fail(Status::not_found(fmt::format("there is no sandbox {}; there are none now", id)));
  const auto near = nearest(id, names);
  return fail(Status::not_found(
      near.empty() ? fmt::format("there is no sandbox {}; `tandem envs ls` shows those that there are", id)
                   : fmt::format("there is no sandbox {}; did you mean \"{}\"?", id, near)));
}

Fleet::Events Fleet::events(uint64_t after, std::string_view sandbox, size_t most) const {
  Events found;
  const uint64_t first = last_event_ - events_.size() + 1;  // that is kept
  found.seen = after;
  if (after > last_event_) after = last_event_;
  if (after + 1 < first) {
    found.lost = first - after - 1;
    after = first - 1;
  }
  for (auto event = events_.begin() + static_cast<long>(after + 1 - first); event != events_.end(); ++event) {
    if (found.events.size() >= most) return found;
    found.seen = event->number;
    if (sandbox.empty() || event->sandbox == sandbox) found.events.push_back(*event);
  }
  found.seen = last_event_;
  return found;
}

uint64_t Fleet::before_last(size_t last, std::string_view sandbox) const {
  if (last == 0) return last_event_;
  for (auto event = events_.rbegin(); event != events_.rend(); ++event) {
    if (!sandbox.empty() && event->sandbox != sandbox) continue;
    if (--last == 0) return event->number - 1;
  }
  return last_event_ - events_.size();
}

Status Fleet::check_known(std::string_view id, Time now) const {
  const bool is_kept =
      std::any_of(events_.begin(), events_.end(), [&](const FleetEvent& event) { return event.sandbox == id; });
  if (is_kept) return {};
  const auto row = find(id, now);
  return row ? Status() : row.error();
}

FleetFigures Fleet::figures(Time now) const {
  FleetFigures figures = totals_;
  figures.uptime_seconds = to_seconds(now - begun_);
  for (const auto& [number, watched] : sandboxes_) {
    switch (watched.state) {
      case SandboxState::kWarm:
        ++figures.warm;
        break;
      case SandboxState::kLeased:
        ++figures.leased;
        break;
      case SandboxState::kCalling:
        ++figures.calling;
        break;
      case SandboxState::kGrading:
        ++figures.grading;
        break;
      case SandboxState::kDraining:
        ++figures.draining;
        break;
    }
  }
  std::vector<float> times;
  size_t of_late = 0;
  for (const Spawn& spawn : spawns_) {
    times.push_back(spawn.milliseconds);
    of_late += now - spawn.at <= kOfLate ? 1 : 0;
  }
  std::sort(times.begin(), times.end());
  figures.spawn_p50_ms = quantile(times, 0.5);
  figures.spawn_p99_ms = quantile(times, 0.99);
  // Where more were made than times are kept, the first that is kept says since when.
  Duration span = std::min<Duration>(kOfLate, now - begun_);
  if (of_late == kMostSpawns) span = std::min<Duration>(span, now - spawns_.front().at);
  if (of_late > 0) figures.spawns_per_second = static_cast<double>(of_late) / std::max(0.1, to_seconds(span));
  return figures;
}

}  // namespace tandem::envs
