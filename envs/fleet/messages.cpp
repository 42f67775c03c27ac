#include "envs/fleet/messages.h"

#include <fmt/format.h>

#include <cmath>

namespace tandem::envs {
namespace {

constexpr size_t kFleetLongestText = 1024;  // of a field that is shown

Status wrong(std::string_view field, const std::string& why) {
  return Status::invalid(fmt::format("a fleet message: {} {}", field, why));
}

Result<std::string> text(capnp::Text::Reader in, std::string_view field, size_t limit = kFleetLongestText) {
  if (in.size() > limit) return fail(wrong(field, fmt::format("has {} bytes; at most {} are taken", in.size(), limit)));
  return std::string(in.cStr(), in.size());
}

Result<double> number(double in, std::string_view field, double least, double most) {
  if (std::isfinite(in) && in >= least && in <= most) return in;
  return fail(wrong(field, fmt::format("is {}; it must lie in {} to {}", in, least, most)));
}

Result<std::string> sandbox(capnp::Text::Reader in) {
  auto id = TRY(text(in, "sandbox"));
  if (!is_sandbox_id(id)) return fail(wrong("sandbox", "is not the name of one, like h2kq-17"));
  return id;
}

Result<uint32_t> count(uint32_t in, std::string_view field, uint32_t most) {
  if (in > 0 && in <= most) return in;
  return fail(wrong(field, fmt::format("is {}; it must lie in 1 to {}", in, most)));
}

template <typename Enum, size_t N>
Result<Enum> named(std::string_view name, std::string_view field) {
  for (size_t i = 0; i < N; ++i) {
    if (to_string(static_cast<Enum>(i)) == name) return static_cast<Enum>(i);
  }
  return fail(wrong(field, "is not one that is known"));
}

constexpr double kLongestTime = 1e12;

void write(const SandboxRow& row, wire::SandboxRow::Builder out) {
  out.setNumber(row.number);
  out.setId(row.id);
  out.setState(std::string(to_string(row.state)));
  out.setKind(row.kind);
  out.setDoing(row.doing);
  out.setLease(row.holder.lease);
  out.setEpisode(row.holder.episode);
  out.setAttempt(row.holder.attempt);
  out.setTask(row.holder.task);
  out.setRun(row.holder.run);
  out.setAgeSeconds(row.age_seconds);
  out.setStateSeconds(row.state_seconds);
  out.setLeaseSeconds(row.lease_seconds);
  out.setMemoryBytes(row.usage.memory_bytes);
  out.setProcesses(row.usage.processes);
  out.setCalls(row.calls);
}

Result<SandboxRow> read(wire::SandboxRow::Reader in) {
  SandboxRow row;
  row.number = in.getNumber();
  row.id = TRY(sandbox(in.getId()));
  row.state = TRY((named<SandboxState, 5>(TRY(text(in.getState(), "state")), "state")));
  row.kind = TRY(text(in.getKind(), "kind"));
  row.doing = TRY(text(in.getDoing(), "doing"));
  row.holder = {.lease = in.getLease(), .episode = in.getEpisode(), .attempt = in.getAttempt(), .task = ""};
  row.holder.task = TRY(text(in.getTask(), "task"));
  row.holder.run = TRY(text(in.getRun(), "run"));
  row.age_seconds = TRY(number(in.getAgeSeconds(), "ageSeconds", 0, kLongestTime));
  row.state_seconds = TRY(number(in.getStateSeconds(), "stateSeconds", 0, kLongestTime));
  row.lease_seconds = TRY(number(in.getLeaseSeconds(), "leaseSeconds", -kLongestTime, kLongestTime));
  row.usage = {.memory_bytes = in.getMemoryBytes(), .processes = in.getProcesses()};
  row.calls = in.getCalls();
  return row;
}

void write(const FleetEvent& event, wire::FleetEvent::Builder out) {
  out.setNumber(event.number);
  out.setUnixSeconds(event.unix_seconds);
  out.setSandbox(event.sandbox);
  out.setKind(std::string(to_string(event.kind)));
  out.setLease(event.holder.lease);
  out.setEpisode(event.holder.episode);
  out.setAttempt(event.holder.attempt);
  out.setTask(event.holder.task);
  out.setWhat(event.what);
  out.setSeconds(event.seconds);
  out.setExitCode(event.exit_code);
}

Result<FleetEvent> read(wire::FleetEvent::Reader in) {
  FleetEvent event;
  event.number = in.getNumber();
  event.unix_seconds = TRY(number(in.getUnixSeconds(), "unixSeconds", 0, kLongestTime));
  if (in.getSandbox().size() > 0) event.sandbox = TRY(sandbox(in.getSandbox()));
  event.kind = TRY((named<FleetEventKind, kFleetEventKinds>(TRY(text(in.getKind(), "kind")), "kind")));
  event.holder = {.lease = in.getLease(), .episode = in.getEpisode(), .attempt = in.getAttempt(), .task = ""};
  event.holder.task = TRY(text(in.getTask(), "task"));
  event.what = TRY(text(in.getWhat(), "what"));
  event.seconds = TRY(number(in.getSeconds(), "seconds", 0, kLongestTime));
  event.exit_code = in.getExitCode();
  return event;
}

void write(const ServerFigures& figures, wire::Figures::Builder out) {
  const FleetFigures& fleet = figures.fleet;
  out.setUptimeSeconds(fleet.uptime_seconds);
  out.setWarm(fleet.warm);
  out.setLeased(fleet.leased);
  out.setCalling(fleet.calling);
  out.setGrading(fleet.grading);
  out.setDraining(fleet.draining);
  out.setMade(fleet.made);
  out.setNotMade(fleet.not_made);
  out.setTakenWarm(fleet.taken_warm);
  out.setMadeOnDemand(fleet.made_on_demand);
  out.setCalls(fleet.calls);
  out.setExecs(fleet.execs);
  out.setSpawnsPerSecond(fleet.spawns_per_second);
  out.setSpawnP50Ms(fleet.spawn_p50_ms);
  out.setSpawnP99Ms(fleet.spawn_p99_ms);
  auto ended = out.initEnded(static_cast<unsigned>(fleet.ended.size()));
  unsigned i = 0;
  for (const auto& [why, times] : fleet.ended) {
    ended[i].setName(std::string(to_string(why)));
    ended[i++].setValue(static_cast<double>(times));
  }
  out.setEpisodes(figures.episodes);
  out.setWaiting(figures.waiting);
  out.setQueue(figures.queue);
  out.setFailed(figures.failed);
  out.setKnownReads(figures.known_reads);
  out.setCachedReads(figures.cached_reads);
  if (!figures.pressure) return;
  out.setCpuPressure(figures.pressure->cpu);
  out.setMemoryPressure(figures.pressure->memory);
  out.setIoPressure(figures.pressure->io);
}

Result<ServerFigures> read(wire::Figures::Reader in) {
  ServerFigures figures;
  FleetFigures& fleet = figures.fleet;
  fleet.uptime_seconds = TRY(number(in.getUptimeSeconds(), "uptimeSeconds", 0, kLongestTime));
  fleet.warm = in.getWarm();
  fleet.leased = in.getLeased();
  fleet.calling = in.getCalling();
  fleet.grading = in.getGrading();
  fleet.draining = in.getDraining();
  fleet.made = in.getMade();
  fleet.not_made = in.getNotMade();
  fleet.taken_warm = in.getTakenWarm();
  fleet.made_on_demand = in.getMadeOnDemand();
  fleet.calls = in.getCalls();
  fleet.execs = in.getExecs();
  fleet.spawns_per_second = TRY(number(in.getSpawnsPerSecond(), "spawnsPerSecond", 0, kLongestTime));
  fleet.spawn_p50_ms = TRY(number(in.getSpawnP50Ms(), "spawnP50Ms", 0, kLongestTime));
  fleet.spawn_p99_ms = TRY(number(in.getSpawnP99Ms(), "spawnP99Ms", 0, kLongestTime));
  if (in.getEnded().size() > kEndReasons) return fail(wrong("ended", "has more reasons than there are"));
  for (const auto term : in.getEnded()) {
    const auto why = TRY((named<EndReason, kEndReasons>(TRY(text(term.getName(), "ended")), "ended")));
    fleet.ended[why] = static_cast<uint64_t>(TRY(number(term.getValue(), "ended", 0, 1e15)));
  }
  figures.episodes = in.getEpisodes();
  figures.waiting = in.getWaiting();
  figures.queue = in.getQueue();
  figures.failed = in.getFailed();
  figures.known_reads = in.getKnownReads();
  figures.cached_reads = in.getCachedReads();
  if (in.getCpuPressure() >= 0) {
    Pressure& pressure = figures.pressure.emplace();
    pressure.cpu = TRY(number(in.getCpuPressure(), "cpuPressure", 0, 1));
    pressure.memory = TRY(number(in.getMemoryPressure(), "memoryPressure", 0, 1));
    pressure.io = TRY(number(in.getIoPressure(), "ioPressure", 0, 1));
  }
  return figures;
}

Result<ExecQuery> read(wire::ExecQuery::Reader in) {
  ExecQuery query{.sandbox = TRY(sandbox(in.getSandbox())), .request = {}};
  const auto argv = in.getArgv();
  TRY(count(argv.size(), "argv", kMostExecWords));
  size_t bytes = 0;
  for (const auto word : argv) {
    query.request.argv.push_back(TRY(text(word, "argv", kMostExecBytes)));
    if (query.request.argv.back().find('\0') != std::string::npos)
      return fail(wrong("argv", "has a zero byte in a word"));
    bytes += word.size();
  }
  if (bytes > kMostExecBytes)
    return fail(wrong("argv", fmt::format("has {} bytes; at most {} are taken", bytes, kMostExecBytes)));
  if (query.request.argv[0].empty()) return fail(wrong("argv", "names no program"));
  query.request.seconds = TRY(number(in.getSeconds(), "seconds", 0.01, kLongestExec));
  query.request.output_limit = TRY(count(in.getOutputBytes(), "outputBytes", kMostExecOutput));
  return query;
}

}  // namespace

void write_query(const FleetQuery& query, wire::FleetQuery::Builder out) {
  if (const auto* rows = std::get_if<RowsQuery>(&query)) {
    auto in = out.initRows();
    in.setAfter(rows->after);
    in.setMost(rows->most);
  } else if (const auto* events = std::get_if<EventsQuery>(&query)) {
    auto in = out.initEvents();
    in.setSandbox(events->sandbox);
    in.setAfter(events->after);
    in.setMost(events->most);
    in.setLast(events->last);
  } else if (const auto* exec = std::get_if<ExecQuery>(&query)) {
    auto in = out.initExec();
    in.setSandbox(exec->sandbox);
    auto argv = in.initArgv(static_cast<unsigned>(exec->request.argv.size()));
    for (unsigned i = 0; i < argv.size(); ++i) argv.set(i, exec->request.argv[i]);
    in.setSeconds(exec->request.seconds);
    in.setOutputBytes(static_cast<uint32_t>(exec->request.output_limit));
  } else if (const auto* kill = std::get_if<KillQuery>(&query)) {
    out.setKill(kill->sandbox);
  } else {
    out.setFigures();
  }
}

Result<FleetQuery> read_query(wire::FleetQuery::Reader in) {
  switch (in.which()) {
    case wire::FleetQuery::ROWS: {
      const auto rows = in.getRows();
      const auto most = TRY(count(rows.getMost(), "most", kMostRows));
      return FleetQuery(RowsQuery{.after = rows.getAfter(), .most = most});
    }
    case wire::FleetQuery::EVENTS: {
      const auto events = in.getEvents();
      EventsQuery query;
      if (events.getSandbox().size() > 0) query.sandbox = TRY(sandbox(events.getSandbox()));
      query.after = events.getAfter();
      query.most = TRY(count(events.getMost(), "most", kMostPageEvents));
      query.last = events.getLast();
      return FleetQuery(std::move(query));
    }
    case wire::FleetQuery::FIGURES:
      return FleetQuery(FiguresQuery{});
    case wire::FleetQuery::EXEC:
      return FleetQuery(TRY(read(in.getExec())));
    case wire::FleetQuery::KILL:
      return FleetQuery(KillQuery{TRY(sandbox(in.getKill()))});
  }
  return fail(wrong("query", "is of a kind that this server does not know"));
}

void write_answer(const FleetAnswer& answer, wire::FleetAnswer::Builder out) {
  if (const auto* page = std::get_if<RowsPage>(&answer)) {
    auto in = out.initRows();
    auto rows = in.initRows(static_cast<unsigned>(page->rows.size()));
    for (unsigned i = 0; i < rows.size(); ++i) write(page->rows[i], rows[i]);
    in.setTotal(page->total);
  } else if (const auto* events = std::get_if<Fleet::Events>(&answer)) {
    auto in = out.initEvents();
    auto list = in.initEvents(static_cast<unsigned>(events->events.size()));
    for (unsigned i = 0; i < list.size(); ++i) write(events->events[i], list[i]);
    in.setSeen(events->seen);
    in.setLost(events->lost);
  } else if (const auto* looked = std::get_if<ExecOutcome>(&answer)) {
    const auto bytes = [](const std::string& text) {
      return capnp::Data::Reader(reinterpret_cast<const kj::byte*>(text.data()), text.size());
    };
    auto in = out.initExecAnswer();
    in.setExitCode(looked->exit_code);
    in.setTimedOut(looked->timed_out);
    in.setTruncated(looked->truncated);
    in.setOutput(bytes(looked->output));
    in.setErrors(bytes(looked->errors));
    in.setSeconds(looked->seconds);
  } else if (const auto* killed = std::get_if<Killed>(&answer)) {
    write(killed->before, out.initKilled());
  } else {
    write(std::get<ServerFigures>(answer), out.initFigures());
  }
}

Result<FleetAnswer> read_answer(wire::FleetAnswer::Reader in) {
  switch (in.which()) {
    case wire::FleetAnswer::ROWS: {
      const auto list = in.getRows().getRows();
      if (list.size() > kMostRows) return fail(wrong("rows", "has more rows than were asked for"));
      RowsPage page;
      for (const auto row : list) page.rows.push_back(TRY(read(row)));
      page.total = in.getRows().getTotal();
      return FleetAnswer(std::move(page));
    }
    case wire::FleetAnswer::EVENTS: {
      const auto list = in.getEvents().getEvents();
      if (list.size() > kMostPageEvents) return fail(wrong("events", "has more events than were asked for"));
      Fleet::Events events;
      for (const auto event : list) events.events.push_back(TRY(read(event)));
      events.seen = in.getEvents().getSeen();
      events.lost = in.getEvents().getLost();
      return FleetAnswer(std::move(events));
    }
    case wire::FleetAnswer::FIGURES:
      return FleetAnswer(TRY(read(in.getFigures())));
    case wire::FleetAnswer::EXEC_ANSWER: {
      const auto looked = in.getExecAnswer();
      // The line that marks a cut comes on top.
      constexpr size_t kMost = kMostExecOutput + 1024;
      if (looked.getOutput().size() > kMost || looked.getErrors().size() > kMost)
        return fail(wrong("output", "is longer than was asked for"));
      ExecOutcome outcome;
      outcome.exit_code = looked.getExitCode();
      outcome.timed_out = looked.getTimedOut();
      outcome.truncated = looked.getTruncated();
      outcome.output.assign(looked.getOutput().asChars().begin(), looked.getOutput().size());
      outcome.errors.assign(looked.getErrors().asChars().begin(), looked.getErrors().size());
      outcome.seconds = TRY(number(looked.getSeconds(), "seconds", 0, kLongestTime));
      return FleetAnswer(std::move(outcome));
    }
    case wire::FleetAnswer::KILLED:
      return FleetAnswer(Killed{TRY(read(in.getKilled()))});
  }
  return fail(wrong("answer", "is of a kind that this program does not know"));
}

}  // namespace tandem::envs
