#include "serve/intake.h"

#include <fmt/format.h>

#include "serve/api_error.h"

namespace tandem::serve {

void Intake::take(const Reading& reading, wire::HttpRequest request, std::shared_ptr<const KeyTerms> key,
                  wire::HttpReply reply) {
  Around around{.priority = std::string(request.header("x-tandem-priority")),
                .session = std::string(request.header("x-tandem-session")),
                .key = std::move(key),
                .id = fmt::format("{:016x}{:08x}", run_, ++requests_),
                .stored = &stored_};
  read(std::make_shared<const Asked>(Asked{.reading = reading,
                                           .number = request.number,
                                           .body = std::move(request.body),
                                           .around = std::move(around),
                                           .trace = std::string(request.header("traceparent")),
                                           .arrived = clock_.now(),
                                           .reply = std::move(reply)}),
       Version::kByShare);
}

void Intake::read(std::shared_ptr<const Asked> asked, Version version, std::shared_ptr<Lane> failed) {
  reading_.insert(asked->number);
  const bool taken = queue_.submit([this, asked, version, failed]() -> WorkQueue::Completion {
    auto read = std::make_shared<ReadRequest>(read_request(models_, asked->reading.endpoint, asked->reading.table,
                                                           asked->body, asked->around, version, clock_.unix_seconds()));
    return [this, asked, read, failed] {
      if (reading_.erase(asked->number) > 0) return submit(asked, std::move(*read), failed);
      asked->reply(error_response(503, "the client has gone"));
    };
  });
  if (taken) return;
  reading_.erase(asked->number);
  auto full = error_response(429, "too many requests wait to be read; try again later");
  full.headers.emplace_back("Retry-After", "1");
  asked->reply(std::move(full));
}

void Intake::submit(const std::shared_ptr<const Asked>& asked, ReadRequest read, const std::shared_ptr<Lane>& failed) {
  if (read.refused && read.candidate) return this->read(asked, Version::kCurrent, read.lane);
  if (read.refused) return asked->reply(std::move(*read.refused));
  if (failed) failed->note_error();
  auto& generation = read.prepared.generation;
  const KeyTerms& key = *asked->around.key;
  auto names = read.lane->settings().names;
  if (!read.adapter.empty()) names.push_back(read.adapter);
  RuleSubject subject{.key = key.name, .session = read.session, .models = names, .priority = generation.priority};
  if (auto refusal = access_.refuse(subject)) return asked->reply(std::move(*refusal));
  generation.priority = access_.priority_of(subject);
  promotions_.note_request(asked->around.id, key.name, read.lane);
  std::function<void()> elsewhere;
  std::function<Status(std::unique_ptr<Lane::Exchange>&)> go_on;
  if (read.candidate) {
    elsewhere = [this, asked] { this->read(asked, Version::kCurrent); };
    // The lane that has the request holds this.
    go_on = [this, asked, name = names.front(), lane = std::weak_ptr(read.lane)](auto& stream) -> Status {
      const auto served = models_.choose(name, "", Version::kCurrent).lane;
      TRY(served->take_over(stream, lane.lock()));
      promotions_.note_request(asked->around.id, asked->around.key->name, served);
      return {};
    };
  }
  const Begun begun{
      .model = names.front(), .adapter = read.adapter, .priority = generation.priority, .read = clock_.now()};
  const auto spent = [this, asked, begun](const Lane::Spent& spent) { note(*asked, begun, spent); };
  read.lane->submit({.number = asked->number,
                     .id = asked->around.id,
                     .key = key.name,
                     .session = read.session,
                     .adapter = read.adapter,
                     .arrived = asked->arrived,
                     .prepared = std::move(read.prepared),
                     .reply = asked->reply,
                     .elsewhere = std::move(elsewhere),
                     .go_on = std::move(go_on),
                     .spent = spent});
  if (read.copied) copy(asked);
}

// What was lost with a candidate costs nobody anything but its line.
void Intake::note(const Asked& asked, const Begun& begun, const Lane::Spent& spent) {
  if (!begun.adapter.empty() && spent.outcome != "elsewhere")
    adapters_.note_request(begun.adapter, spent.answer_tokens);
  if (spent.outcome != "elsewhere") access_.charge(*asked.around.key, spent.prompt_tokens + spent.answer_tokens);
  access_.log({.time = clock_.unix_seconds(),
               .id = asked.around.id,
               .key = asked.around.key->name,
               .model = begun.model,
               .adapter = begun.adapter,
               .path = std::string(asked.reading.endpoint.path),
               .priority = std::string(name_of(begun.priority)),
               .outcome = std::string(spent.outcome),
               .prompt_tokens = spent.prompt_tokens,
               .cached_tokens = spent.cached_tokens,
               .answer_tokens = spent.answer_tokens,
               .seconds = spent.seconds,
               .core_seconds = spent.compute_seconds * threads_,
               .taken_over_tokens = spent.taken_over_tokens});
  if (traces_.wanted(from_seconds(spent.seconds))) trace(asked, begun, spent);
}

void Intake::trace(const Asked& asked, const Begun& begun, const Lane::Spent& spent) {
  const Time now = clock_.now();
  RequestTrace trace{.id = asked.around.id,
                     .path = std::string(asked.reading.endpoint.path),
                     .parent = asked.trace,
                     .start = asked.arrived,
                     .end = now,
                     .facts = {{"key", asked.around.key->name},
                               {"model", begun.adapter.empty() ? begun.model : begun.adapter},
                               {"priority", name_of(begun.priority)},
                               {"outcome", spent.outcome},
                               {"prompt_tokens", spent.prompt_tokens},
                               {"cached_tokens", spent.cached_tokens},
                               {"answer_tokens", spent.answer_tokens},
                               {"compute_seconds", spent.compute_seconds}}};
  trace.spans.push_back({.name = "read", .start = asked.arrived, .end = begun.read});
  int row = 0;
  for (const auto& answer : spent.answers) {
    const auto begins = [&](std::string name, Time start, Time end, Json facts = Json::object()) {
      trace.spans.push_back({std::move(name), start, end == Time{} ? now : end, row, std::move(facts)});
    };
    begins("queue", begun.read, answer.started);
    if (answer.started != Time{}) begins("prefill", answer.started, answer.first_token);
    if (answer.first_token != Time{}) {
      begins("decode", answer.first_token, answer.last_token,
             {{"tokens", answer.tokens}, {"text_seconds", to_seconds(answer.text)}});
    }
    ++row;
  }
  traces_.add(std::move(trace));
}

// Where there is no time to read it, there is none for a copy either.
void Intake::copy(std::shared_ptr<const Asked> asked) {
  queue_.submit([this, asked]() -> WorkQueue::Completion {
    Around around = asked->around;
    around.keeps = false;  // the answer that is seen is kept under this id
    auto read =
        std::make_shared<ReadRequest>(read_request(models_, asked->reading.endpoint, asked->reading.table, asked->body,
                                                   around, Version::kCandidate, clock_.unix_seconds()));
    return [asked, read] {
      if (!read->lane) return;  // the trial has ended
      if (read->refused) return read->lane->note_error();
      // Nobody waits for it, and it makes nobody wait.
      read->prepared.stream = false;
      read->prepared.generation.priority = Priority::kBatch;
      read->lane->submit({.number = asked->number,
                          .id = asked->around.id,
                          .key = asked->around.key->name,
                          .session = read->session,
                          .adapter = read->adapter,
                          .arrived = asked->arrived,
                          .prepared = std::move(read->prepared),
                          .reply = [](const wire::HttpResponse&) {}});
    };
  });
}

}  // namespace tandem::serve
