#include "gateway/gateway.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/text.h"
#include "base/unique_number.h"
#include "base/work_queue.h"
#include "gateway/exchanges.h"
#include "gateway/pages.h"
#include "gateway/process_requests.h"
#include "serve/api_error.h"
#include "serve/cors.h"
#include "serve/query.h"
#include "serve/request_reader.h"
#include "serve/rule_requests.h"
#include "serve/slow_start.h"
#include "serve/trace_path.h"

namespace tandem::gateway {

using namespace std::chrono_literals;
using serve::error_response;
using serve::json_response;
using wire::HttpReply;
using wire::HttpRequest;
using wire::HttpResponse;

namespace {

constexpr size_t kMostWaitingReads = 4096;  // requests that wait to be read
constexpr Duration kReadyAnyway = 5s;       // after an upstream has answered, whatever the others do
constexpr Duration kMostProbe = 5s;
constexpr std::string_view kEmbeddings = "/v1/embeddings";
constexpr std::array<std::string_view, 10> kPaths = {
    "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens",
    "/v1/embeddings",       "/v1/rewards",     "/tokenize",     "/detokenize",  "/inference/v1/generate"};

RouterSettings router_settings(const GatewaySettings& settings) {
  RouterSettings router{.queue = settings.queue, .longest_wait = from_seconds(settings.wait_seconds)};
  for (const UpstreamTerms& terms : settings.upstreams) {
    router.upstreams.push_back({.slots = terms.slots,
                                .requests_per_minute = terms.requests_per_minute,
                                .tokens_per_minute = terms.tokens_per_minute,
                                .probe_every = from_seconds(settings.probe_seconds),
                                .seed = std::hash<std::string>{}(terms.name),
                                .told = terms.is_ours()});
  }
  return router;
}

wire::TransferRequest limits_of(const GatewaySettings& settings) {
  wire::TransferRequest limits;
  limits.first_byte = from_seconds(settings.first_byte_seconds);
  limits.silence = from_seconds(settings.silence_seconds);
  limits.request.limit = from_seconds(settings.answer_seconds);
  limits.request.connect_limit = 5s;
  return limits;
}

serve::SlowStartSettings slow_start_of(const GatewaySettings& settings) {
  int slots = settings.slots;
  for (const UpstreamTerms& terms : settings.upstreams) slots += terms.is_ours() ? 0 : terms.slots;
  return {.first = settings.slow_start, .whole = slots, .step = from_seconds(settings.slow_start_seconds)};
}

Duration probe_limit(const GatewaySettings& settings) {
  return std::min<Duration>(kMostProbe, from_seconds(std::max(1.0, settings.probe_seconds)));
}

}  // namespace

class Gateway::Loop {
 public:
  Loop(GatewaySettings settings, serve::Front front, std::unique_ptr<wire::HttpTransfers> transfers, const Clock& clock)
      : settings_(std::move(settings)),
        front_(std::move(front)),
        access_(*front_.access),
        clock_(clock),
        router_(router_settings(settings_)),
        queue_(1, kMostWaitingReads),
        transfers_(std::move(transfers)),
        traces_(settings_.traces, clock_),
        slow_start_(slow_start_of(settings_)),
        exchanges_(router_, settings_.upstreams, *transfers_, access_, traces_, limits_of(settings_),
                   probe_limit(settings_), clock_),
        rule_requests_(access_, ruled_requests()),
        body_paths_(access_),
        started_(static_cast<int64_t>(clock.unix_seconds())) {
    rule_requests_.add_to(body_paths_);
    serve::add_trace_path(body_paths_, traces_);
    body_paths_.add({"/upstreams",
                     "GET",
                     "Each upstream: its state, limit and counters",
                     serve::FieldTable({}),
                     {},
                     [this](const HttpRequest&, serve::Fields&, const std::string&, const HttpReply& reply) {
                       reply(json_response(200, upstream_list(router_, settings_.upstreams, clock_.now())));
                     }});
  }

  Status look_after_processes() {
    process_requests_ = TRY(ProcessRequests::create(
        *settings_.processes, settings_.upstreams, [this] { take_changes(); }, clock_));
    process_requests_->add_to(body_paths_);
    return {};
  }

  const std::string& url() const { return front_.url; }

  Status serve(const std::function<void(const std::vector<std::string>&)>& ready, const std::atomic<bool>& stop,
               std::atomic<bool>& read_keys) {
    front_.http.watch(queue_.wake_fd(), [&] { queue_.run_completions(); });
    front_.http.watch(transfers_->wake_fd(), [&] { exchanges_.take_events(); });
    if (process_requests_) front_.http.watch(process_requests_->wake_fd(), [&] { process_requests_->take_events(); });
    wire::HttpHandler handler;
    handler.refuse = [&](const HttpRequest& request) {
      auto refusal = access_.refuse(request);
      if (refusal) ++answers_by_status_[refusal->status];
      return refusal;
    };
    handler.answer = [&](HttpRequest request, HttpReply plain) {
      answer(std::move(request), [this, plain = std::move(plain)](HttpResponse response) {
        ++answers_by_status_[response.status];
        plain(std::move(response));
      });
    };
    handler.gone = [&](uint64_t number) { gone(number); };
    handler.malformed = [&](int status, const std::string& message) { return error_response(status, message); };
    handler.tick = [&] { tick(ready, stop, read_keys); };
    exchanges_.tick();
    const Status status = front_.http.serve(serve::with_cors(std::move(handler), settings_.front.cors_origins), ended_);
    return trouble_.ok() ? status : trouble_;
  }

 private:
  void answer(HttpRequest request, const HttpReply& reply) {
    const std::string& path = request.path;
    const bool get = request.method == "GET" || request.method == "HEAD";
    const bool of_response = path.starts_with(kResponses) && path.size() > kResponses.size();
    if (of_response && (get || request.method == "DELETE")) return take(std::move(request), reply);
    if (process_requests_ && path == kEmbeddings) {
      return reply(error_response(404,
                                  "a server with --isolate has no embedding model; serve it with another `tandem "
                                  "serve`, and put both behind a gateway (--upstream)"));
    }
    if (std::ranges::find(kPaths, path) != kPaths.end()) {
      if (request.method == "POST") return take(std::move(request), reply);
      return other_method(reply, "POST");
    }
    if (const auto* const found = body_paths_.find(path)) {
      if (get != (found->method == "GET")) return other_method(reply, std::string(found->method).c_str());
      return body_paths_.answer(*found, request, access_.caller(request)->name, reply);
    }
    if (process_requests_ && get && path == "/ready" && !draining_)
      return reply(process_requests_->readiness(serve::query_parameter(request.query, "model"), slow_start_.share()));
    if (process_requests_ && get && path == "/metrics") return process_requests_->answer_metrics(metrics(), reply);
    const auto page = page_of(path);
    if (!page) {
      return reply(error_response(404, fmt::format("there is no {}; this {} has {}", path.substr(0, 200),
                                                   process_requests_ ? "server" : "gateway", join(paths(), ", "))));
    }
    get ? reply(*page) : other_method(reply, "GET");
  }

  std::vector<std::string> paths() const {
    std::vector<std::string> all(kPaths.begin(), kPaths.end());
    if (process_requests_) std::erase(all, kEmbeddings);
    all.insert(all.end(), {"/v1/models", "/health", "/ready", "/version", "/load", "/metrics"});
    for (const auto& path : body_paths_.described()) all.emplace_back(path.path);
    return all;
  }

  serve::RuledRequests ruled_requests() {
    return {
        .has_model =
            [this](const std::string& model) {
              const auto models = router_.all_models();
              return std::ranges::binary_search(models, model);
            },
        .unknown = [this](const std::string& model) { return exchanges_.unknown(model); },
        .end = [this](const serve::Rule& rule, const std::string& message) { exchanges_.end_those(rule, message); }};
  }

  static void other_method(const HttpReply& reply, const char* method) {
    auto response = error_response(405, fmt::format("the method must be {}", method));
    response.headers.emplace_back("Allow", method);
    reply(std::move(response));
  }

  std::optional<HttpResponse> page_of(const std::string& path) const {
    if (path == "/health" || path == "/ready" || path == "/ping") {
      if (auto closed = this->closed()) return closed;
      Json body = {{"status", "ok"}};
      if (!slow_start_.over()) body["admission_share"] = slow_start_.share();
      return json_response(200, body);
    }
    if (path == "/version") return json_response(200, {{"version", settings_.version}});
    if (path == "/load") return json_response(200, {{"server_load", router_.requests()}});
    if (path == "/metrics") {
      return HttpResponse{.headers = {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}}, .body = metrics()};
    }
    if (path == "/v1/models") return json_response(200, models());
    constexpr std::string_view kModel = "/v1/models/";
    if (path.starts_with(kModel)) {
      const Json list = models();
      for (const Json& model : list["data"]) {
        if (model["id"] == Json(path.substr(kModel.size()))) return json_response(200, model);
      }
      return exchanges_.unknown(path.substr(kModel.size()));
    }
    return std::nullopt;
  }

  std::string metrics() const {
    return prometheus_text(router_, settings_.upstreams, answers_by_status_, clock_.now()) +
           serve::prometheus_text(slow_start_);
  }

  Json models() const {
    Json list = model_list(router_, settings_.upstreams, started_);
    for (Json& model : list["data"]) {
      if (process_requests_) model = process_requests_->described(std::move(model));
    }
    return list;
  }

  // What is known of the processes of this server.
  void take_changes() {
    const auto told = settings_.processes->tick();
    const auto views = settings_.processes->views();
    for (size_t i = 0; i < views.size(); ++i) settings_.upstreams[i].url = views[i].url;
    for (const ProcessChange& one : told) exchanges_.tell(one);
    if (!ready_ && trouble_.ok() && !settings_.processes->trouble().ok()) {
      trouble_ = settings_.processes->trouble();
      ended_ = true;
    }
  }
  // Whether all that are to be waited for at the start are there.
  bool all_there(Time now) const {
    if (!process_requests_) return router_.all_tried() || now - answered_since_ >= kReadyAnyway;
    return std::ranges::all_of(settings_.processes->views(),
                               [](const ProcessView& view) { return view.state == "serving"; });
  }

  // Why nothing is answered now; nothing where it is.
  std::optional<HttpResponse> closed() const {
    const char* const why = draining_ ? process_requests_ ? "the server is ending" : "the gateway is ending"
                            : !router_.any_open(clock_.now())
                                ? process_requests_ ? "no model can answer now" : "no upstream can be asked now"
                                : nullptr;
    if (why == nullptr) return std::nullopt;
    auto response = error_response(503, why);
    response.headers.emplace_back("Retry-After", "5");
    return response;
  }

  void take(HttpRequest request, const HttpReply& reply) {
    if (draining_) return reply(*closed());
    // Gateways that name each other would hand it round for ever.
    const std::string own = fmt::format("1.1 tandem-{:016x}", run_), before(request.header("via"));
    if (before.find(own) != std::string::npos)
      return reply(
          error_response(508, "this request has come through this gateway before: its upstreams lead back to it"));
    auto key = access_.caller(request);
    if (const auto refusal = slow_start_.ask(key->name, exchanges_.size() + reading_.size(), clock_.now()))
      return reply(serve::refusal_of(*refusal));
    if (auto refusal = access_.take_on(*key, request.peer)) return reply(std::move(*refusal));
    auto exchange = std::make_shared<Exchange>();
    exchange->request = std::move(request);
    exchange->key = std::move(key);
    exchange->arrived = clock_.now();
    exchange->reply = reply;
    exchange->via = before.empty() ? own : before + ", " + own;
    exchange->id = fmt::format("gateway-{:016x}-{}", run_, exchange->request.number);
    const uint64_t number = exchange->request.number;
    reading_.emplace(number, exchange);
    const std::string salt = settings_.salt_by_key ? exchange->key->name : "";
    const bool taken = queue_.submit([this, exchange, number, salt]() -> WorkQueue::Completion {
      const bool post = exchange->request.method == "POST";
      auto view = std::make_shared<Result<RequestView>>(RequestView());
      if (post) *view = serve::shielded([&] { return view_of(exchange->request.body, salt); });
      return [this, exchange, number, view] {
        if (reading_.erase(number) == 0) return;  // its client has gone
        if (!*view) return exchange->reply(error_response(400, view->error().to_string()));
        exchange->view = std::move(**view);
        exchanges_.offer(number, exchange);
      };
    });
    if (taken) return;
    reading_.erase(number);
    reply(error_response(429, "too many requests wait to be read; try again later"));
  }

  void gone(uint64_t number) {
    if (reading_.erase(number) > 0) return;
    exchanges_.gone(number);
  }

  void tick(const std::function<void(const std::vector<std::string>&)>& ready, const std::atomic<bool>& stop,
            std::atomic<bool>& read_keys) {
    const Time now = clock_.now();
    if (now >= next_key_check_) {
      next_key_check_ = now + 1s;
      front_.read_files_again(false);
    }
    if (read_keys.exchange(false)) front_.read_files_again(true);
    if (process_requests_) take_changes();
    exchanges_.tick();
    if (!ready_ && !router_.all_models().empty()) {
      if (answered_since_ == Time{}) answered_since_ = now;
      if (all_there(now)) {
        ready_ = true;
        slow_start_.begin(now);
        ready(router_.all_models());
      }
    }
    if (ready_)
      slow_start_.tick(exchanges_.begun(), exchanges_.begun_seconds(), exchanges_.size() + reading_.size(), now);
    if (!stop) return;
    if (!draining_) {
      draining_ = true;
      drain_until_ = now + from_seconds(settings_.drain_seconds);
      if (!exchanges_.empty())
        spdlog::info("ending: {} requests have {} s to end", exchanges_.size(), settings_.drain_seconds);
    }
    if (!(exchanges_.empty() && reading_.empty()) && now < drain_until_) return;
    exchanges_.end_all(*closed());
    ended_ = true;
  }

  GatewaySettings settings_;
  serve::Front front_;
  serve::Access& access_;
  const Clock& clock_;
  Router router_;
  WorkQueue queue_;
  std::unique_ptr<wire::HttpTransfers> transfers_;
  serve::Traces traces_;
  serve::SlowStart slow_start_;
  Exchanges exchanges_;
  serve::RuleRequests rule_requests_;
  serve::BodyPaths body_paths_;
  std::unique_ptr<ProcessRequests> process_requests_;  // null: the upstreams are other servers
  const int64_t started_;
  const uint64_t run_ = unique_number();
  std::map<uint64_t, std::shared_ptr<Exchange>> reading_;  // by the number of the HTTP request
  std::map<int, uint64_t> answers_by_status_;
  Time next_key_check_{}, drain_until_{}, answered_since_{};
  bool ready_ = false, draining_ = false;
  std::atomic<bool> ended_{false};
  Status trouble_;
};

Gateway::Gateway(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
Gateway::~Gateway() = default;

Result<std::unique_ptr<Gateway>> Gateway::listen(GatewaySettings settings, const Clock& clock) {
  TRY(check_upstreams(settings.upstreams));
  auto front = TRY(serve::open_front(settings.front, clock));
  auto transfers = TRY(wire::HttpTransfers::create(clock));
  const bool has_processes = settings.processes != nullptr;
  auto loop = std::make_unique<Loop>(std::move(settings), std::move(front), std::move(transfers), clock);
  if (has_processes) TRY(loop->look_after_processes());
  return std::unique_ptr<Gateway>(new Gateway(std::move(loop)));
}

const std::string& Gateway::url() const { return loop_->url(); }

Status Gateway::serve(const std::function<void(const std::vector<std::string>&)>& ready, const std::atomic<bool>& stop,
                      std::atomic<bool>& read_keys) {
  return loop_->serve(ready, stop, read_keys);
}

}  // namespace tandem::gateway
