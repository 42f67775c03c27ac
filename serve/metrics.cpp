#include "serve/metrics.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

namespace tandem::serve {
namespace {

std::string escaped(std::string_view label) {
  std::string out;
  for (const char c : label) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

std::string labels(const ModelGauges& model) {
  auto text = fmt::format("model_name=\"{}\"", escaped(model.name));
  if (!model.version.empty()) text += fmt::format(",version=\"{}\"", escaped(model.version));
  return text;
}

class Page {
 public:
  explicit Page(std::span<const ModelGauges> models) : models_(models) {}

  // Under our name, and under vLLM's where it has one.
  void value(std::string_view name, std::string_view alias, std::string_view kind, std::string_view about,
             const std::function<double(const ModelGauges&)>& of) {
    for (const auto& whole : names(name, alias)) {
      head(whole, kind, about);
      for (const auto& model : models_) text_ += fmt::format("{}{{{}}} {}\n", whole, labels(model), of(model));
    }
  }
  void histogram(std::string_view name, std::string_view alias, std::string_view about,
                 const std::function<const Histogram&(const ModelGauges&)>& of) {
    for (const auto& whole : names(name, alias)) {
      head(whole, "histogram", about);
      for (const auto& model : models_) {
        const Histogram& h = of(model);
        const auto label = labels(model);
        uint64_t below = 0;
        for (size_t i = 0; i < Histogram::kBounds.size(); ++i) {
          below += h.counts()[i];
          text_ += fmt::format("{}_bucket{{{},le=\"{}\"}} {}\n", whole, label, Histogram::kBounds[i], below);
        }
        text_ += fmt::format("{}_bucket{{{},le=\"+Inf\"}} {}\n", whole, label, h.count());
        text_ += fmt::format("{}_sum{{{}}} {}\n", whole, label, h.sum());
        text_ += fmt::format("{}_count{{{}}} {}\n", whole, label, h.count());
      }
    }
  }
  void head(std::string_view name, std::string_view kind, std::string_view about) {
    text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, about, name, kind);
  }
  void line(std::string_view text) { (text_ += text) += '\n'; }
  std::string take() { return std::move(text_); }

 private:
  static std::vector<std::string> names(std::string_view name, std::string_view alias) {
    std::vector<std::string> all = {fmt::format("tandem_{}", name)};
    if (!alias.empty()) all.push_back(fmt::format("vllm:{}", alias));
    return all;
  }
  std::span<const ModelGauges> models_;
  std::string text_;
};

}  // namespace

void Histogram::observe(double seconds) {
  ++counts_[std::ranges::lower_bound(kBounds, seconds) - kBounds.begin()];
  sum_ += seconds;
  ++count_;
}

std::string prometheus_text(std::span<const ModelGauges> models, std::span<const AdapterGauges> adapters,
                            int most_adapters, double now, const std::map<int, uint64_t>& answers_by_status) {
  using M = const ModelGauges&;
  Page page(models);
  page.value("requests_running", "num_requests_running", "gauge", "Answers that are sampled now.",
             [](M m) { return m.running; });
  page.value("requests_waiting", "num_requests_waiting", "gauge", "Answers that wait for a slot.",
             [](M m) { return m.waiting; });
  page.value("slots", "", "gauge", "Answers that can be sampled at once.", [](M m) { return m.slots; });
  page.value("prompt_tokens_total", "prompt_tokens_total", "counter", "Tokens of prompts.",
             [](M m) { return static_cast<double>(m.metrics->prompt_tokens); });
  page.value("generation_tokens_total", "generation_tokens_total", "counter", "Tokens that were sampled.",
             [](M m) { return static_cast<double>(m.metrics->generation_tokens); });
  page.value("prefix_cache_queries_total", "prefix_cache_queries_total", "counter",
             "Tokens of prompts that were looked for.",
             [](M m) { return static_cast<double>(m.metrics->prompt_tokens); });
  page.value("prefix_cache_hits_total", "prefix_cache_hits_total", "counter",
             "Tokens of prompts that were found computed.",
             [](M m) { return static_cast<double>(m.metrics->cached_tokens); });
  page.value("engine_steps_total", "", "counter", "Passes of the engine.",
             [](M m) { return static_cast<double>(m.engine.steps); });
  page.value("engine_forward_seconds_total", "", "counter", "Time of the model's passes.",
             [](M m) { return m.engine.forward_seconds; });
  page.value("engine_sample_seconds_total", "", "counter", "Time of sampling.",
             [](M m) { return m.engine.sample_seconds; });
  page.value("recomputed_tokens_total", "", "counter", "Tokens whose pages were given up and computed again.",
             [](M m) { return static_cast<double>(m.engine.recomputed_tokens); });
  page.value("preemptions_total", "num_preemptions_total", "counter", "Answers that made room for others.",
             [](M m) { return static_cast<double>(m.engine.preemptions); });
  page.value("drafted_tokens_total", "spec_decode_num_draft_tokens_total", "counter", "Tokens that were guessed.",
             [](M m) { return static_cast<double>(m.engine.drafted_tokens); });
  page.value("accepted_tokens_total", "spec_decode_num_accepted_tokens_total", "counter",
             "Guessed tokens that were sampled.", [](M m) { return static_cast<double>(m.engine.accepted_tokens); });
  page.value("admission_rejections_total", "admission_rejections_total", "counter",
             "Requests that found the queue full.", [](M m) { return static_cast<double>(m.metrics->refused_full); });
  page.value("streams_taken_over_total", "", "counter", "Streams that a candidate had begun and lost, gone on with.",
             [](M m) { return static_cast<double>(m.metrics->streams_taken_over); });
  for (const std::string_view name : {"tandem_request_success_total", "vllm:request_success_total"}) {
    page.head(name, "counter", "Answers that ended, by reason.");
    for (const auto& model : models) {
      for (const auto& [reason, count] : model.metrics->finished) {
        page.line(fmt::format("{}{{{},finished_reason=\"{}\"}} {}", name, labels(model), reason, count));
      }
    }
  }
  page.histogram("queue_seconds", "request_queue_time_seconds", "From a request to its slot.",
                 [](M m) -> const Histogram& { return m.metrics->queue; });
  page.histogram("time_to_first_token_seconds", "time_to_first_token_seconds", "From a request to its first token.",
                 [](M m) -> const Histogram& { return m.metrics->time_to_first_token; });
  page.histogram("inter_token_latency_seconds", "inter_token_latency_seconds", "Between two tokens of an answer.",
                 [](M m) -> const Histogram& { return m.metrics->inter_token; });
  page.histogram("e2e_request_latency_seconds", "e2e_request_latency_seconds", "From a request to its end.",
                 [](M m) -> const Histogram& { return m.metrics->whole; });
  const auto of_adapters = [&](std::string_view name, std::string_view kind, std::string_view about, auto value) {
    if (adapters.empty()) return;
    page.head(name, kind, about);
    for (const auto& one : adapters) {
      page.line(fmt::format("{}{{model_name=\"{}\",adapter=\"{}\"}} {}", name, escaped(one.model), escaped(one.name),
                            value(one)));
    }
  };
  of_adapters("tandem_adapter_bytes", "gauge", "Memory of an adapter's factors.",
              [](const auto& a) { return a.bytes; });
  of_adapters("tandem_adapter_rank", "gauge", "Rank of an adapter.", [](const auto& a) { return a.rank; });
  of_adapters("tandem_adapter_requests_total", "counter", "Requests of an adapter that have ended.",
              [](const auto& a) { return a.requests; });
  of_adapters("tandem_adapter_generation_tokens_total", "counter", "Tokens that they were answered with.",
              [](const auto& a) { return a.answer_tokens; });
  // As vLLM has it, for balancers that send requests to where their adapter is in use: the value is the time.
  std::set<std::string> running, waiting;
  for (const auto& model : models) {
    running.insert(model.running_adapters.begin(), model.running_adapters.end());
    waiting.insert(model.waiting_adapters.begin(), model.waiting_adapters.end());
  }
  if (!adapters.empty()) {
    page.head("vllm:lora_requests_info", "gauge", "Adapters of requests that are sampled, and that wait.");
    page.line(fmt::format(
        "vllm:lora_requests_info{{max_lora=\"{}\",running_lora_adapters=\"{}\",waiting_lora_adapters=\"{}\"}} {}",
        most_adapters, fmt::join(running, ","), fmt::join(waiting, ","), now));
  }
  page.head("tandem_http_responses_total", "counter", "Answers over HTTP, by status.");
  for (const auto& [status, count] : answers_by_status)
    page.line(fmt::format("tandem_http_responses_total{{code=\"{}\"}} {}", status, count));
  return page.take();
}

}  // namespace tandem::serve
