// Encodes and decodes operators' queries and answers (wire/messages.capnp).
//
// Decoders accept untrusted bytes: every field is checked against its limits, and the error names it.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "envs/fleet/fleet.h"
#include "envs/fleet/pressure.h"
#include "wire/messages.capnp.h"

namespace tandem::envs {

inline constexpr uint32_t kMostRows = 512, kMostPageEvents = 512;  // of one answer
inline constexpr double kLongestExec = 120;                        // seconds
inline constexpr uint32_t kMostExecOutput = 1 << 20;               // bytes, of output and of errors
inline constexpr uint32_t kMostExecWords = 256;
inline constexpr size_t kMostExecBytes = 64 << 10;  // of all words

struct RowsQuery {
  uint64_t after = 0;
  uint32_t most = kMostRows;
};
struct EventsQuery {
  std::string sandbox;
  uint64_t after = 0;
  uint32_t most = kMostPageEvents;
  bool last = false;  // the last `most`, whatever `after` says
};
struct FiguresQuery {};
struct ExecQuery {
  std::string sandbox;
  ExecRequest request;
};
struct KillQuery {
  std::string sandbox;
};
using FleetQuery = std::variant<RowsQuery, EventsQuery, FiguresQuery, ExecQuery, KillQuery>;

void write_query(const FleetQuery& query, wire::FleetQuery::Builder out);
Result<FleetQuery> read_query(wire::FleetQuery::Reader in);

struct RowsPage {
  std::vector<SandboxRow> rows;
  uint32_t total = 0;
};
// Figures of the fleet, and of the server's own requests.
struct ServerFigures {
  FleetFigures fleet;
  uint64_t episodes = 0, waiting = 0, queue = 0, failed = 0;
  uint64_t known_reads = 0, cached_reads = 0;  // calls that read known content; those of them answered from the cache
  std::optional<Pressure> pressure;            // of its machine or control group
};
struct Killed {
  SandboxRow before;
};
using FleetAnswer = std::variant<RowsPage, Fleet::Events, ServerFigures, ExecOutcome, Killed>;

void write_answer(const FleetAnswer& answer, wire::FleetAnswer::Builder out);
Result<FleetAnswer> read_answer(wire::FleetAnswer::Reader in);

}  // namespace tandem::envs
