#include "gateway/exchanges.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <span>

#include "base/overloaded.h"
#include "base/text.h"
#include "serve/api_error.h"
#include "serve/request_reader.h"
#include "wire/header_values.h"

namespace tandem::gateway {

using serve::error_response;
using wire::HttpResponse;

namespace {

constexpr size_t kMostUnsent = size_t{1} << 20;  // bytes of a stream whose client reads slowly

std::string error_event(int status, std::string_view message) {
  return fmt::format("event: error\ndata: {}\n\n", dump_json(serve::error_body(status, message)));
}

constexpr const char* kPreviousField = "previous_response_id";

// An upstream may list thousands.
std::string some_of(const std::vector<std::string>& names) {
  constexpr size_t kMost = 50;
  const std::span<const std::string> all(names);
  const std::string some = join(all.first(std::min(kMost, all.size())), ", ");
  return all.size() > kMost ? fmt::format("{} and {} more", some, all.size() - kMost) : some;
}

}  // namespace

void Exchanges::offer(uint64_t number, const std::shared_ptr<Exchange>& exchange) {
  RequestView& view = exchange->view;
  Arrived arrived{.request = number, .key = exchange->key->name, .tokens = view.tokens};
  const std::string& path = exchange->request.path;
  const bool goes_on = exchange->request.method == "POST";
  if (!goes_on) view.previous = path.substr(kResponses.size());
  if (view.previous) {
    const ResponsePlace* const kept = responses_.find(*view.previous, exchange->key->name);
    const std::string id = view.previous->substr(0, 200);
    if (kept == nullptr && goes_on) {
      return exchange->reply(error_response(
          400, fmt::format("there is no answer \"{}\" any more: send the whole input", id), kPreviousField));
    }
    if (kept == nullptr)
      return exchange->reply(error_response(404, fmt::format("there is no answer \"{}\" any more", id)));
    // Who has it has not this model, and will not: another try would say no more.
    if (goes_on && !view.model.empty() && view.model != kept->model &&
        std::ranges::binary_search(router_.all_models(), view.model) &&
        !std::ranges::binary_search(router_.models(kept->upstream), view.model)) {
      return exchange->reply(error_response(
          400,
          fmt::format("the answer \"{}\" is of \"{}\", and \"{}\" is elsewhere and has it not: send the whole input",
                      id, kept->model, view.model.substr(0, 200)),
          kPreviousField));
    }
    arrived.only = kept->upstream;
    if (view.model.empty()) view.model = kept->model;
  }
  const auto models = router_.all_models();
  if (view.model.empty() && models.size() == 1) view.model = models.front();
  if (view.model.empty() && upstreams_.front().is_ours()) view.model = upstreams_.front().names.front();
  if (!std::ranges::binary_search(models, view.model)) return exchange->reply(unknown(view.model));
  if (auto refusal = serve::refusal_of_model(*exchange->key, view.model)) return exchange->reply(std::move(*refusal));
  const auto asked = serve::priority_of(exchange->request.header("x-tandem-priority"));
  exchange->priority = std::max(asked.value_or(serve::Priority::kInteractive), exchange->key->highest);
  exchange->session = exchange->request.headers.contains("x-tandem-session")
                          ? std::string(exchange->request.header("x-tandem-session"))
                          : view.session;
  const auto names = names_of(view.model);
  const serve::RuleSubject subject{
      .key = exchange->key->name, .session = exchange->session, .models = names, .priority = exchange->priority};
  if (auto refusal = access_.refuse(subject)) return exchange->reply(std::move(*refusal));
  exchange->priority = access_.priority_of(subject);
  arrived.model = view.model;
  arrived.priority = exchange->priority;
  arrived.prefix = view.prefix;
  exchanges_.emplace(number, exchange);
  perform(router_.step(arrived, clock_.now()));
}

void Exchanges::perform(std::vector<RouterAction> actions) {
  for (auto& action : actions) {
    std::visit(Overloaded{[&](const Send& send) { begin(send); }, [&](Refuse& refuse) { this->refuse(refuse); },
                          [&](const Probe& probe) { probes_.begin(probe.upstream); },
                          [&](const Turned& turned) { say(turned); }},
               action);
  }
}

void Exchanges::begin(const Send& send) {
  Exchange& exchange = *exchanges_.at(send.request);
  const UpstreamTerms& terms = upstreams_[send.upstream];
  exchange.upstream = send.upstream;
  exchange.sent = clock_.now();
  exchange.first_byte = Time{};
  exchange.head.reset();
  exchange.body.clear();
  auto transfer = transfer_of(exchange, terms, limits_);
  if (!transfer) {
    exchange.reply(
        error_response(404, fmt::format("the upstream of this model has no {}", exchange.request.path.substr(0, 200))));
    return end(send.request, Gone{send.request}, "error");
  }
  exchange.transfer = transfers_.start(std::move(*transfer));
  by_transfer_.emplace(exchange.transfer, send.request);
}

void Exchanges::refuse(const Refuse& refuse) {
  const auto found = exchanges_.find(refuse.request);
  if (found == exchanges_.end()) return;
  auto response = error_response(refuse.status, refuse.why);
  if (refuse.retry_after)
    response.headers.emplace_back(
        "Retry-After", fmt::format("{}", std::chrono::ceil<std::chrono::seconds>(*refuse.retry_after).count()));
  found->second->reply(std::move(response));
  note(*found->second, "error");
  exchanges_.erase(found);
}

void Exchanges::say(const Turned& turned) const {
  const std::string& name = upstreams_[turned.upstream].name;
  if (turned.open) {
    spdlog::info("the upstream {} answers: it has {}", name, some_of(router_.models(turned.upstream)));
  } else {
    const Health& health = router_.health(turned.upstream);
    const Time now = clock_.now();
    spdlog::warn("the upstream {} gets no requests: {}; it is asked again in {:.1f} s", name,
                 name_of(turned.failure.value_or(Failure::kFaulty)), to_seconds(health.opens_at(1, now) - now));
  }
}

void Exchanges::take_events() {
  for (wire::TransferEvent& event : transfers_.take_events()) {
    std::optional<Probed> probed;
    if (probes_.take(event, probed)) {
      if (probed) perform(router_.step(*probed, clock_.now()));
      continue;
    }
    const auto found = by_transfer_.find(event.transfer);
    if (found != by_transfer_.end()) take_answer(found->second, event);
  }
}

void Exchanges::take_answer(uint64_t number, wire::TransferEvent& event) {
  Exchange& exchange = *exchanges_.at(number);
  if (event.head) {
    exchange.head = std::move(event.head);
    exchange.first_byte = clock_.now();
    ++begun_;
    begun_seconds_ += to_seconds(exchange.first_byte - exchange.arrived);
    if (upstreams_[exchange.upstream].is_ours() || !failure_of(*exchange.head)) {
      perform(router_.step(Answering{.request = number, .rate = rate_of(exchange)}, clock_.now()));
    }
  }
  if (!event.bytes.empty()) {
    if (exchange.head && is_stream(*exchange.head)) {
      pass_on(exchange, event.bytes);
    } else {
      exchange.body += event.bytes;
    }
  }
  if (event.ended) end_answer(number, exchange, event);
}

void Exchanges::pass_on(Exchange& exchange, std::string_view bytes) {
  if (!exchange.stream) {
    exchange.stream = std::make_shared<wire::HttpStream>();
    exchange.reply({.status = exchange.head->status,
                    .headers = passed_headers(*exchange.head, upstreams_[exchange.upstream]),
                    .stream = exchange.stream});
  }
  exchange.scan.feed(bytes);
  exchange.stream->write(bytes);
  look_after(exchange);
}

// A client that reads slowly slows its upstream down.
void Exchanges::look_after(Exchange& exchange) {
  const bool full = exchange.stream->waiting() > kMostUnsent;
  if (full == exchange.held) return;
  exchange.held = full;
  transfers_.hold(exchange.transfer, full);
}

void Exchanges::pass_whole(Exchange& exchange) {
  if (const auto body = parse_json(exchange.body); body && exchange.head->status == 200) exchange.scan.read(*body);
  HttpResponse response{.status = exchange.head->status,
                        .headers = passed_headers(*exchange.head, upstreams_[exchange.upstream]),
                        .body = std::move(exchange.body)};
  exchange.reply(std::move(response));
}

// Why what has ended is no answer; nothing where it is one.
std::optional<Failure> Exchanges::failure_in(const Exchange& exchange, const wire::TransferEvent& event) const {
  const std::string& name = upstreams_[exchange.upstream].name;
  const bool is_ours = upstreams_[exchange.upstream].is_ours();
  if (event.outcome.ok() && is_ours) {
    // One that says that it cannot sample is about to end, or to be ended.
    return exchange.head->status == 503 ? std::optional(Failure::kFaulty) : std::nullopt;
  }
  if (event.outcome.ok()) {
    auto failure = failure_of(*exchange.head);
    if (!failure && !exchange.stream && lacks_the_model(*exchange.head, exchange.body)) failure = Failure::kMissing;
    if (failure) spdlog::warn("the upstream {} answered {}", name, exchange.head->status);
    return failure;
  }
  spdlog::warn("the upstream {}: {}", name, event.outcome.to_string());
  if (exchange.head) return Failure::kBroken;
  if (!event.connected) return Failure::kUnreachable;
  return event.outcome.code() == Code::kDeadline ? Failure::kSlow : Failure::kFaulty;
}

void Exchanges::end_answer(uint64_t number, Exchange& exchange, const wire::TransferEvent& event) {
  by_transfer_.erase(exchange.transfer);
  exchange.transfer = 0;
  const auto failure = failure_in(exchange, event);
  note_try(exchange, failure ? name_of(*failure) : "answered");
  if (!failure) {
    if (exchange.stream) {
      exchange.stream->end();
    } else {
      pass_whole(exchange);
    }
    return end(number, Answered{number}, "done");
  }
  const bool begun = exchange.stream != nullptr;
  if (begun) {
    const UpstreamTerms& terms = upstreams_[exchange.upstream];
    exchange.stream->write(
        terms.is_ours()
            ? error_event(503, fmt::format("the process of the model \"{}\" ended in the middle of this answer; it is "
                                           "started again, ask again then",
                                           terms.name))
            : error_event(502, "the upstream broke off its answer"));
    exchange.stream->end();
  }
  Failed failed{.request = number, .failure = *failure, .begun = begun};
  if (exchange.head) {
    failed.retry_after = wire::retry_after_of(exchange.head->headers, clock_.unix_seconds());
    failed.rate = rate_of(exchange);
  }
  if (begun) return end(number, failed, "error");
  perform(router_.step(failed, clock_.now()));
}

RateNews Exchanges::rate_of(const Exchange& exchange) const {
  return rate_news_of(exchange.head->headers, clock_.unix_seconds());
}

// The last of an exchange; `event` is what the router is told.
void Exchanges::end(uint64_t number, const RouterEvent& event, std::string_view outcome) {
  const auto found = exchanges_.find(number);
  if (found == exchanges_.end()) return;
  const auto exchange = std::move(found->second);
  exchanges_.erase(found);
  note(*exchange, outcome);
  if (exchange->transfer != 0) {
    transfers_.cancel(exchange->transfer);
    by_transfer_.erase(exchange->transfer);
  }
  perform(router_.step(event, clock_.now()));
}

// The time with one upstream, in two parts where it began to answer.
void Exchanges::note_try(Exchange& exchange, std::string_view outcome) const {
  const Time now = clock_.now();
  const Json facts = {{"upstream", upstreams_[exchange.upstream].name}, {"outcome", outcome}};
  const bool began = exchange.first_byte != Time{};
  exchange.tries.push_back({"first byte", exchange.sent, began ? exchange.first_byte : now, 0, facts});
  if (began) exchange.tries.push_back({"answer", exchange.first_byte, now, 0, facts});
}

void Exchanges::note(Exchange& exchange, std::string_view outcome) {
  const AnswerNotes& notes = exchange.scan.notes();
  if (!notes.response_id.empty()) {
    responses_.add(notes.response_id, {exchange.upstream, exchange.key->name, exchange.view.model});
  }
  const Time now = clock_.now();
  if (traces_.wanted(now - exchange.arrived)) {
    if (exchange.transfer != 0) note_try(exchange, outcome);
    const Time sent = exchange.tries.empty() ? now : exchange.tries.front().start;
    exchange.tries.insert(exchange.tries.begin(), {.name = "queue", .start = exchange.arrived, .end = sent});
    traces_.add({.id = exchange.id,
                 .path = exchange.request.path.starts_with(kResponses) ? "/v1/responses" : exchange.request.path,
                 .parent = std::string(exchange.request.header("traceparent")),
                 .start = exchange.arrived,
                 .end = now,
                 .spans = exchange.tries,
                 .facts = {{"key", exchange.key->name},
                           {"model", exchange.view.model},
                           {"priority", serve::name_of(exchange.priority)},
                           {"outcome", outcome},
                           {"prompt_tokens", notes.prompt_tokens},
                           {"answer_tokens", notes.answer_tokens}}});
  }
  const UpstreamTerms* const ours = upstreams_[exchange.upstream].is_ours() ? owner_of(exchange.view.model) : nullptr;
  const bool adapter = ours != nullptr && std::ranges::find(ours->names, exchange.view.model) == ours->names.end();
  access_.charge(*exchange.key, notes.prompt_tokens + notes.answer_tokens);
  access_.log({.time = clock_.unix_seconds(),
               .id = exchange.id,
               .key = exchange.key->name,
               .model = ours ? ours->names.front() : exchange.view.model,
               .adapter = adapter ? exchange.view.model : "",
               .path = exchange.request.path.starts_with(kResponses) ? "/v1/responses" : exchange.request.path,
               .priority = std::string(serve::name_of(exchange.priority)),
               .outcome = std::string(outcome),
               .upstream = outcome == "done" ? upstreams_[exchange.upstream].name : "",
               .prompt_tokens = notes.prompt_tokens,
               .cached_tokens = notes.cached_tokens,
               .answer_tokens = notes.answer_tokens,
               .seconds = to_seconds(clock_.now() - exchange.arrived)});
}

void Exchanges::tell(const ProcessChange& told) { perform(router_.step(told, clock_.now())); }

void Exchanges::tick() {
  for (auto& [number, exchange] : exchanges_) {
    if (exchange->held) look_after(*exchange);
  }
  perform(router_.step(Tick{}, clock_.now()));
}

void Exchanges::end_those(const serve::Rule& rule, const std::string& message) {
  for (const auto& [number, exchange] : std::map(exchanges_)) {
    const auto names = names_of(exchange->view.model);
    if (!concerns(rule, {.key = exchange->key->name,
                         .session = exchange->session,
                         .models = names,
                         .priority = exchange->priority}))
      continue;
    if (exchange->stream) {
      exchange->stream->write(error_event(403, message));
      exchange->stream->end();
    } else {
      exchange->reply(error_response(403, message));
    }
    end(number, Gone{number}, "ended");
  }
}

void Exchanges::end_all(const HttpResponse& response) {
  while (!exchanges_.empty()) {
    const uint64_t number = exchanges_.begin()->first;
    const auto exchange = exchanges_.begin()->second;
    exchange->stream ? exchange->stream->abandon() : exchange->reply(response);
    end(number, Gone{number}, "ended");
  }
}

const UpstreamTerms* Exchanges::owner_of(const std::string& model) const {
  for (size_t i = 0; i < upstreams_.size(); ++i) {
    if (upstreams_[i].is_ours() && std::ranges::binary_search(router_.models(i), model)) return &upstreams_[i];
  }
  return nullptr;
}

// An adapter's name stands beside those of its model.
std::vector<std::string> Exchanges::names_of(const std::string& model) const {
  const UpstreamTerms* const owner = owner_of(model);
  if (owner == nullptr) return {model};
  auto names = owner->names;
  if (std::ranges::find(names, model) == names.end()) names.push_back(model);
  return names;
}

HttpResponse Exchanges::unknown(const std::string& name) const {
  const auto models = router_.all_models();
  return error_response(404,
                        fmt::format("there is no model \"{}\"; there is {}", name.substr(0, 200),
                                    models.empty() ? "none yet" : some_of(models)),
                        "model");
}

}  // namespace tandem::gateway
