#include "serve/lane.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "rollout/engine/draft_model.h"
#include "serve/api_error.h"
#include "serve/continuation.h"

namespace tandem::serve {
namespace {

constexpr int kMostContext = 8192;
// Rows of a prompt that go along with sampling: few enough that a stream hardly slows down.
constexpr int kPrefillBeside = 64;

}  // namespace

Lane::Lane(LaneSettings settings, TextSide text, model::ModelConfig config, int max_tokens,
           std::shared_ptr<ServedRewards> rewards, std::unique_ptr<EngineThread> engine, const Clock& clock)
    : settings_(std::move(settings)),
      text_(std::move(text)),
      config_(std::move(config)),
      constraints_(text_, config_),
      max_tokens_(max_tokens),
      rewards_(std::move(rewards)),
      clock_(clock),
      admission_({.slots = settings_.slots, .queue = settings_.queue, .longest_wait = settings_.longest_wait}),
      engine_(std::move(engine)) {}

Result<std::unique_ptr<Lane>> Lane::load(LaneSettings settings, const Clock& clock) {
  auto weights = std::make_shared<model::Weights>(TRY(model::load_weights(settings.directory, false, settings.format)));
  TRY(settings.place.ready(*weights));
  auto text = TRY(TextSide::load(settings.directory));
  const int made_for = weights->config().max_positions;
  if (settings.max_tokens > made_for) {
    return tl::unexpected(Status::invalid(fmt::format("--max-tokens is {}, and {} was made for {}", settings.max_tokens,
                                                      settings.directory.string(), made_for)));
  }
  const int max_tokens = settings.max_tokens > 0 ? settings.max_tokens : std::min(made_for, kMostContext);
  auto engine = TRY(engine_of(settings, weights, max_tokens));
  auto rewards = TRY(load_rewards(settings.directory, settings.reward_reader, weights, settings.place));
  return std::unique_ptr<Lane>(new Lane(std::move(settings), std::move(text), weights->config(), max_tokens,
                                        std::move(rewards), std::make_unique<EngineThread>(std::move(engine)), clock));
}

Result<rollout::Engine> Lane::engine_of(const LaneSettings& settings,
                                        const std::shared_ptr<const model::Weights>& weights, int max_tokens) {
  const rollout::EngineSettings of_engine{
      .slots = settings.slots,
      .max_tokens = max_tokens,
      .prefill_beside = kPrefillBeside,
      .speculation = settings.speculation,
      .record_routes = settings.routes && model::route_shape(weights->config()).any()};
  auto engine = TRY(rollout::Engine::create(weights, 0, settings.place, of_engine));
  if (settings.draft_model.empty()) return engine;
  const auto small = TRY(rollout::load_draft_weights(settings.draft_model, settings.directory, settings.place));
  rollout::EngineSettings of_draft = of_engine;
  of_draft.record_routes = false;  // of guesses
  engine.draft_with(TRY(rollout::DraftModel::create(small, settings.place, of_draft)));
  return engine;
}

void Lane::submit(Request request) {
  if (!trouble_.ok()) {
    note_error();
    if (request.elsewhere) return request.elsewhere();
    return request.reply(error_response(503, "the engine has failed: " + trouble_.message()));
  }
  auto exchange = std::make_unique<Exchange>();
  exchange->request = std::move(request);
  auto& own = exchange->request;
  Generation& generation = own.prepared.generation;
  Offer offer{.priority = generation.priority, .key = own.key};
  const int count = generation.answers();
  exchange->times.resize(count);
  for (int i = 0; i < count; ++i) {
    exchange->choices.emplace_back(text_.tokenizer_or_null(), generation.choice, fmt::format("call_{}_{}_", own.id, i));
    exchange->answers.push_back(++last_answer_);
    if (!exchange->choices.back().ended()) offer.answers.push_back(last_answer_);
  }
  // An answer of no tokens, whose prompt is scored nonetheless.
  const bool scores = generation.turn.prompt_logprobs;
  if (generation.choice->most_tokens == 0 && scores) offer.answers = exchange->answers;
  exchange->open = offer.answers.size();
  const uint64_t number = own.number;
  for (int i = 0; i < count; ++i) places_.emplace(exchange->answers[i], Place{number, static_cast<size_t>(i)});
  for (const auto& prompt : generation.prompts) metrics_.prompt_tokens += prompt.size();
  auto& kept = *exchanges_.emplace(number, std::move(exchange)).first->second;
  if (kept.open == 0) {
    for ([[maybe_unused]] const auto& choice : kept.choices) ++metrics_.finished["length"];
    return finish(number);
  }
  const auto actions = admission_.step(offer, clock_.now());
  if (actions.refused) {
    ++metrics_.refused_full;
    auto response = error_response(
        429, actions.too_late
                 ? "an answer would come later than serve.longest_wait allows for this class; try again later"
                 : fmt::format("{} answers wait already; try again later", admission_.waiting()));
    response.headers.emplace_back("Retry-After", fmt::format("{}", std::ceil(to_seconds(*actions.refused))));
    for (const AnswerId answer : kept.answers) places_.erase(answer);
    const Request refused = std::move(kept.request);
    exchanges_.erase(number);
    return refused.elsewhere ? refused.elsewhere() : refused.reply(std::move(response));
  }
  act(actions);
}

void Lane::act(const AdmissionActions& actions) {
  for (const AnswerId answer : actions.start) start(answer);
}

void Lane::start(AnswerId answer) {
  const auto [number, choice] = places_.at(answer);
  Exchange& exchange = *exchanges_.at(number);
  exchange.started = true;
  const Generation& generation = exchange.request.prepared.generation;
  // Of one that was taken over, the first version's.
  if (auto& started = exchange.times[choice].started; started == Time{}) {
    started = clock_.now();
    metrics_.queue.observe(to_seconds(started - exchange.request.arrived));
  }
  auto [prompt, rest] =
      rest_of(generation.prompts[choice / generation.n], generation.turn, exchange.choices[choice].tokens());
  EngineThread::Turn turn{.id = answer, .prompt = std::move(prompt), .request = std::move(rest)};
  turn.request.priority = static_cast<int>(generation.priority);
  // A name of a key has no line break.
  if (settings_.salt_by_key) turn.request.cache_salt = exchange.request.key + '\n' + turn.request.cache_salt;
  turn.request.seed += choice % generation.n;
  turn.request.max_new_tokens = std::max(1, turn.request.max_new_tokens);
  engine_->start(std::move(turn));
}

void Lane::take_news() {
  auto news = engine_->take();
  for (auto& token : news.tokens) take(std::move(token));
  for (auto& refused : news.refused) {
    const auto place = places_.find(refused.id);
    if (place != places_.end()) fail(place->second.number, http_status_of(refused.status), refused.status.message());
  }
  if (!news.trouble.ok() && trouble_.ok()) {
    trouble_ = news.trouble;
    end_all(500, "the engine has failed: " + trouble_.message());
  }
}

void Lane::take(rollout::SampledToken token) {
  const AnswerId answer = token.sequence;
  const auto place = places_.find(answer);
  if (place == places_.end()) return;  // of an answer that was let go
  const auto [number, index] = place->second;
  Exchange& exchange = *exchanges_.at(number);
  Choice& choice = exchange.choices[index];
  const Time now = clock_.now();
  AnswerTimes& times = exchange.times[index];
  const bool first = times.last_token == Time{};
  (first ? metrics_.time_to_first_token : metrics_.inter_token)
      .observe(to_seconds(now - (first ? exchange.request.arrived : times.last_token)));
  times.last_token = now;
  if (first) times.first_token = now;
  if (first) metrics_.cached_tokens += token.cached_tokens;
  if (first) exchange.cached_tokens += token.cached_tokens;
  exchange.compute_seconds += token.compute_seconds;
  const bool engine_ended = token.turn_ended;
  const bool scored_only = exchange.request.prepared.generation.choice->most_tokens == 0;
  Piece piece;
  if (scored_only) {
    choice.take_prompt(std::move(token));
  } else {
    ++metrics_.generation_tokens;
    auto taken = choice.take(std::move(token));
    if (!taken) return fail(number, http_status_of(taken.error()), taken.error().to_string());
    piece = std::move(*taken);
    times.text += clock_.now() - now;
  }
  if (exchange.request.prepared.stream) {
    const AnswerView view = exchange.view();
    if (!exchange.begun) exchange.request.prepared.shape->begin(view, exchange.out);
    exchange.begun = true;
    exchange.request.prepared.shape->piece(view, index, piece, exchange.out);
    send(exchange);
  }
  if (!choice.ended() && !engine_ended) return;
  ++metrics_.finished[std::string(name_of(choice.finish()))];
  engine_->release(answer);
  places_.erase(place);
  const auto actions = admission_.step(Ended{answer}, now);
  if (--exchange.open == 0) finish(number);
  act(actions);
}

// What has been written; the answer begins with the first of it.
void Lane::send(Exchange& exchange) {
  const std::string text = exchange.out.take();
  if (text.empty()) return;
  if (!exchange.stream) {
    exchange.stream = std::make_shared<wire::HttpStream>();
    exchange.request.reply({.status = 200,
                            .headers = {{"Content-Type", "text/event-stream; charset=utf-8"},
                                        {"Cache-Control", "no-cache"},
                                        {"X-Request-Id", exchange.request.id}},
                            .stream = exchange.stream});
  }
  exchange.stream->write(text);
}

void Lane::finish(uint64_t number) {
  Exchange& exchange = *exchanges_.at(number);
  const auto& prepared = exchange.request.prepared;
  metrics_.whole.observe(to_seconds(clock_.now() - exchange.request.arrived));
  count(exchange);
  say_spent(exchange, "done");
  const AnswerView view = exchange.view();
  prepared.shape->ended(view);
  if (prepared.stream) {
    if (!exchange.begun) {
      prepared.shape->begin(view, exchange.out);
      for (size_t i = 0; i < exchange.choices.size(); ++i)
        prepared.shape->piece(view, i, {.finish = exchange.choices[i].finish()}, exchange.out);
    }
    prepared.shape->end(view, exchange.out);
    send(exchange);
    exchange.stream->end();
  } else {
    auto response = json_response(200, prepared.shape->whole(view));
    response.headers.emplace_back("X-Request-Id", exchange.request.id);
    exchange.request.reply(std::move(response));
  }
  for (const AnswerId answer : exchange.answers) places_.erase(answer);
  exchanges_.erase(number);
}

void Lane::release(Exchange& exchange) {
  std::vector<AnswerId> open;
  for (const AnswerId answer : exchange.answers) {
    if (places_.erase(answer) > 0) open.push_back(answer);
  }
  std::vector<AnswerId> starts;
  for (const AnswerId answer : open) {
    engine_->release(answer);
    std::ranges::copy(admission_.step(Ended{answer}, clock_.now()).start, std::back_inserter(starts));
  }
  // The slot of one may have gone to another of the same request, which has ended since.
  for (const AnswerId answer : starts) {
    if (places_.contains(answer)) start(answer);
  }
}

void Lane::count(const Exchange& exchange) {
  ++outcomes_.answers;
  if (exchange.begun_by) return;  // its times are of two versions
  for (size_t i = 0; i < exchange.choices.size(); ++i) {
    const Time first = exchange.times[i].first_token;
    if (first == Time{}) continue;
    outcomes_.first_token.observe(to_seconds(first - exchange.request.arrived));
    const size_t tokens = exchange.choices[i].tokens().size();
    if (tokens > 1) outcomes_.observe_tokens(to_seconds(exchange.times[i].last_token - first), tokens - 1);
  }
}

void Lane::say_spent(const Exchange& exchange, std::string_view outcome) const {
  if (!exchange.request.spent) return;
  Spent spent{.cached_tokens = exchange.cached_tokens,
              .taken_over_tokens = exchange.taken_over_tokens,
              .seconds = to_seconds(clock_.now() - exchange.request.arrived),
              .compute_seconds = exchange.compute_seconds,
              .outcome = outcome,
              .answers = exchange.times};
  for (const auto& prompt : exchange.request.prepared.generation.prompts) spent.prompt_tokens += prompt.size();
  for (size_t i = 0; i < exchange.choices.size(); ++i) {
    spent.answers[i].tokens = exchange.choices[i].tokens().size();
    spent.answer_tokens += spent.answers[i].tokens;
  }
  exchange.request.spent(spent);
}

void Lane::gone(uint64_t number) {
  const auto found = exchanges_.find(number);
  if (found == exchanges_.end()) return;
  const auto exchange = std::move(found->second);
  exchanges_.erase(found);
  metrics_.finished["abort"] += exchange->open;
  say_spent(*exchange, "gone");
  release(*exchange);
}

void Lane::fail(uint64_t number, int http_status, const std::string& message) {
  const auto found = exchanges_.find(number);
  if (found == exchanges_.end()) return;
  auto exchange = std::move(found->second);
  exchanges_.erase(found);
  metrics_.finished["error"] += exchange->open;
  // Others are the client's fault, or an admin's wish.
  if (http_status == 500) note_error();
  release(*exchange);
  std::string said = message;
  if (http_status == 500 && exchange->stream && hand_on(exchange, said)) return;
  const bool moves = http_status == 500 && !exchange->stream && exchange->request.elsewhere;
  say_spent(*exchange, moves ? "elsewhere" : http_status == 500 ? "error" : "ended");
  if (moves) {
    exchange->request.elsewhere();
  } else if (!exchange->stream) {
    exchange->request.reply(error_response(http_status, said));
  } else {
    exchange->request.prepared.shape->error(error_body(http_status, said), exchange->out);
    send(*exchange);
    exchange->stream->end();
  }
}

void Lane::end_those(int http_status, const std::string& message, const std::function<bool(const Request&)>& which) {
  std::vector<uint64_t> numbers;
  for (const auto& [number, exchange] : exchanges_) {
    if (which(exchange->request)) numbers.push_back(number);
  }
  for (const uint64_t number : numbers) fail(number, http_status, message);
}

ModelGauges Lane::gauges() const {
  ModelGauges gauges{.name = settings_.names.front(),
                     .running = admission_.running(),
                     .waiting = admission_.waiting(),
                     .slots = settings_.slots,
                     .metrics = &metrics_,
                     .engine = engine_->counters()};
  for (const auto& [number, exchange] : exchanges_) {
    const std::string& adapter = exchange->request.adapter;
    if (!adapter.empty()) (exchange->started ? gauges.running_adapters : gauges.waiting_adapters).insert(adapter);
  }
  return gauges;
}

}  // namespace tandem::serve
