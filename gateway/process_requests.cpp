#include "gateway/process_requests.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <optional>

#include "base/text.h"
#include "gateway/metrics_merge.h"
#include "serve/adapters.h"
#include "serve/api_error.h"

namespace tandem::gateway {

using namespace std::chrono_literals;
using serve::error_response;
using serve::json_response;
using wire::HttpReply;
using wire::HttpResponse;

namespace {

constexpr Duration kMetricsLimit = 2s;
constexpr Duration kLoadLimit = 80s;  // more than a process takes
constexpr size_t kLargestPage = size_t{16} << 20;

constexpr serve::FieldRow kReviveFields[] = {
    {"model", serve::Effect::kTakes, R"({"type":"string","minLength":1})", "Name of the model whose process failed."},
};

std::optional<size_t> process_of(const std::vector<ProcessView>& views, const std::string& model) {
  if (model.empty()) return views.empty() ? std::nullopt : std::optional<size_t>(0);
  for (size_t i = 0; i < views.size(); ++i) {
    if (std::ranges::find(views[i].names, model) != views[i].names.end()) return i;
  }
  return std::nullopt;
}

std::optional<size_t> process_with_adapter(const std::vector<ProcessView>& views, const std::string& name) {
  for (size_t i = 0; i < views.size(); ++i) {
    if (std::ranges::find(views[i].adapters, name, &ProcessAdapter::name) != views[i].adapters.end()) return i;
  }
  return std::nullopt;
}

HttpResponse no_model(const std::vector<ProcessView>& views, const std::string& model) {
  std::vector<std::string> names;
  for (const auto& view : views) names.insert(names.end(), view.names.begin(), view.names.end());
  return error_response(
      404, fmt::format("there is no model \"{}\"; there is {}", model.substr(0, 200), join(names, ", ")), "model");
}

HttpResponse away(const ProcessView& view) {
  auto response = error_response(
      503, fmt::format("the process of the model \"{}\" does not serve now ({})", view.names.front(), view.state));
  if (view.state != "failed") response.headers.emplace_back("Retry-After", "5");
  return response;
}

// What a process answered, as it is.
HttpResponse passed(int status, std::string body) {
  HttpResponse response{.status = status, .body = std::move(body)};
  response.headers.emplace_back("Content-Type", "application/json");
  if (status == 503) response.headers.emplace_back("Retry-After", "5");
  return response;
}

std::string process_metrics(const std::vector<ProcessView>& views) {
  std::string text;
  const auto each = [&](std::string_view name, std::string_view type, std::string_view help, const auto& value) {
    text += fmt::format("# HELP {0} {2}\n# TYPE {0} {1}\n", name, type, help);
    for (const auto& view : views)
      text += fmt::format("{}{{process={}}} {}\n", name, dump_json(Json(view.names.front())), value(view));
  };
  each("tandem_process_up", "gauge", "1: the process of the model answers.",
       [](const ProcessView& view) { return view.state == "serving" ? 1 : 0; });
  each("tandem_process_failed", "gauge", "1: it is not started again.",
       [](const ProcessView& view) { return view.state == "failed" ? 1 : 0; });
  each("tandem_process_restarts_total", "counter", "How often it was started again.",
       [](const ProcessView& view) { return view.restarts; });
  each("tandem_process_memory_bytes", "gauge", "Memory of its own, without pages of files.",
       [](const ProcessView& view) { return view.memory_bytes; });
  each("tandem_process_memory_limit_bytes", "gauge", "Above this it is ended; 0: no limit.",
       [](const ProcessView& view) { return view.memory_limit; });
  return text;
}

}  // namespace

Result<std::unique_ptr<ProcessRequests>> ProcessRequests::create(Processes& processes,
                                                                 const std::vector<UpstreamTerms>& upstreams,
                                                                 std::function<void()> changed, const Clock& clock) {
  return std::unique_ptr<ProcessRequests>(
      new ProcessRequests(processes, upstreams, std::move(changed), TRY(wire::HttpTransfers::create(clock))));
}

void ProcessRequests::add_to(serve::BodyPaths& paths) {
  paths.add({"/processes",
             "GET",
             "Each model's process: state, restarts, memory, last cause",
             serve::FieldTable({}),
             {},
             [this](const wire::HttpRequest&, serve::Fields&, const std::string&, const HttpReply& reply) {
               reply(json_response(200, process_list()));
             }});
  paths.add({"/processes/revive",
             "POST",
             "Tries the process of a model that has failed again",
             serve::FieldTable({kReviveFields}),
             {"model"},
             [this](const wire::HttpRequest&, serve::Fields& fields, const std::string& who, const HttpReply& reply) {
               revive(fields, who, reply);
             }});
  paths.add({"/v1/load_lora_adapter",
             "POST",
             "Loads a LoRA adapter into the process of its model",
             serve::FieldTable({serve::adapter_load_fields()}),
             {"lora_name", "lora_path"},
             [this](const wire::HttpRequest& request, serve::Fields& fields, const std::string& who,
                    const HttpReply& reply) { load(request.body, fields, who, reply); }});
  paths.add({"/v1/unload_lora_adapter",
             "POST",
             "Lets go of a LoRA adapter",
             serve::FieldTable({serve::adapter_unload_fields()}),
             {"lora_name"},
             [this](const wire::HttpRequest& request, serve::Fields& fields, const std::string& who,
                    const HttpReply& reply) { unload(request.body, fields, who, reply); }});
}

void ProcessRequests::ask(size_t process, const char* method, const std::string& path, std::string body, Duration limit,
                          std::function<void(int, std::string)> then) {
  const UpstreamTerms& terms = upstreams_[process];
  wire::TransferRequest transfer;
  transfer.request = {.url = terms.url + path,
                      .method = method,
                      .headers = {{"Authorization", fmt::format("Bearer {}", terms.key)}},
                      .body = std::move(body),
                      .connect_limit = kMetricsLimit,
                      .limit = limit,
                      .largest_answer = kLargestPage};
  if (!transfer.request.body.empty()) transfer.request.headers.emplace_back("Content-Type", "application/json");
  transfer.first_byte = transfer.silence = limit;
  asked_.emplace(transfers_->start(std::move(transfer)), Asked{.model = terms.name, .then = std::move(then)});
}

void ProcessRequests::take_events() {
  for (wire::TransferEvent& event : transfers_->take_events()) {
    const auto found = asked_.find(event.transfer);
    if (found == asked_.end()) continue;
    if (event.head) found->second.status = event.head->status;
    found->second.body += event.bytes;
    if (!event.ended) continue;
    Asked asked = std::move(found->second);
    asked_.erase(found);
    if (!event.outcome.ok()) {
      const bool late = event.outcome.code() == Code::kDeadline;
      asked.status = late ? 504 : 503;
      asked.body = dump_json(serve::error_body(
          asked.status, fmt::format("the process of the model \"{}\" {}", asked.model,
                                    late ? "has not answered in time" : "ended before it answered this request")));
    }
    asked.then(asked.status, std::move(asked.body));
  }
}

void ProcessRequests::answer_metrics(std::string own, const HttpReply& reply) {
  struct Gathered {
    std::vector<MetricsPage> pages;
    size_t open = 0;
    HttpReply reply;
    void take_one() {
      if (--open > 0) return;
      reply({.headers = {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}}, .body = merge_metrics(pages)});
    }
  };
  const auto views = processes_.views();
  const auto gathered = std::make_shared<Gathered>();
  gathered->reply = reply;
  gathered->pages.resize(1 + views.size());
  gathered->pages[0].text = std::move(own) + process_metrics(views);
  gathered->open = 1;
  for (size_t i = 0; i < views.size(); ++i) {
    if (views[i].state != "serving") continue;
    ++gathered->open;
    ask(i, "GET", "/metrics", "", kMetricsLimit,
        [gathered, i, name = views[i].names.front()](int status, std::string body) {
          if (status == 200) gathered->pages[1 + i] = {.process = name, .text = std::move(body)};
          gathered->take_one();
        });
  }
  gathered->take_one();
}

Json ProcessRequests::process_list() const {
  Json data = Json::array();
  for (const ProcessView& view : processes_.views()) {
    Json adapters = Json::array();
    for (const auto& adapter : view.adapters) adapters.push_back(adapter.name);
    data.push_back({{"model", view.names.front()},
                    {"names", view.names},
                    {"pid", view.pid < 0 ? Json() : Json(view.pid)},
                    {"state", view.state},
                    {"since", view.since},
                    {"restarts", view.restarts},
                    {"memory_bytes", view.memory_bytes},
                    {"memory_limit_bytes", view.memory_limit},
                    {"last_cause", view.last_cause},
                    {"adapters", std::move(adapters)}});
  }
  return {{"processes", std::move(data)}};
}

Json ProcessRequests::described(Json entry) const {
  const std::string name = entry["id"].get<std::string>();
  for (const ProcessView& view : processes_.views()) {
    const auto adapter = std::ranges::find(view.adapters, name, &ProcessAdapter::name);
    const bool adapted = adapter != view.adapters.end();
    if (!adapted && std::ranges::find(view.names, name) == view.names.end()) continue;
    if (adapted) {
      entry["root"] = adapter->directory.string();
      entry["parent"] = view.names.front();
      entry["created"] = adapter->created;
    }
    if (view.max_model_len > 0) entry["max_model_len"] = view.max_model_len;
  }
  return entry;
}

HttpResponse ProcessRequests::readiness(const std::string& model, double share) const {
  const auto views = processes_.views();
  std::optional<size_t> only;
  if (!model.empty()) {
    only = process_of(views, model);
    if (!only) only = process_with_adapter(views, model);
    if (!only) return no_model(views, model);
  }
  Json states = Json::object();
  std::vector<std::string> missing;
  for (size_t i = 0; i < views.size(); ++i) {
    if (only && *only != i) continue;
    states[views[i].names.front()] = views[i].state;
    if (views[i].state != "serving") missing.push_back(fmt::format("{} ({})", views[i].names.front(), views[i].state));
  }
  if (missing.empty()) {
    Json body = {{"status", "ok"}, {"models", std::move(states)}};
    if (share < 1) body["admission_share"] = share;
    return json_response(200, body);
  }
  Json body = serve::error_body(503, fmt::format("not all models can answer: {}", join(missing, ", ")));
  body["models"] = std::move(states);
  auto response = json_response(503, body);
  response.headers.emplace_back("Retry-After", "5");
  return response;
}

void ProcessRequests::revive(serve::Fields& fields, const std::string& who, const HttpReply& reply) {
  const std::string name = fields.text("model");
  const auto views = processes_.views();
  const auto process = process_of(views, name);
  if (!process) return reply(no_model(views, name));
  if (!processes_.revive(*process)) {
    return reply(error_response(
        409, fmt::format("the process of the model \"{}\" has not failed: it is {}", name, views[*process].state)));
  }
  spdlog::info("an admin ({}) has the process of \"{}\" tried again", who, name);
  changed_();
  reply(json_response(200, {{"status", "starting"}, {"model", views[*process].names.front()}}));
}

void ProcessRequests::load(const std::string& body, serve::Fields& fields, const std::string& who,
                           const HttpReply& reply) {
  const std::string name = fields.text("lora_name"), base = fields.text("base_model");
  const auto views = processes_.views();
  const auto process = process_of(views, base);
  if (!process) return reply(no_model(views, base));
  const auto holder = process_with_adapter(views, name);
  if (process_of(views, name) || (holder && *holder != *process)) {
    return reply(error_response(400,
                                fmt::format("\"{}\" is a {} already; unload it first, or take another name", name,
                                            holder ? "lora adapter of another model" : "model"),
                                "lora_name"));
  }
  if (views[*process].state != "serving") return reply(away(views[*process]));
  spdlog::info("an admin ({}) asks for the adapter \"{}\" of \"{}\"", who, name, views[*process].names.front());
  ask(*process, "POST", "/v1/load_lora_adapter", body, kLoadLimit,
      [this, process = *process, name, reply](int status, std::string answer) {
        const auto json = parse_json(answer);
        if (status == 200 && json && json->is_object()) {
          processes_.add_adapter(process, {.name = name, .directory = json->value("root", std::string())});
          changed_();
        }
        reply(passed(status, std::move(answer)));
      });
}

void ProcessRequests::unload(const std::string& body, serve::Fields& fields, const std::string& who,
                             const HttpReply& reply) {
  const std::string name = fields.text("lora_name");
  const auto views = processes_.views();
  const auto process = process_with_adapter(views, name);
  if (!process) {
    std::vector<std::string> names;
    for (const auto& view : views) {
      for (const auto& adapter : view.adapters) names.push_back(adapter.name);
    }
    return reply(error_response(404,
                                fmt::format("the lora adapter '{}' cannot be found; there is {}", name,
                                            names.empty() ? "none" : join(names, ", ")),
                                "lora_name"));
  }
  if (views[*process].state != "serving") return reply(away(views[*process]));
  spdlog::info("an admin ({}) asks to unload the adapter \"{}\"", who, name);
  ask(*process, "POST", "/v1/unload_lora_adapter", body, kLoadLimit,
      [this, process = *process, name, reply](int status, std::string answer) {
        if (status == 200 || status == 404) {
          processes_.remove_adapter(process, name);
          changed_();
        }
        reply(passed(status, std::move(answer)));
      });
}

}  // namespace tandem::gateway
