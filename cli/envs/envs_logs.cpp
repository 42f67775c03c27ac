// `tandem envs logs`: the events that environment servers keep, and those that come.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <list>

#include "base/json_line.h"
#include "cli/command.h"
#include "cli/envs/envs_commands.h"
#include "cli/envs/fleet_view.h"
#include "cli/interrupt.h"

namespace tandem::cli {
namespace {

constexpr int kFollowMilliseconds = 250;  // between two questions

// The events of one server, from where they were last seen.
class Tail {
 public:
  Tail(FleetLine& line, const LogsOptions& options, double patience, Interrupted interrupted)
      : line_(line), options_(options), patience_(patience), interrupted_(std::move(interrupted)) {}

  const FleetLine& line() const { return line_; }

  // The last ones; pages of them where there are more than an answer holds.
  Status begin() {
    if (options_.lines == 0) return skip();
    const auto most = static_cast<uint32_t>(options_.lines);
    if (most <= envs::kMostPageEvents) return page({.sandbox = options_.sandbox, .most = most, .last = true});
    // More than an answer holds: from the first that is kept, of which the last are shown.
    std::vector<envs::FleetEvent> all;
    uint64_t after = 0;
    for (;;) {
      auto events = TRY(ask({.sandbox = options_.sandbox, .after = after, .most = envs::kMostPageEvents}));
      const bool is_last = events.events.size() < envs::kMostPageEvents;
      all.insert(all.end(), events.events.begin(), events.events.end());
      after = events.seen;
      if (is_last) break;
    }
    for (size_t i = all.size() > most ? all.size() - most : 0; i < all.size(); ++i) print(all[i]);
    after_ = after;
    return {};
  }

  // What has come since; all of the server's where another life of it answers.
  Status go_on() {
    const uint64_t epoch = line_.epoch();
    for (;;) {
      auto events = TRY(ask({.sandbox = options_.sandbox, .after = after_, .most = envs::kMostPageEvents}));
      if (line_.epoch() != epoch) {
        fmt::print(stderr, "tandem envs: the server {} has started again\n", line_.name());
        after_ = 0;
        return {};
      }
      if (events.lost > 0)
        fmt::print(stderr, "tandem envs: {} events of {} came and went meanwhile\n", events.lost, line_.name());
      for (const auto& event : events.events) print(event);
      after_ = events.seen;
      if (events.events.size() < envs::kMostPageEvents) return {};
    }
  }

 private:
  Result<envs::Fleet::Events> ask(const envs::EventsQuery& query) {
    return line_.ask_for<envs::Fleet::Events>(query, patience_, interrupted_);
  }
  Status page(const envs::EventsQuery& query) {
    const auto events = TRY(ask(query));
    for (const auto& event : events.events) print(event);
    after_ = events.seen;
    return {};
  }
  Status skip() {
    after_ = TRY(ask({.sandbox = options_.sandbox, .most = 1, .last = true})).seen;
    return {};
  }
  void print(const envs::FleetEvent& event) const {
    if (options_.json)
      fmt::print("{}\n", dump_json_line(to_json(event, line_.name())));
    else
      fmt::print("{}", line_of(event));
    std::fflush(stdout);
  }

  FleetLine& line_;
  const LogsOptions& options_;
  const double patience_;
  const Interrupted interrupted_;
  uint64_t after_ = 0;
};

}  // namespace

Result<int> show_logs(const FleetTarget& target, const LogsOptions& options) {
  auto client = TRY(FleetClient::open(target));
  const auto interrupt = TRY(Interrupt::listen());
  const Interrupted interrupted = [&] { return interrupt->requested(); };
  std::list<Tail> tails;
  Status trouble;
  for (auto& line : client.lines()) {
    auto begun = tails.emplace_back(line, options, client.patience(), interrupted).begin();
    if (begun) continue;
    tails.pop_back();
    if (interrupted()) return kDone;
    if (trouble || begun.code() != Code::kNotFound) trouble = std::move(begun);
  }
  if (tails.empty()) return fail(std::move(trouble));
  if (!trouble && trouble.code() != Code::kNotFound) fmt::print(stderr, "tandem envs: {}\n", trouble.to_string());
  while (options.follow && !tails.empty()) {
    for (int waited = 0; waited < kFollowMilliseconds && !interrupted(); waited += 50) ::usleep(50'000);
    if (interrupted()) return kDone;
    for (auto tail = tails.begin(); tail != tails.end();) {
      const auto more = tail->go_on();
      if (interrupted()) return kDone;
      // A sandbox is over whose last event is not kept any more; a server, where nobody is there.
      if (!more) fmt::print(stderr, "tandem envs: {}\n", more.to_string());
      tail = more ? std::next(tail) : tails.erase(tail);
    }
  }
  if (options.follow) return kFailed;
  return trouble || trouble.code() == Code::kNotFound ? kDone : kIncomplete;
}

}  // namespace tandem::cli
