#include "hosts/protocol.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/overloaded.h"

namespace tandem::hosts {
namespace {

void write_chunk(const Chunk& chunk, wire::HostChunk::Builder out) {
  out.setDigestLow(chunk.digest.low);
  out.setDigestHigh(chunk.digest.high);
  out.setOffset(chunk.offset);
}

Chunk read_chunk(wire::HostChunk::Reader in) {
  return {.digest = {.low = in.getDigestLow(), .high = in.getDigestHigh()}, .offset = in.getOffset()};
}

capnp::Data::Reader data_of(std::string_view bytes) {
  return {reinterpret_cast<const capnp::byte*>(bytes.data()), bytes.size()};
}

std::string text_of(capnp::Data::Reader data) { return {reinterpret_cast<const char*>(data.begin()), data.size()}; }

Status too_many(std::string_view what, size_t count, size_t most) {
  return Status::invalid(fmt::format("a host takes {} {} at most, and {} were named", most, what, count));
}

Result<Offer> read_offer(capnp::List<wire::HostFile>::Reader in) {
  if (in.size() > kMostFiles) return fail(too_many("files", in.size(), kMostFiles));
  Offer offer;
  for (const auto file : in) {
    offer.files.push_back({.path = file.getPath(),
                           .digest = {.low = file.getDigestLow(), .high = file.getDigestHigh()},
                           .bytes = file.getBytes(),
                           .is_executable = file.getExecutable(),
                           .link = file.getLink()});
    TRY(check_home_path(offer.files.back().path));
  }
  return offer;
}

Result<Settle> read_settle(capnp::List<wire::HostText>::Reader in) {
  Settle settle;
  size_t bytes = 0;
  for (const auto text : in) {
    bytes += text.getContent().size();
    if (bytes > kMostTextBytes) return fail(too_many("bytes of small files", bytes, kMostTextBytes));
    settle.texts.push_back({.path = text.getPath(), .content = text_of(text.getContent())});
    TRY(check_home_path(settle.texts.back().path));
  }
  return settle;
}

Result<Beat> read_beat(wire::HostBeat::Reader in) {
  Beat beat{.number = in.getNumber(), .jobs = {}};
  const auto jobs = in.getJobs();
  if (jobs.size() > kMostJobs) return fail(too_many("processes", jobs.size(), kMostJobs));
  for (const auto job : jobs) {
    HostJob read{.number = job.getNumber(), .arguments = {}, .log = job.getLog(), .log_offset = job.getLogOffset()};
    if (job.getEnd() > static_cast<uint8_t>(JobEnd::kNow))
      return fail(Status::invalid(fmt::format("there is no way {} to end a process", job.getEnd())));
    read.end = static_cast<JobEnd>(job.getEnd());
    for (const auto argument : job.getArguments()) read.arguments.emplace_back(argument);
    TRY(check_home_path(read.log));
    beat.jobs.push_back(std::move(read));
  }
  return beat;
}

void write_files(const std::vector<HomeFile>& files, capnp::List<wire::HostFile>::Builder out) {
  for (unsigned i = 0; i < files.size(); ++i) {
    out[i].setPath(files[i].path);
    out[i].setDigestLow(files[i].digest.low);
    out[i].setDigestHigh(files[i].digest.high);
    out[i].setBytes(files[i].bytes);
    out[i].setExecutable(files[i].is_executable);
    out[i].setLink(files[i].link);
  }
}

void write_beat(const Beat& beat, wire::HostBeat::Builder out) {
  out.setNumber(beat.number);
  auto jobs = out.initJobs(static_cast<unsigned>(beat.jobs.size()));
  for (unsigned i = 0; i < jobs.size(); ++i) {
    const HostJob& job = beat.jobs[i];
    jobs[i].setNumber(job.number);
    jobs[i].setLog(job.log);
    jobs[i].setEnd(static_cast<uint8_t>(job.end));
    jobs[i].setLogOffset(job.log_offset);
    auto arguments = jobs[i].initArguments(static_cast<unsigned>(job.arguments.size()));
    for (unsigned a = 0; a < arguments.size(); ++a) arguments.set(a, job.arguments[a]);
  }
}

void write_state(const HostState& state, wire::HostState::Builder out) {
  out.setBeat(state.beat);
  out.setKnown(state.is_known);
  out.setDraining(state.is_draining);
  auto processes = out.initProcesses(static_cast<unsigned>(state.processes.size()));
  for (unsigned i = 0; i < processes.size(); ++i) {
    const HostProcess& process = state.processes[i];
    processes[i].setNumber(process.number);
    processes[i].setPid(process.pid);
    processes[i].setRunning(process.is_running);
    processes[i].setCode(process.code);
    processes[i].setSignal(process.signal);
    processes[i].setLogOffset(process.log_offset);
    processes[i].setLog(data_of(process.log));
    processes[i].setLogComplete(process.is_log_complete);
    processes[i].setFailure(process.failure);
  }
}

HostState read_state(wire::HostState::Reader in) {
  HostState state{.beat = in.getBeat(), .is_known = in.getKnown(), .is_draining = in.getDraining(), .processes = {}};
  for (const auto process : in.getProcesses()) {
    state.processes.push_back({.number = process.getNumber(),
                               .pid = process.getPid(),
                               .is_running = process.getRunning(),
                               .code = process.getCode(),
                               .signal = process.getSignal(),
                               .log_offset = process.getLogOffset(),
                               .log = text_of(process.getLog()),
                               .is_log_complete = process.getLogComplete(),
                               .failure = process.getFailure()});
  }
  return state;
}

}  // namespace

void write_request(uint64_t session, const Request& request, wire::HostRequest::Builder out) {
  out.setSession(session);
  std::visit(
      Overloaded{[&](const Open& open) {
                   auto to = out.initOpen();
                   to.setVersion(open.version);
                   to.setWeights(open.weights);
                   to.setRun(open.run);
                   to.setEpoch(open.epoch);
                   to.setHolder(open.holder);
                 },
                 [&](const Offer& offer) {
                   write_files(offer.files, out.initOffer(static_cast<unsigned>(offer.files.size())));
                 },
                 [&](const SendChunk& send) { write_chunk(send.chunk, out.initChunk()); },
                 [&](const Settle& settle) {
                   auto to = out.initSettle(static_cast<unsigned>(settle.texts.size()));
                   for (unsigned i = 0; i < to.size(); ++i) {
                     to[i].setPath(settle.texts[i].path);
                     to[i].setContent(data_of(settle.texts[i].content));
                   }
                 },
                 [&](const Beat& beat) { write_beat(beat, out.initBeat()); }, [&](const Close&) { out.setClose(); },
                 [&](const Join& join) { out.setJoin(join.address); },
                 [&](const Leave& leave) { out.setLeave(leave.host); }, [&](const AskSilence&) { out.setSilence(); }},
      request);
}

Result<Request> read_request(wire::HostRequest::Reader in) {
  switch (in.which()) {
    case wire::HostRequest::OPEN: {
      const auto open = in.getOpen();
      return Open{.version = open.getVersion(),
                  .weights = open.getWeights(),
                  .run = open.getRun(),
                  .epoch = std::max<uint64_t>(open.getEpoch(), 1),
                  .holder = open.getHolder()};
    }
    case wire::HostRequest::OFFER:
      return TRY(read_offer(in.getOffer()));
    case wire::HostRequest::CHUNK:
      return SendChunk{read_chunk(in.getChunk())};
    case wire::HostRequest::SETTLE:
      return TRY(read_settle(in.getSettle()));
    case wire::HostRequest::BEAT:
      return TRY(read_beat(in.getBeat()));
    case wire::HostRequest::CLOSE:
      return Close{};
    case wire::HostRequest::JOIN:
      return Join{in.getJoin()};
    case wire::HostRequest::LEAVE:
      return Leave{in.getLeave()};
    case wire::HostRequest::SILENCE:
      return AskSilence{};
  }
  return fail(Status::invalid("a host was asked for what it does not know"));
}

void write_answer(uint64_t session, const Answer& answer, wire::HostAnswer::Builder out) {
  out.setSession(session);
  std::visit(Overloaded{[&](const Opened& opened) {
                          auto to = out.initOpened();
                          to.setVersion(opened.version);
                          to.setNumericsId(opened.numerics_id);
                          to.setHome(opened.home);
                          to.setCores(opened.cores);
                          to.setMemoryBytes(opened.memory_bytes);
                        },
                        [&](const Missing& missing) {
                          auto to = out.initMissing(static_cast<unsigned>(missing.files.size()));
                          for (unsigned i = 0; i < to.size(); ++i) to.set(i, missing.files[i]);
                        },
                        [&](const Took& took) { write_chunk(took.chunk, out.initTook()); },
                        [&](const Settled&) { out.setSettled(); },
                        [&](const HostState& state) { write_state(state, out.initState()); },
                        [&](const Closed&) { out.setClosed(); },
                        [&](const Refused& refused) {
                          auto to = out.initRefused();
                          to.setCode(std::string(to_string(refused.why.code())));
                          to.setMessage(refused.why.to_string());
                        },
                        [&](const Fenced& fenced) {
                          auto to = out.initFenced();
                          to.setEpoch(fenced.epoch);
                          to.setHolder(fenced.holder);
                        },
                        [&](const Silence& silence) {
                          auto to = out.initSilence();
                          to.setSeconds(silence.seconds);
                          to.setOver(silence.is_over);
                        }},
             answer);
}

Result<Answer> read_answer(wire::HostAnswer::Reader in) {
  switch (in.which()) {
    case wire::HostAnswer::OPENED: {
      const auto opened = in.getOpened();
      return Opened{.version = opened.getVersion(),
                    .numerics_id = opened.getNumericsId(),
                    .home = opened.getHome(),
                    .cores = opened.getCores(),
                    .memory_bytes = opened.getMemoryBytes()};
    }
    case wire::HostAnswer::MISSING: {
      Missing missing;
      for (const uint32_t file : in.getMissing()) missing.files.push_back(file);
      return missing;
    }
    case wire::HostAnswer::TOOK:
      return Took{read_chunk(in.getTook())};
    case wire::HostAnswer::SETTLED:
      return Settled{};
    case wire::HostAnswer::STATE:
      return read_state(in.getState());
    case wire::HostAnswer::CLOSED:
      return Closed{};
    case wire::HostAnswer::REFUSED:
      return Refused{wire::read_failure(in.getRefused())};
    case wire::HostAnswer::FENCED:
      return Fenced{.epoch = in.getFenced().getEpoch(), .holder = in.getFenced().getHolder()};
    case wire::HostAnswer::SILENCE: {
      const double seconds = in.getSilence().getSeconds();
      if (!std::isfinite(seconds) || seconds < 0) return fail(Status::invalid("a host heard a run in no time"));
      return Silence{.seconds = seconds, .is_over = in.getSilence().getOver()};
    }
  }
  return fail(Status::invalid("a host answered what this version does not know"));
}

Status check_home_path(std::string_view path) {
  const fs::path given(path);
  const bool leads_out = path.empty() || path.find('\0') != std::string_view::npos || given.is_absolute() ||
                         given.lexically_normal().native() != path || *given.begin() == ".." || given == ".";
  if (!leads_out && given.has_filename()) return {};
  return Status::invalid(fmt::format("\"{}\" is no path below the run's home", path.substr(0, 200)));
}

}  // namespace tandem::hosts
