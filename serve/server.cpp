#include "serve/server.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <iterator>

#include "base/text.h"
#include "base/work_queue.h"
#include "serve/api_error.h"
#include "serve/body_paths.h"
#include "serve/control.h"
#include "serve/cors.h"
#include "serve/intake.h"
#include "serve/lookup_requests.h"
#include "serve/model_set.h"
#include "serve/openapi.h"
#include "serve/promotions.h"
#include "serve/rewards.h"
#include "serve/rule_requests.h"
#include "serve/slow_start.h"
#include "serve/trace_path.h"

namespace tandem::serve {

using namespace std::chrono_literals;
using wire::HttpReply;
using wire::HttpRequest;
using wire::HttpResponse;

namespace {

constexpr size_t kMostWaitingReads = 4096;  // requests that wait to be read
constexpr auto kRetryAfterDrain = "5";

SlowStartSettings slow_start_of(const ServerSettings& settings) {
  int slots = 0;
  for (const auto& model : settings.models) slots += model.slots;
  return {.first = settings.slow_start, .whole = slots, .step = from_seconds(settings.slow_start_seconds)};
}

}  // namespace

class Server::Loop {
 public:
  Loop(ServerSettings settings, Front front, const Clock& clock)
      : settings_(std::move(settings)),
        front_(std::move(front)),
        access_(*front_.access),
        http_(front_.http),
        clock_(clock),
        models_(settings_.models, settings_.embedding_model),
        queue_(1, kMostWaitingReads),
        lookups_(models_, queue_),
        rewards_(models_),
        control_(access_, models_, queue_),
        promotions_(settings_.promotions, models_, http_, clock_),
        adapters_(settings_.adapters, models_, http_, clock_),
        rule_requests_(access_, requests_of(models_)),
        body_paths_(access_),
        stored_(settings_.stored_response_bytes),
        traces_(settings_.traces, clock_),
        slow_start_(slow_start_of(settings_)),
        intake_(models_, queue_, promotions_, adapters_, access_, stored_, traces_, settings_.threads, clock_),
        started_(static_cast<int64_t>(clock.unix_seconds())) {
    for (const Endpoint& endpoint :
         {chat_endpoint(), completions_endpoint(), responses_endpoint(), messages_endpoint(), generate_endpoint()})
      endpoints_.push_back({endpoint, FieldTable(endpoint.fields)});
    promotions_.add_to(body_paths_);
    adapters_.add_to(body_paths_);
    rule_requests_.add_to(body_paths_);
    add_trace_path(body_paths_, traces_);
  }

  const std::string& url() const { return front_.url; }
  const ServerSettings& settings() const { return settings_; }

  Status serve(const std::function<void()>& ready, const std::atomic<bool>& stop, std::atomic<bool>& read_keys) {
    http_.watch(queue_.wake_fd(), [&] { queue_.run_completions(); });
    http_.watch(rewards_.wake_fd(), [&] { rewards_.run_completions(); });
    load(ready);
    wire::HttpHandler handler;
    handler.refuse = [&](const HttpRequest& request) { return refuse(request); };
    handler.answer = [&](HttpRequest request, HttpReply reply) { answer(std::move(request), std::move(reply)); };
    handler.gone = [&](uint64_t number) { gone(number); };
    handler.malformed = [&](int status, const std::string& message) { return error_response(status, message); };
    handler.tick = [&] { tick(stop, read_keys); };
    const Status status = http_.serve(with_cors(std::move(handler), settings_.front.cors_origins), ended_);
    return trouble_.ok() ? status : trouble_;
  }

 private:
  // On the thread that reads requests; nothing else can be read before.
  void load(const std::function<void()>& ready) {
    queue_.submit([this, ready]() -> WorkQueue::Completion {
      Status loaded = models_.load(settings_.threads, clock_);
      if (loaded.ok()) loaded = adapters_.load_first();
      return [this, ready, loaded] {
        if (!loaded.ok()) {
          trouble_ = loaded;
          ended_ = true;
          return;
        }
        for (const auto& lane : models_.lanes()) http_.watch(lane->wake_fd(), [one = lane.get()] { one->take_news(); });
        promotions_.begin_digests();
        loaded_ = true;
        slow_start_.begin(clock_.now());
        ready();
      };
    });
  }
  bool can_sample() const {
    return loaded_ && !draining_ &&
           std::ranges::all_of(models_.all(), [](const auto& model) { return model.current->trouble().ok(); });
  }

  // What has stood still for too long; nothing where nothing has.
  std::optional<std::string> stall() const {
    const Duration limit = from_seconds(settings_.stall_seconds);
    if (limit == Duration{0} || !loaded_) return std::nullopt;
    for (const auto& lane : models_.lanes()) {
      if (const Duration busy = lane->busy(); busy > limit)
        return fmt::format("the engine of \"{}\" has been in one step for {:.1f} s", lane->settings().names.front(),
                           to_seconds(busy));
    }
    if (const auto& sent = reader_asked_; sent && clock_.now() - *sent > limit)
      return fmt::format("the thread that reads requests has been in one for {:.1f} s",
                         to_seconds(clock_.now() - *sent));
    return std::nullopt;
  }
  // The thread that reads requests is asked for a sign, one at a time.
  void look_at_reader() {
    if (settings_.stall_seconds == 0 || !loaded_ || reader_asked_) return;
    const bool taken = queue_.submit([this]() -> WorkQueue::Completion { return [this] { reader_asked_.reset(); }; });
    if (taken) reader_asked_ = clock_.now();
  }

  // Nothing where the request may go on.
  std::optional<HttpResponse> refuse(const HttpRequest& request) {
    auto refusal = access_.refuse(request);
    if (refusal) ++answers_by_status_[refusal->status];
    return refusal;
  }

  void answer(HttpRequest request, HttpReply plain) {
    const HttpReply reply = [this, plain = std::move(plain)](HttpResponse response) {
      ++answers_by_status_[response.status];
      plain(std::move(response));
    };
    const std::string& path = request.path;
    const bool get = request.method == "GET" || request.method == "HEAD";
    if (path == "/health" || path == "/ready" || path == "/ping")
      return get ? reply(health(path == "/ready")) : other_method(reply, "GET");
    if (const auto* const control = Control::find(path)) {
      if (get != (control->method == "GET")) return other_method(reply, std::string(control->method).c_str());
      if (!loaded_) return reply(unavailable("the models are being loaded"));
      return control_.answer(*control, request, reply);
    }
    if (const auto* const found = body_paths_.find(path)) {
      if (get != (found->method == "GET")) return other_method(reply, std::string(found->method).c_str());
      if (!loaded_) return reply(unavailable("the models are being loaded"));
      return body_paths_.answer(*found, request, access_.caller(request)->name, reply);
    }
    for (const auto& reading : endpoints_) {
      if (path != reading.endpoint.path) continue;
      return request.method == "POST" ? sample(reading, std::move(request), reply) : other_method(reply, "POST");
    }
    if (lookups_.has(path) || RewardRequests::has(path))
      return request.method == "POST" ? look_up(std::move(request), reply) : other_method(reply, "POST");
    constexpr std::string_view kResponses = "/v1/responses/";
    if (path.starts_with(kResponses)) return stored_response(path.substr(kResponses.size()), request, reply);
    const auto page = get ? page_of(path) : std::nullopt;
    if (page) return reply(*page);
    if (!get && page_of(path)) return other_method(reply, "GET");
    reply(error_response(404, fmt::format("there is no {}; /openapi.json lists what there is", path.substr(0, 200))));
  }

  // One that a request may go on from: GET shows it, DELETE lets it go.
  void stored_response(const std::string& id, const HttpRequest& request, const HttpReply& reply) {
    const std::string key = access_.caller(request)->name;
    if (request.method != "GET" && request.method != "DELETE") return other_method(reply, "GET or DELETE");
    if (request.method == "DELETE" && stored_.remove(id, key))
      return reply(json_response(200, {{"id", id}, {"object", "response"}, {"deleted", true}}));
    const auto body = request.method == "GET" ? stored_.body(id, key) : std::nullopt;
    if (body) return reply(json_response(200, *body));
    reply(error_response(404, fmt::format("there is no answer \"{}\" any more", id.substr(0, 200))));
  }

  static void other_method(const HttpReply& reply, const char* method) {
    auto response = error_response(405, fmt::format("the method must be {}", method));
    response.headers.emplace_back("Allow", method);
    reply(std::move(response));
  }

  HttpResponse health(bool answers_at_once) const {
    if (const auto why = answers_at_once && can_sample() ? control_.waits() : std::nullopt) return unavailable(*why);
    if (can_sample()) {
      if (const auto why = stall()) return unhealthy(*why, "stalled");
      Json body = {{"status", "ok"}};
      if (!slow_start_.over()) body["admission_share"] = slow_start_.share();
      return json_response(200, body);
    }
    if (!loaded_) return unhealthy("the models are being loaded", "loading");
    return draining_ ? unhealthy("the server is ending", "ending") : unhealthy("an engine has failed", "failed");
  }
  // `status` is for who watches this process.
  static HttpResponse unhealthy(const std::string& why, const char* status) {
    Json body = error_body(503, why);
    body["status"] = status;
    auto response = json_response(503, body);
    response.headers.emplace_back("Retry-After", kRetryAfterDrain);
    return response;
  }
  static HttpResponse unavailable(std::string_view why) {
    auto response = error_response(503, why);
    response.headers.emplace_back("Retry-After", kRetryAfterDrain);
    return response;
  }

  std::optional<HttpResponse> page_of(const std::string& path) const {
    if (path == "/version") return json_response(200, {{"version", settings_.version}});
    if (path == "/openapi.json") return json_response(200, document());
    if (path == "/v1/models") {
      return json_response(200, models_.list(started_));
    }
    constexpr std::string_view kModel = "/v1/models/";
    if (path.starts_with(kModel)) {
      const std::string name = path.substr(kModel.size());
      const auto object = models_.describe(name, started_);
      return object ? json_response(200, *object) : models_.unknown(name);
    }
    if (path == "/load") {
      size_t load = 0;
      for (const auto& lane : models_.lanes()) load += lane->requests();
      return json_response(200, {{"server_load", load}});
    }
    if (path == "/metrics") {
      std::vector<ModelGauges> gauges;
      for (const auto& model : models_.all()) {
        if (model.current) gauges.push_back(model.current->gauges());
        if (model.candidate) gauges.push_back(model.candidate->gauges());
        if (model.candidate) gauges.back().version = "candidate";
      }
      return HttpResponse{.headers = {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}},
                          .body = prometheus_text(gauges, adapters_.gauges(), adapters_.most(), clock_.unix_seconds(),
                                                  answers_by_status_) +
                                  prometheus_text(slow_start_)};
    }
    return std::nullopt;
  }

  Json document() const {
    std::vector<DescribedPath> paths;
    for (const auto& [endpoint, table] : endpoints_)
      paths.push_back({endpoint.path, "post", endpoint.summary, &table, endpoint.required});
    std::ranges::move(lookups_.described(), std::back_inserter(paths));
    paths.push_back(rewards_.described());
    std::ranges::copy(pages(), std::back_inserter(paths));
    std::ranges::move(body_paths_.described(), std::back_inserter(paths));
    for (const auto& control : Control::paths())
      paths.push_back({control.path, control.method == "GET" ? "get" : "post", control.summary, nullptr, {}});
    return openapi_document(paths, settings_.version);
  }

  // Why nothing is computed now; nothing where it is.
  std::optional<HttpResponse> closed() const {
    if (!loaded_) return unavailable("the models are being loaded");
    if (draining_) return unavailable("the server is ending");
    return std::nullopt;
  }

  size_t under_way() const {
    size_t all = intake_.being_read();
    for (const auto& lane : models_.lanes()) all += lane->requests();
    return all;
  }
  void grow_slowly(Time now) {
    if (!loaded_ || slow_start_.over()) return;
    uint64_t begun = 0;
    double seconds = 0;
    for (const auto& lane : models_.lanes()) {
      const ModelGauges gauges = lane->gauges();
      begun += gauges.metrics->time_to_first_token.count();
      seconds += gauges.metrics->time_to_first_token.sum();
    }
    slow_start_.tick(begun, seconds, under_way(), now);
    if (slow_start_.over()) spdlog::info("the slow start is over; {} requests were refused", slow_start_.refused());
  }

  void sample(const Reading& reading, HttpRequest request, const HttpReply& reply) {
    if (auto refusal = closed()) return reply(std::move(*refusal));
    auto caller = access_.caller(request);
    if (const auto refusal = slow_start_.ask(caller->name, under_way(), clock_.now()))
      return reply(refusal_of(*refusal));
    if (auto refusal = access_.take_on(*caller, request.peer)) return reply(std::move(*refusal));
    intake_.take(reading, std::move(request), std::move(caller), reply);
  }

  void look_up(HttpRequest request, const HttpReply& reply) {
    if (auto refusal = closed()) return reply(std::move(*refusal));
    auto caller = access_.caller(request);
    if (auto refusal = access_.take_on(*caller, request.peer)) return reply(std::move(*refusal));
    if (RewardRequests::has(request.path)) return rewards_.answer(std::move(request), std::move(caller), reply);
    lookups_.answer(std::move(request), std::move(caller), reply);
  }

  void gone(uint64_t number) {
    if (intake_.gone(number)) return;
    for (auto& lane : models_.lanes()) lane->gone(number);
  }

  void tick(const std::atomic<bool>& stop, std::atomic<bool>& read_keys) {
    const Time now = clock_.now();
    if (now >= next_key_check_) {
      next_key_check_ = now + 1s;
      front_.read_files_again(false);
    }
    if (read_keys.exchange(false)) front_.read_files_again(true);
    if (loaded_) promotions_.tick();
    look_at_reader();
    grow_slowly(now);
    adapters_.tick();
    if (!stop) return;
    if (!draining_) {
      draining_ = true;
      drain_until_ = now + from_seconds(settings_.drain_seconds);
      size_t open = intake_.being_read() + rewards_.pending();
      for (const auto& lane : models_.lanes()) open += lane->requests();
      if (open > 0) spdlog::info("ending: {} requests have {} s to end", open, settings_.drain_seconds);
    }
    const bool idle = intake_.being_read() == 0 && rewards_.pending() == 0 &&
                      std::ranges::all_of(models_.lanes(), [](const auto& lane) { return lane->requests() == 0; });
    if (!idle && now < drain_until_) return;
    for (auto& lane : models_.lanes()) lane->end_all(503, "the server has ended");
    ended_ = true;
  }

  const ServerSettings settings_;
  Front front_;
  Access& access_;
  wire::HttpServer& http_;
  const Clock& clock_;
  std::vector<Reading> endpoints_;
  ModelSet models_;
  WorkQueue queue_;  // goes before what its jobs use
  LookupRequests lookups_;
  RewardRequests rewards_;
  Control control_;
  Promotions promotions_;
  Adapters adapters_;
  RuleRequests rule_requests_;
  BodyPaths body_paths_;
  ResponseStore stored_;
  Traces traces_;
  SlowStart slow_start_;
  Intake intake_;
  std::map<int, uint64_t> answers_by_status_;
  const int64_t started_;
  Time next_key_check_{}, drain_until_{};
  std::optional<Time> reader_asked_;  // for a sign that has not come
  bool loaded_ = false, draining_ = false;
  std::atomic<bool> ended_{false};
  Status trouble_;
};

Server::Server(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
Server::~Server() = default;

Result<std::unique_ptr<Server>> Server::listen(ServerSettings settings, const Clock& clock) {
  std::vector<std::string> names;
  for (const auto& model : settings.models) {
    for (const auto& name : model.names) {
      if (std::ranges::find(names, name) != names.end())
        return fail(
            Status::invalid(fmt::format("two models are called \"{}\"", name)).hint("--model NAME=DIR names one"));
      names.push_back(name);
    }
  }
  if (names.empty()) return fail(Status::invalid("there is no model to serve"));
  for (const auto& adapter : settings.adapters.first) {
    if (std::ranges::find(names, adapter.name) != names.end()) {
      return fail(Status::invalid(fmt::format("two models or adapters are called \"{}\"", adapter.name))
                      .hint("--adapter NAME=DIR names one"));
    }
    names.push_back(adapter.name);
  }
  auto front = TRY(open_front(settings.front, clock));
  return std::unique_ptr<Server>(new Server(std::make_unique<Loop>(std::move(settings), std::move(front), clock)));
}

std::string Server::url() const { return loop_->url(); }

std::vector<std::string> Server::model_names() const {
  std::vector<std::string> names;
  for (const auto& model : loop_->settings().models) names.insert(names.end(), model.names.begin(), model.names.end());
  return names;
}

std::vector<std::string> Server::adapter_names() const {
  std::vector<std::string> names;
  for (const auto& adapter : loop_->settings().adapters.first) names.push_back(adapter.name);
  return names;
}

Status Server::serve(const std::function<void()>& ready, const std::atomic<bool>& stop, std::atomic<bool>& read_keys) {
  return loop_->serve(ready, stop, read_keys);
}

}  // namespace tandem::serve
