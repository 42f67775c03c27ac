#include "standby/keeper.h"

#include <fmt/format.h>

#include "base/overloaded.h"

namespace tandem::standby {
namespace {

constexpr size_t kMostWaiting = 512;  // messages of at most a part each

Answer survey_answer(const std::map<std::string, Answer>& surveys, const std::string& stream) {
  const auto found = surveys.find(stream);
  return found == surveys.end() ? Answer{.what = Unknown{}} : found->second;
}

}  // namespace

void Keeper::take(wire::Incoming message) {
  if (waiting_.size() < kMostWaiting) waiting_.push_back(std::move(message));
}

void Keeper::turn(const std::function<void(const Reply&)>& send) {
  work_.run_completions();
  for (const Reply& reply : std::exchange(done_, {})) send(reply);
  if (is_working_ || waiting_.empty()) return;
  is_working_ = true;
  const auto batch = std::make_shared<Batch>(Batch{std::exchange(waiting_, {})});
  work_.submit([this, batch]() -> WorkQueue::Completion {
    const auto replies = std::make_shared<std::vector<Reply>>(carry_out(*batch));
    return [this, batch, replies] {
      is_working_ = false;
      std::move(replies->begin(), replies->end(), std::back_inserter(done_));
    };
  });
}

std::vector<Keeper::Reply> Keeper::carry_out(const Batch& batch) {
  std::map<uint64_t, std::vector<const wire::Incoming*>> by_run;
  for (const wire::Incoming& message : batch.requests) by_run[message.run()].push_back(&message);
  std::vector<Reply> replies;
  for (const auto& [run, requests] : by_run) carry_out_of(run, requests, replies);
  return replies;
}

// The folder of a run's copy, made by its first survey.
Status Keeper::open(uint64_t run, const Request& request) {
  if (runs_.contains(run)) return {};
  const fs::path folder = settings_.folder / fmt::format("{:016x}", run);
  std::error_code error;
  if (!fs::exists(folder / "standby.json", error)) {
    TRY(make_directories(folder));
    TRY(write_record_of(folder, {.run = run,
                                 .name = request.run,
                                 .epoch = request.epoch,
                                 .holder = {},
                                 .host = settings_.host,
                                 .key = settings_.key,
                                 .behind = {}}));
    if (settings_.say) settings_.say(fmt::format("keeps a copy of run {} in {}", request.run, folder.string()));
  }
  runs_[run] = std::make_unique<OfRun>(OfRun{Copy(fs::absolute(folder)), {}, {}});
  return {};
}

void Keeper::carry_out_of(uint64_t run, const std::vector<const wire::Incoming*>& requests,
                          std::vector<Reply>& replies) {
  // The last word to each stream, once all is on disk.
  std::map<std::string, Reply> last;
  const auto say = [&](const wire::Incoming& message, Answer answer) {
    last[message.sender()] = {.to = message.sender(), .id = message.id(), .run = run, .answer = std::move(answer)};
  };
  std::optional<RecordLock> lock;
  Record record;
  OfRun* kept = nullptr;
  for (const wire::Incoming* const message : requests) {
    const std::string& stream = message->sender();
    const auto in = message->body().getCopyRequest();
    const auto refuse = [&](Status why) {
      say(*message, {.life = in.getLife(), .number = 0, .what = Refused{std::move(why)}});
    };
    const auto request = read_request(*message);
    if (!request) {
      refuse(request.error());
      continue;
    }
    if (kept == nullptr) {
      Status opened = open(run, *request);
      if (opened.ok()) {
        kept = runs_.at(run).get();
        auto taken = RecordLock::take(kept->copy.folder());
        auto read = taken ? read_record_of(kept->copy.folder()) : Result<Record>(fail(taken.error()));
        opened = read ? Status() : read.error();
        if (read) lock = std::move(*taken), record = std::move(*read);
      }
      if (!opened.ok()) {
        kept = nullptr;
        runs_.erase(run);  // it may have been removed: the next one makes it anew
        refuse(opened);
        continue;
      }
    }
    if (request->epoch < record.epoch) {
      say(*message, {.life = request->life, .what = Fenced{.epoch = record.epoch, .holder = record.holder}});
      continue;
    }
    if (record.is_taken) {
      refuse(Status::exists(fmt::format("the run itself went on in {}", kept->copy.folder().string()))
                 .hint("choose another host, or remove that folder"));
      continue;
    }
    if (request->epoch > record.epoch) {
      record.epoch = request->epoch;
      if (Status written = write_record_of(kept->copy.folder(), record); !written.ok()) {
        refuse(written);
        continue;
      }
    }
    const bool is_survey = std::holds_alternative<Survey>(request->op);
    switch (kept->streams.judge(stream, request->life, request->number, is_survey)) {
      case Streams::Verdict::kDrop:
        continue;
      case Streams::Verdict::kUnknown:
        say(*message, {.life = request->life, .what = Unknown{}});
        continue;
      case Streams::Verdict::kSurvey:
        say(*message, survey_answer(kept->last_survey, stream));
        continue;
      case Streams::Verdict::kAgain:
        say(*message, {.life = request->life, .number = kept->streams.done(stream), .what = Done{}});
        continue;
      case Streams::Verdict::kApply:
        break;
    }
    const Status applied = apply(*kept, record, stream, *request, *message);
    if (!applied.ok()) {
      kept->streams.failed(stream);
      if (applied.code() == Code::kInvalid || applied.code() == Code::kCorrupt)
        say(*message, {.life = request->life, .what = Unknown{}});  // another survey finds out
      else
        refuse(applied);
      continue;
    }
    kept->streams.applied(stream);
    if (is_survey)
      say(*message, kept->last_survey.at(stream));
    else
      say(*message, {.life = request->life, .number = request->number, .what = Done{}});
  }
  if (kept != nullptr) {
    if (const Status synced = kept->copy.sync(); !synced.ok()) {
      for (auto& [stream, reply] : last) {
        kept->streams.failed(stream);
        reply.answer = {.life = reply.answer.life, .what = Refused{synced}};
      }
    }
  }
  for (auto& [stream, reply] : last) replies.push_back(std::move(reply));
}

Status Keeper::apply(OfRun& kept, Record& record, const std::string& stream, const Request& request,
                     const wire::Incoming& message) {
  Copy& copy = kept.copy;
  return std::visit(
      Overloaded{
          [&](const Survey& survey) -> Status {
            auto files = TRY(copy.survey(survey.paths));
            Surveyed surveyed{.folder = copy.folder().string(), .files = std::move(files)};
            kept.last_survey[stream] = {.life = request.life, .number = 1, .what = std::move(surveyed)};
            return {};
          },
          [&](const Extend& extend) { return copy.extend(extend, message.bulk(0)); },
          [&](const Put& put) { return copy.put(put, message.bulk(0)); },
          [&](const Link& link) { return copy.link(link); }, [&](const Remove& remove) { return copy.remove(remove); },
          [&](const SetWhole& state) -> Status {
            const bool changes = state.whole ? record.behind.erase(stream) > 0 : record.behind.insert(stream).second;
            return changes ? write_record_of(copy.folder(), record) : Status();
          }},
      request.op);
}

}  // namespace tandem::standby
