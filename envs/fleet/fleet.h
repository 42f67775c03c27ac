// The sandboxes of one environment server: current state of each, and a bounded history of events.
//
// Pure: no clock, socket or thread inside; `Moment` comes with each event. What is kept is bounded: the sandboxes that
// live, the last kMostEvents events, the last kMostSpawns times that making one took.
//
// A sandbox is named by the server's life and a number, "h2kq-17": a name of an earlier life is never one of this.
//
// Thread safety: none. Invariants: every event has a number one above the one before; a sandbox that ended has no row.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "envs/sandbox/capabilities.h"

namespace tandem::envs {

struct Moment {
  Time now{};
  double unix_seconds = 0;  // for people
};

enum class SandboxState : uint8_t {
  kWarm,      // kept ready, nobody's
  kLeased,    // an episode's, between two calls
  kCalling,   // a call of the episode runs in it
  kGrading,   // runs the tests of an episode
  kDraining,  // has been ended, and its holder has not let go of it yet
};
std::string_view to_string(SandboxState state);

// Why a sandbox is no more, or why a call was ended.
enum class EndReason : uint8_t {
  kReleased,   // its holder was done with it
  kUnwanted,   // it was kept ready, and fewer are wanted now
  kIdle,       // nobody had asked about its episode for as long as a lease lasts
  kOperator,   // `tandem envs kill`
  kLost,       // its first process or what made it was killed
  kDeadline,   // it did not answer in time
  kTimeLimit,  // of a call: its time was up
  kMemory,     // of a call: killed with the process that served it
};
inline constexpr size_t kEndReasons = 8;
std::string_view to_string(EndReason reason);

struct SandboxRow {
  uint64_t number = 0;  // rows are in order of these
  std::string id;
  SandboxState state = SandboxState::kWarm;
  SandboxHolder holder;
  std::string kind;           // its limits: those of one kind can stand in for each other
  std::string doing;          // the tool of the call that runs, or the last of several
  double age_seconds = 0;     // since it was made
  double state_seconds = 0;   // since it is in this state
  double lease_seconds = -1;  // until its episode is let go where nobody asks about it; below 0: no lease
  uint32_t calls = 0;         // that were made in it
  SandboxUsage usage;
};

enum class FleetEventKind : uint8_t { kMade, kNotMade, kLeased, kCall, kExec, kKilled, kEnded, kNetwork };
inline constexpr size_t kFleetEventKinds = 8;
std::string_view to_string(FleetEventKind kind);

struct FleetEvent {
  uint64_t number = 0;  // from 1
  double unix_seconds = 0;
  std::string sandbox;
  FleetEventKind kind = FleetEventKind::kMade;
  SandboxHolder holder;
  std::string what;    // of a call its tool, of an exec its program, of the network the request, of the others why
  double seconds = 0;  // that it took; of an end the sandbox's age
  int exit_code = 0;   // of a call or an exec
};

struct FleetFigures {
  double uptime_seconds = 0;
  uint32_t warm = 0, leased = 0, calling = 0, grading = 0, draining = 0;
  uint64_t made = 0, not_made = 0;              // since the server began
  uint64_t taken_warm = 0, made_on_demand = 0;  // given to an episode or its tests: that were ready; that were not
  uint64_t calls = 0, execs = 0;
  double spawns_per_second = 0;               // of late
  double spawn_p50_ms = 0, spawn_p99_ms = 0;  // of the last kMostSpawns; 0 where none was made yet
  std::map<EndReason, uint64_t> ended;        // sandboxes and calls, by why
};

class Fleet {
 public:
  static constexpr size_t kMostEvents = 4096, kMostSpawns = 1024;
  static constexpr uint32_t kMostRequests = 1000;  // to the network that are told of one sandbox
  static constexpr size_t kLongestWords = 200;     // bytes of `what` and of a task's name that are kept

  // `life` tells one life of the server from another.
  Fleet(uint64_t life, Moment begun);

  // Its number. With a holder it was made for who asked, else to be kept ready.
  uint64_t made(const SandboxSpec& spec, Duration took, Moment at);
  void not_made(std::string_view why, Moment at);
  // `holder` has it from now on; the same holder again changes nothing.
  void leased(uint64_t number, const SandboxHolder& holder, Moment at);
  void call_began(uint64_t number, std::string_view tool, Moment at);
  struct CallEnd {
    std::string_view tool;
    Duration took{};
    int exit_code = 0;
    std::optional<EndReason> ended_by;  // kTimeLimit or kMemory
  };
  void call_ended(uint64_t number, const CallEnd& end, Moment at);
  // A request of its programs to another host is over.
  void used_network(uint64_t number, const NetworkUse& use, Moment at);
  void executed(uint64_t number, std::string_view program, Duration took, int exit_code, Moment at);
  // It is being ended, or was found to have been; the first reason stands.
  void ending(uint64_t number, EndReason reason, Moment at);
  // Everything that a lease has, which nobody asks about any more, ends for this reason.
  void lease_ending(uint64_t lease, EndReason reason);
  void ended(uint64_t number, Moment at);

  // Rows with numbers above `after`, `most` of them.
  std::vector<SandboxRow> rows(uint64_t after, size_t most, Time now) const;
  size_t size() const { return sandboxes_.size(); }
  // The row of a name. kNotFound, with the nearest name or how it ended where that is known.
  Result<SandboxRow> find(std::string_view id, Time now) const;

  struct Events {
    std::vector<FleetEvent> events;
    uint64_t seen = 0;  // ask for those after it next
    uint64_t lost = 0;  // that came after `after` and are not kept any more, of whatever sandbox
  };
  // The first `most` that came after number `after`; of one sandbox where `sandbox` is not empty.
  Events events(uint64_t after, std::string_view sandbox, size_t most) const;
  // The number after which there are `last` events of the sandbox, or of all.
  uint64_t before_last(size_t last, std::string_view sandbox) const;
  // kNotFound where no sandbox of that name lives and no event is kept of one.
  Status check_known(std::string_view id, Time now) const;

  FleetFigures figures(Time now) const;

 private:
  struct Watched {
    std::string id, kind, doing;
    SandboxState state = SandboxState::kWarm;
    SandboxHolder holder;
    Time made{}, since{};
    uint32_t calls = 0, running = 0, requests = 0;
    std::optional<EndReason> why;
  };
  struct Spawn {
    Time at{};
    float milliseconds = 0;
  };
  std::string id_of(uint64_t number) const;
  SandboxRow row_of(uint64_t number, const Watched& watched, Time now) const;
  Watched* living(uint64_t number);
  void enter(Watched& watched, SandboxState state, Moment at);
  void record(FleetEvent event, Moment at);
  void give(Watched& watched, const SandboxHolder& holder, Moment at);

  const std::string life_;
  const Time begun_;
  uint64_t last_number_ = 0;
  std::map<uint64_t, Watched> sandboxes_;
  std::deque<FleetEvent> events_;
  uint64_t last_event_ = 0;
  std::deque<Spawn> spawns_;
  FleetFigures totals_;
};

// Whether a text can be the name of a sandbox: what comes from outside is checked by it.
bool is_sandbox_id(std::string_view id);

}  // namespace tandem::envs
