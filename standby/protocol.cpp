#include "standby/protocol.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/overloaded.h"

namespace tandem::standby {
namespace {

// A directory's own, and never another's.
constexpr std::array<std::string_view, 4> kOwn = {"identity.json", "lock.json", "standby.json", "standby.lock"};

Status no_path(std::string_view path) {
  return Status::invalid(fmt::format("\"{}\" is no path of a run's copy", path.substr(0, 200)));
}

Result<Survey> read_survey(capnp::List<capnp::Text>::Reader in) {
  if (in.size() > kMostPaths)
    return fail(Status::invalid(fmt::format("{} paths are asked for, and {} may be", in.size(), kMostPaths)));
  Survey survey;
  for (const auto path : in) {
    survey.paths.emplace_back(path);
    TRY(check_path(survey.paths.back()));
  }
  return survey;
}

Result<uint64_t> bytes_with(const wire::Incoming& message) {
  if (message.bulk_count() != 1 || message.bulk(0).size() > kPartBytes)
    return fail(Status::invalid("a part of a file has one frame of bytes, of 1 MiB at most"));
  return message.bulk(0).size();
}

void write_part(const std::string& path, uint64_t offset, uint64_t total, Digest digest, bool is_executable,
                wire::CopyPart::Builder out) {
  out.setPath(path);
  out.setOffset(offset);
  out.setTotal(total);
  out.setDigestLow(digest.low);
  out.setDigestHigh(digest.high);
  out.setExecutable(is_executable);
}

Digest digest_in(wire::CopyPart::Reader in) { return {.low = in.getDigestLow(), .high = in.getDigestHigh()}; }

}  // namespace

Status check_path(std::string_view path) {
  const fs::path given(path);
  const bool leads_out = path.empty() || path.find('\0') != std::string_view::npos || given.is_absolute() ||
                         given.lexically_normal().native() != path || *given.begin() == ".." || given == "." ||
                         !given.has_filename();
  if (leads_out || std::find(kOwn.begin(), kOwn.end(), path) != kOwn.end()) return no_path(path);
  return {};
}

bool is_at_or_below(std::string_view path, std::string_view folder) {
  return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

Status check_link(const Link& link) {
  TRY(check_path(link.path));
  const fs::path target(link.target);
  const fs::path to = (fs::path(link.path).parent_path() / target).lexically_normal();
  if (target.empty() || target.is_absolute() || to.empty() || *to.begin() == "..") return no_path(link.target);
  return {};
}

bool has_bytes(const Op& op) { return std::holds_alternative<Extend>(op) || std::holds_alternative<Put>(op); }

void write_request(const Request& request, std::span<const std::byte> bytes, wire::CopyRequest::Builder out) {
  out.setEpoch(request.epoch);
  out.setLife(request.life);
  out.setNumber(request.number);
  out.setRun(request.run);
  std::visit(Overloaded{[&](const Survey& survey) {
                          auto to = out.initSurvey(static_cast<unsigned>(survey.paths.size()));
                          for (unsigned i = 0; i < to.size(); ++i) to.set(i, survey.paths[i]);
                        },
                        [&](const Extend& extend) {
                          write_part(extend.path, extend.offset, 0, digest_of(bytes), false, out.initExtend());
                        },
                        [&](const Put& put) {
                          write_part(put.path, put.offset, put.total, put.digest, put.is_executable, out.initPut());
                        },
                        [&](const Link& link) {
                          auto to = out.initLink();
                          to.setPath(link.path);
                          to.setTarget(link.target);
                        },
                        [&](const Remove& remove) { out.setRemove(remove.path); },
                        [&](const SetWhole& state) { out.initState().setWhole(state.whole); }},
             request.op);
}

Result<Request> read_request(const wire::Incoming& message) {
  const auto in = message.body().getCopyRequest();
  Request request{.epoch = std::max<uint64_t>(in.getEpoch(), 1),
                  .life = in.getLife(),
                  .number = in.getNumber(),
                  .run = in.getRun(),
                  .op = {}};
  switch (in.which()) {
    case wire::CopyRequest::SURVEY:
      request.op = TRY(read_survey(in.getSurvey()));
      return request;
    case wire::CopyRequest::EXTEND: {
      const auto part = in.getExtend();
      const auto bytes = TRY(bytes_with(message));  // a return from within the braces would leak the members before it
      Extend extend{.path = part.getPath(), .offset = part.getOffset(), .bytes = bytes};
      TRY(check_path(extend.path));
      if (digest_of(message.bulk(0)) != digest_in(part))
        return fail(Status::corrupt("a part of a file was damaged on its way"));
      request.op = std::move(extend);
      return request;
    }
    case wire::CopyRequest::PUT: {
      const auto part = in.getPut();
      const auto bytes = TRY(bytes_with(message));
      Put put{.path = part.getPath(),
              .offset = part.getOffset(),
              .bytes = bytes,
              .total = part.getTotal(),
              .digest = digest_in(part),
              .is_executable = part.getExecutable()};
      TRY(check_path(put.path));
      if (put.offset > put.total || put.bytes > put.total - put.offset)
        return fail(Status::invalid("a part of a file goes beyond its end"));
      request.op = std::move(put);
      return request;
    }
    case wire::CopyRequest::LINK: {
      Link link{.path = in.getLink().getPath(), .target = in.getLink().getTarget()};
      TRY(check_link(link));
      request.op = std::move(link);
      return request;
    }
    case wire::CopyRequest::REMOVE: {
      Remove remove{.path = in.getRemove()};
      TRY(check_path(remove.path));
      request.op = std::move(remove);
      return request;
    }
    case wire::CopyRequest::STATE:
      request.op = SetWhole{in.getState().getWhole()};
      return request;
  }
  return fail(Status::invalid("a standby was asked for what it does not know"));
}

void write_answer(const Answer& answer, wire::CopyAnswer::Builder out) {
  out.setLife(answer.life);
  out.setNumber(answer.number);
  std::visit(Overloaded{[&](const Done&) { out.setDone(); },
                        [&](const Surveyed& surveyed) {
                          auto to = out.initSurveyed();
                          to.setFolder(surveyed.folder);
                          auto files = to.initFiles(static_cast<unsigned>(surveyed.files.size()));
                          for (unsigned i = 0; i < files.size(); ++i) {
                            const FoundFile& file = surveyed.files[i];
                            files[i].setPath(file.path);
                            files[i].setBytes(file.bytes);
                            files[i].setDigestLow(file.digest.low);
                            files[i].setDigestHigh(file.digest.high);
                            files[i].setLink(file.link);
                          }
                        },
                        [&](const Unknown&) { out.setUnknown(); },
                        [&](const Refused& refused) {
                          auto to = out.initRefused();
                          to.setCode(std::string(to_string(refused.why.code())));
                          to.setMessage(refused.why.to_string());
                        },
                        [&](const Fenced& fenced) {
                          auto to = out.initFenced();
                          to.setEpoch(fenced.epoch);
                          to.setHolder(fenced.holder);
                        }},
             answer.what);
}

Answer read_answer(wire::CopyAnswer::Reader in) {
  Answer answer{.life = in.getLife(), .number = in.getNumber(), .what = Unknown{}};
  switch (in.which()) {
    case wire::CopyAnswer::DONE:
      answer.what = Done{};
      break;
    case wire::CopyAnswer::SURVEYED: {
      Surveyed surveyed{.folder = in.getSurveyed().getFolder(), .files = {}};
      for (const auto file : in.getSurveyed().getFiles()) {
        surveyed.files.push_back({.path = file.getPath(),
                                  .bytes = file.getBytes(),
                                  .digest = {.low = file.getDigestLow(), .high = file.getDigestHigh()},
                                  .link = file.getLink()});
      }
      answer.what = std::move(surveyed);
      break;
    }
    case wire::CopyAnswer::UNKNOWN:
      break;
    case wire::CopyAnswer::REFUSED:
      answer.what = Refused{wire::read_failure(in.getRefused())};
      break;
    case wire::CopyAnswer::FENCED:
      answer.what = Fenced{.epoch = in.getFenced().getEpoch(), .holder = in.getFenced().getHolder()};
      break;
  }
  return answer;
}

}  // namespace tandem::standby
