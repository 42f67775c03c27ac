#include "eval/endpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <cstdlib>

#include "base/json.h"
#include "base/text.h"
#include "rollout/agent/endpoint_model.h"
#include "wire/http_client.h"

namespace tandem::eval {
namespace {

using namespace std::chrono_literals;

constexpr Duration kProbeLimit = 5s, kProbeEvery = 5s;
constexpr size_t kLargestList = size_t{1} << 20;

std::string models_url(const std::string& url) {
  constexpr std::string_view kChat = "/chat/completions";
  auto whole = rollout::completions_url(url);
  whole.resize(whole.size() - kChat.size());
  return whole + "/models";
}

struct Probe {
  int status = 0;
  std::string body;
};
Result<Probe> get(const std::string& url, const std::string& key, const std::stop_token& stop) {
  wire::OutgoingRequest request{
      .url = url, .method = "GET", .connect_limit = kProbeLimit, .limit = kProbeLimit, .largest_answer = kLargestList};
  if (!key.empty()) request.headers.emplace_back("Authorization", "Bearer " + key);
  Probe probe;
  const auto take = [&](const wire::HttpHead& head, std::string_view bytes) -> Status {
    probe.status = head.status;
    probe.body += bytes;
    return {};
  };
  const auto head = TRY(wire::http_request(request, take, stop));
  probe.status = head.status;
  return probe;
}

bool wait_for(Duration duration, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any changed;
  std::unique_lock lock(mutex);
  changed.wait_for(lock, stop, duration, [] { return false; });
  return !stop.stop_requested();
}

// A proxy that has lost what is behind it answers with one of these.
bool is_of_absence(int status) { return status == 502 || status == 503 || status == 504; }

// A conversation whose answers its source hears of.
class HeardModel final : public rollout::AgentModel {
 public:
  HeardModel(std::unique_ptr<rollout::AgentModel> model, EndpointSource& source)
      : model_(std::move(model)), source_(source) {}
  std::string name() const override { return model_->name(); }
  const std::vector<envs::Message>& opening() const override { return model_->opening(); }
  const Json& tools() const override { return model_->tools(); }
  Result<rollout::AgentTurn> turn(std::span<const envs::ToolOutcome> replies, const rollout::TurnListener& listener,
                                  const std::stop_token& stop) override {
    auto turn = model_->turn(replies, listener, stop);
    if (turn) source_.note_answer();
    return turn;
  }

 private:
  std::unique_ptr<rollout::AgentModel> model_;
  EndpointSource& source_;
};

}  // namespace

namespace {

// "URL=N" for servers of the suite.
Result<std::map<std::string, int>> own_limits(const std::vector<std::string>& limits,
                                              const std::vector<std::string>& urls) {
  std::map<std::string, int> read;
  for (const auto& limit : limits) {
    const size_t mark = limit.rfind('=');
    const std::string url = limit.substr(0, mark);
    const auto wrong = [&](const std::string& why) {
      return fail(Status::invalid(fmt::format("\"{}\" {}", limit, why)).at("endpoint.server_requests_per_minute"));
    };
    if (std::ranges::find(urls, url) == urls.end())
      return wrong(
          "names no server of endpoint.url or endpoint.fallbacks; write URL=N, with the URL as it stands there");
    int number = -1;
    const char* const end = limit.data() + limit.size();
    const auto [rest, error] = std::from_chars(limit.data() + std::min(mark, limit.size() - 1) + 1, end, number);
    if (error != std::errc() || rest != end || number < 0)
      return wrong("says no number of requests: URL=N, 0 for any number");
    read[url] = number;
  }
  return read;
}

}  // namespace

Result<EndpointTerms> endpoint_terms(const Suite& suite) {
  EndpointTerms terms{.urls = {suite.endpoint.url},
                      .model = suite.endpoint.model,
                      .key = {},
                      .temperature = suite.temperature,
                      .max_new_tokens = suite.limits.max_new_tokens,
                      .tools = suite.profile.tools,
                      .system = suite.profile.system,
                      .compaction = suite.profile.compaction,
                      .requests_per_minute = suite.endpoint.requests_per_minute,
                      .request_limit = from_seconds(suite.limits.seconds)};
  terms.urls.insert(terms.urls.end(), suite.endpoint.fallbacks.begin(), suite.endpoint.fallbacks.end());
  for (const auto& url : terms.urls) {
    if (Status status = wire::check_url(url); !status.ok()) return fail(std::move(status).at("endpoint"));
  }
  terms.requests_per_minute_of = TRY(own_limits(suite.endpoint.server_requests_per_minute, terms.urls));
  const auto variable = [](const char* name) {
    const char* const value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  const auto& named = suite.endpoint.api_key_env;
  terms.key = named.empty() ? variable("TANDEM_API_KEY") : variable(named.c_str());
  if (named.empty() && terms.key.empty()) terms.key = variable("OPENAI_API_KEY");
  if (!named.empty() && terms.key.empty()) {
    return fail(Status::invalid(fmt::format("the environment has no {}", named))
                    .at("endpoint.api_key_env")
                    .hint(fmt::format("export {}=KEY, or leave the key out", named)));
  }
  return terms;
}

Result<std::string> only_model_of(const EndpointTerms& terms) {
  Status last = Status::unavailable("no server was asked");
  for (const auto& url : terms.urls) {
    const auto probe = get(models_url(url), terms.key, {});
    if (!probe) {
      last = Status(probe.error()).at(models_url(url));
      continue;
    }
    const auto list = parse_json(probe->body);
    std::vector<std::string> names;
    if (list && list->is_object() && list->contains("data") && list->at("data").is_array()) {
      for (const Json& model : list->at("data")) {
        if (model.is_object() && model.contains("id") && model.at("id").is_string())
          names.push_back(model.at("id").get<std::string>());
      }
    }
    if (names.size() == 1) return names[0];
    return fail(Status::invalid(names.empty() ? fmt::format("answers {} and names no model", probe->status)
                                              : fmt::format("has several models: {}", join(names, ", ")))
                    .at(models_url(url))
                    .hint("name one by endpoint.model"));
  }
  return fail(std::move(last));
}

Result<std::unique_ptr<rollout::AgentModel>> EndpointSource::begin(const envs::Task& task, uint64_t seed,
                                                                   std::vector<envs::ForeignTool> foreign) {
  rollout::EndpointSettings settings{.urls = urls(),
                                     .model = terms_.model,
                                     .key = terms_.key,
                                     .temperature = terms_.temperature,
                                     .seed = seed,
                                     .max_tokens = terms_.max_new_tokens,
                                     .tools = terms_.tools,
                                     .foreign_tools = std::move(foreign),
                                     .system = terms_.system,
                                     .compaction = terms_.compaction,
                                     .request_limit = terms_.request_limit};
  settings.attempts.seed = seed;
  settings.wait_for_turn = [this, servers = settings.urls](size_t server, const std::stop_token& stop) {
    return wait_for_turn(servers[server], stop);
  };
  auto model = TRY(rollout::EndpointModel::create(std::move(settings), task, clock_));
  return std::unique_ptr<rollout::AgentModel>(std::make_unique<HeardModel>(std::move(model), *this));
}

bool EndpointSource::wait_for_turn(const std::string& url, const std::stop_token& stop) {
  constexpr Duration kMinute = 60s;
  const auto own = terms_.requests_per_minute_of.find(url);
  const int limit = own != terms_.requests_per_minute_of.end() ? own->second : terms_.requests_per_minute;
  if (limit <= 0) return !stop.stop_requested();
  for (;;) {
    Duration wait{};
    {
      std::lock_guard lock(mutex_);
      const Time now = clock_.now();
      auto& sent = sent_[url];
      while (!sent.empty() && sent.front() + kMinute <= now) sent.pop_front();
      if (sent.size() < static_cast<size_t>(limit)) {
        sent.push_back(now);
        return !stop.stop_requested();
      }
      wait = sent.front() + kMinute - now;
    }
    if (!wait_for(wait, stop)) return false;
  }
}

std::vector<std::string> EndpointSource::urls() const {
  std::lock_guard lock(mutex_);
  std::vector<std::string> present, absent;
  for (size_t i = 0; i < terms_.urls.size(); ++i)
    (i < absent_.size() && absent_[i] ? absent : present).push_back(terms_.urls[i]);
  present.insert(present.end(), absent.begin(), absent.end());
  return present;
}

void EndpointSource::note_presence(size_t number, bool present) {
  std::lock_guard lock(mutex_);
  absent_.resize(std::max(absent_.size(), number + 1));
  absent_[number] = !present;
}

std::optional<Time> EndpointSource::heard() const {
  std::lock_guard lock(mutex_);
  return heard_;
}

void EndpointSource::note_answer() {
  std::lock_guard lock(mutex_);
  heard_ = clock_.now();
}

EndpointWatch::EndpointWatch(const EndpointTerms& terms, EndpointSource& source, const Clock& clock,
                             std::function<void(std::string why)> on_gone, Duration patience)
    : urls_([&] {
        std::vector<std::string> urls;
        for (const auto& url : terms.urls) urls.push_back(models_url(url));
        return urls;
      }()),
      key_(terms.key),
      source_(source),
      clock_(clock),
      on_gone_(std::move(on_gone)),
      patience_(patience),
      thread_([this](const std::stop_token& stop) { watch(stop); }) {}

void EndpointWatch::watch(const std::stop_token& stop) {
  Time alive = clock_.now();
  std::string why;
  do {
    for (size_t i = 0; i < urls_.size(); ++i) {
      const auto probe = get(urls_[i], key_, stop);
      if (stop.stop_requested()) return;
      const bool present = probe && !is_of_absence(probe->status);
      source_.note_presence(i, present);
      if (present) {
        alive = clock_.now();
      } else {
        why = fmt::format("{}: {}", urls_[i],
                          probe ? fmt::format("it answers {}", probe->status) : probe.error().message());
      }
    }
    if (const auto heard = source_.heard()) alive = std::max(alive, *heard);
    if (clock_.now() - alive >= patience_) {
      on_gone_(fmt::format("no server has answered for {}; {}", format_seconds(to_seconds(clock_.now() - alive)), why));
      return;
    }
  } while (wait_for(std::min(kProbeEvery, std::max<Duration>(patience_ / 6, 100ms)), stop));
}

}  // namespace tandem::eval
