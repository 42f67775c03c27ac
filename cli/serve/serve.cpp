// `tandem serve`.
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <thread>

#include "base/config.h"
#include "base/json_line.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/descriptors.h"
#include "cli/model/model_options.h"
#include "cli/serve/isolated.h"
#include "cli/serve/serve_config.h"
#include "cli/serve/serve_ctl.h"
#include "gateway/gateway.h"
#include "run/run_step.h"
#include "serve/server.h"
#include "trainer/sft/reward_reader.h"

namespace tandem::cli {

namespace {

std::atomic<bool> serve_stop_requested{false};
void request_serve_stop(int) { serve_stop_requested = true; }
std::atomic<bool> serve_keys_requested{false};
void request_serve_keys(int) { serve_keys_requested = true; }

struct ServeOptions {
  std::vector<std::string> models, candidate_folders, adapters, draft_models, upstreams;
  std::string upstream_book, promoted, keys, usage_log, tls_certificate, tls_key;
  std::string host, api_key_file, admin_key_file, embedding_model, config, device, speculation;
  std::optional<int> port, slots, max_tokens, threads, memory_mb;
  bool isolate = false, routes = false;
  NumberFormatOptions format;
};

std::vector<std::string> overrides_of(const ServeOptions& options) {
  std::vector<std::string> overrides;
  const auto text = [&](const char* key, const std::string& value) {
    if (!value.empty()) overrides.push_back(fmt::format("serve.{}={}", key, value));
  };
  const auto number = [&](const char* key, const std::optional<int>& value) {
    if (value) overrides.push_back(fmt::format("serve.{}={}", key, *value));
  };
  text("upstream_book", options.upstream_book);
  text("host", options.host);
  text("api_key_file", options.api_key_file);
  text("admin_key_file", options.admin_key_file);
  text("promoted", options.promoted);
  text("keys", options.keys);
  text("usage_log", options.usage_log);
  text("tls_certificate", options.tls_certificate);
  text("tls_key", options.tls_key);
  text("embedding_model", options.embedding_model);
  text("device", options.device);
  text("speculation", options.speculation);
  number("port", options.port);
  number("slots", options.slots);
  number("max_tokens", options.max_tokens);
  number("threads", options.threads);
  number("memory_mb", options.memory_mb);
  if (options.isolate) overrides.emplace_back("serve.isolate=true");
  if (options.routes) overrides.emplace_back("serve.routes=true");
  return overrides;
}

// "DIR" for the first of `models`, or "NAME=DIR".
Status add_draft_models(const ServeConfig& config, std::vector<serve::LaneSettings>& models) {
  for (const std::string& given : config.draft_models) {
    const auto fault = [&](std::string words) { return Status::invalid(std::move(words)).at("--draft-model"); };
    if (config.speculation == "off") return fault("nothing is guessed with --speculation off");
    const size_t equals = given.find('=');
    const std::string name = equals == std::string::npos ? models.front().names.front() : given.substr(0, equals);
    const auto lane = std::ranges::find_if(
        models, [&](const serve::LaneSettings& one) { return std::ranges::find(one.names, name) != one.names.end(); });
    if (lane == models.end()) return fault(fmt::format("there is no model \"{}\"", name));
    if (!lane->draft_model.empty()) return fault(fmt::format("\"{}\" has two draft models", name));
    const fs::path directory =
        TRY(run::model_directory(equals == std::string::npos ? given : given.substr(equals + 1)));
    std::error_code error;
    lane->draft_model = fs::canonical(directory, error);
    if (error || !fs::is_directory(lane->draft_model))
      return fault(fmt::format("there is no folder {}", directory.string()));
  }
  return {};
}

// CLASS=SECONDS each.
Result<std::array<Duration, serve::kPriorities.size()>> longest_waits(const ServeConfig& config) {
  std::array<Duration, serve::kPriorities.size()> waits = {};
  for (const std::string& given : config.longest_wait) {
    const size_t equals = given.find('=');
    const auto priority = serve::priority_of(std::string_view(given).substr(0, equals));
    double seconds = -1;
    const char* const begin = given.c_str() + std::min(equals, given.size() - 1) + 1;
    const auto [end, error] = std::from_chars(begin, given.c_str() + given.size(), seconds);
    if (!priority || error != std::errc() || *end != 0 || !(seconds >= 0 && seconds <= 86400)) {
      return fail(Status::invalid(fmt::format("\"{}\" is not a class and seconds up to 86400", given))
                      .at("serve.longest_wait")
                      .hint(fmt::format("write CLASS=SECONDS; classes are {}", fmt::join(serve::kPriorities, ", "))));
    }
    waits[static_cast<size_t>(*priority)] = from_seconds(seconds);
  }
  return waits;
}

// Conversations as the training of the reward model wrote them.
Result<serve::RewardReader> reward_reader_of(const fs::path& directory, const model::RewardHead& head) {
  auto reader = std::make_shared<trainer::RewardReader>(TRY(trainer::RewardReader::load(directory, head)));
  return serve::RewardReader([reader](const Json& conversation) { return reader->tokens(conversation); });
}

// "NAME=DIR", or a directory, which is called as its last part. Names of one directory share an engine.
Result<std::vector<serve::LaneSettings>> models_of(const ServeConfig& config, const NumberFormatOptions& format) {
  const model::Place place = TRY(place_of(config.device, config.threads));
  const auto promoted = TRY(serve::read_promoted(config.promoted));
  std::vector<serve::LaneSettings> models;
  for (const std::string& given : config.models) {
    const size_t equals = given.find('=');
    const std::string named = equals == std::string::npos ? given : given.substr(equals + 1);
    fs::path directory = TRY(run::model_directory(named));
    std::error_code error;
    auto whole = fs::canonical(directory, error);
    if (error || !fs::is_directory(whole))
      return fail(Status::invalid(fmt::format("there is no folder {}", directory.string())).at("--model"));
    const std::string name = equals == std::string::npos
                                 ? (directory == named ? whole : fs::path(named)).filename().string()
                                 : given.substr(0, equals);
    if (name.empty()) return fail(Status::invalid(fmt::format("\"{}\" names no model", given)).at("--model"));
    if (const auto kept = promoted.find(name); kept != promoted.end()) {
      whole = fs::canonical(kept->second.folder, error);
      if (error) {
        return fail(Status::invalid(fmt::format("\"{}\" was promoted from {}, which is not there any more", name,
                                                kept->second.folder.string()))
                        .at(config.promoted));
      }
      TRY(serve::check_unchanged(name, kept->second, config.promoted));
      spdlog::info("\"{}\" is {}, which was promoted ({})", name, whole.string(), config.promoted);
    }
    const auto same = std::ranges::find(models, whole, &serve::LaneSettings::directory);
    if (same != models.end()) {
      same->names.push_back(name);
      continue;
    }
    const auto numbers = TRY(number_format(format, whole));
    auto longest_wait = TRY(longest_waits(config));
    const auto speculation = TRY(rollout::speculation_named(config.speculation));
    models.push_back({.names = {name},
                      .directory = whole,
                      .format = numbers,
                      .slots = config.slots,
                      .max_tokens = config.max_tokens,
                      .queue = config.queue,
                      .longest_wait = std::move(longest_wait),
                      .speculation = speculation,
                      .salt_by_key = config.salt_by_key,
                      .routes = config.routes,
                      .place = place,
                      .reward_reader = reward_reader_of});
  }
  TRY(add_draft_models(config, models));
  return models;
}

// "NAME=DIR", or "NAME@MODEL=DIR".
Result<std::vector<serve::AdapterSettings::First>> adapters_of(const ServeConfig& config) {
  std::vector<serve::AdapterSettings::First> adapters;
  for (const std::string& given : config.adapters) {
    const size_t equals = given.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == given.size()) {
      return fail(Status::invalid(fmt::format("\"{}\" names no adapter", given))
                      .at("--adapter")
                      .hint("write NAME=DIR, or NAME@MODEL=DIR"));
    }
    const std::string name = given.substr(0, equals);
    const fs::path directory = given.substr(equals + 1);
    const size_t at = name.find('@');
    std::error_code error;
    const auto whole = fs::canonical(directory, error);
    if (error || !fs::is_directory(whole))
      return fail(Status::invalid(fmt::format("there is no folder {}", directory.string())).at("--adapter"));
    adapters.push_back({.name = name.substr(0, at),
                        .model = at == std::string::npos ? std::string() : name.substr(at + 1),
                        .directory = whole});
  }
  return adapters;
}

serve::FrontSettings front_of(const ServeConfig& config) {
  return {.host = config.host,
          .port = static_cast<uint16_t>(config.port),
          .access = {.key_file = config.api_key_file,
                     .key_book = config.keys,
                     .admin_key_file = config.admin_key_file,
                     .address_requests_per_minute = config.address_requests_per_minute,
                     .usage_log = config.usage_log,
                     .front_key_file = config.front_key_file},
          .tls_certificate = config.tls_certificate,
          .tls_key = config.tls_key,
          .connections = static_cast<size_t>(config.connections),
          .cors_origins = config.cors_origins};
}

serve::TraceSettings traces_of(const ServeConfig& config) {
  return {.most = static_cast<size_t>(config.traces), .slower_than = config.trace_slower_than};
}

void take_signals(const ServeConfig& config) {
  std::signal(SIGTERM, request_serve_stop);
  std::signal(SIGINT, request_serve_stop);
  // Without keys and certificates there is nothing to read again, and a terminal that is closed ends the server.
  const bool has_files = !config.api_key_file.empty() || !config.keys.empty() || !config.admin_key_file.empty() ||
                         !config.tls_certificate.empty();
  if (has_files) std::signal(SIGHUP, request_serve_keys);
  std::signal(SIGPIPE, SIG_IGN);
}

void say_ready(const std::string& url, const std::vector<std::string>& models,
               const std::vector<std::string>& adapters = {}) {
  Json line = {{"url", url}, {"models", models}, {"pid", ::getpid()}};
  if (!adapters.empty()) line["adapters"] = adapters;
  fmt::print("{}\n", dump_json_line(line));
  std::fflush(stdout);
  spdlog::info("serving on {}", url);
}

gateway::GatewaySettings gateway_of(const ServeConfig& config) {
  return {.front = front_of(config),
          .queue = config.queue,
          .wait_seconds = config.upstream_wait_seconds,
          .first_byte_seconds = config.upstream_first_byte_seconds,
          .silence_seconds = config.upstream_silence_seconds,
          .answer_seconds = config.upstream_answer_seconds,
          .probe_seconds = config.upstream_probe_seconds,
          .drain_seconds = config.drain_seconds,
          .traces = traces_of(config),
          .salt_by_key = config.salt_by_key,
          .slow_start = config.slow_start,
          .slow_start_seconds = config.slow_start_seconds,
          .version = TANDEM_VERSION};
}

Result<int> answer_at(gateway::GatewaySettings settings, const ServeConfig& config,
                      const std::vector<std::string>& adapters = {}) {
  // Each request is a connection of a client and one to an upstream.
  constexpr size_t kOtherDescriptors = 512;
  allow_descriptors(2 * settings.front.connections + kOtherDescriptors);
  const SystemClock clock;
  const auto gateway = TRY(gateway::Gateway::listen(std::move(settings), clock));
  take_signals(config);
  spdlog::info(config.isolate ? "starting a process for each model" : "asking the upstreams for their models");
  const auto ready = [&](std::vector<std::string> models) {
    std::erase_if(models, [&](const auto& name) { return std::ranges::find(adapters, name) != adapters.end(); });
    say_ready(gateway->url(), models, adapters);
  };
  TRY(gateway->serve(ready, serve_stop_requested, serve_keys_requested));
  return kDone;
}

// A process for each model, behind one gateway.
Result<int> run_isolated(const ServeConfig& config, const NumberFormatOptions& format) {
  TRY(check_isolated(config));
  const SystemClock clock;
  const auto adapters = TRY(adapters_of(config));
  const auto processes =
      TRY(ModelProcesses::create(processes_of(config, TRY(models_of(config, format)), adapters, format), clock));
  gateway::GatewaySettings settings = gateway_of(config);
  settings.processes = processes.get();
  settings.slots = config.slots * static_cast<int>(processes->upstreams().size());
  settings.upstreams = processes->upstreams();
  // The supervisor says when one is lost; answers take as long as they would in one process.
  settings.first_byte_seconds = settings.silence_seconds = settings.answer_seconds = kLongestAnswerSeconds;
  std::vector<std::string> names;
  for (const auto& adapter : adapters) names.push_back(adapter.name);
  const auto ended = answer_at(std::move(settings), config, names);
  processes->end();
  return ended;
}

// In place of models of its own.
Result<int> run_gateway(const ServeConfig& config) {
  if (!config.models.empty() || !config.embedding_model.empty() || !config.candidate_folders.empty() ||
      !config.promoted.empty() || !config.adapters.empty() || !config.draft_models.empty()) {
    return fail(Status::invalid("a server with upstreams has no models of its own")
                    .hint("serve the models with another `tandem serve`, and name its URL with --upstream"));
  }
  gateway::GatewaySettings settings = gateway_of(config);
  if (!config.upstream_book.empty()) settings.upstreams = TRY(gateway::read_upstreams(config.upstream_book));
  for (const std::string& given : config.upstreams) settings.upstreams.push_back(TRY(gateway::upstream_of(given)));
  return answer_at(std::move(settings), config);
}

Result<int> run_serve(const ServeOptions& options) {
  ServeConfig config;
  Schema schema = config.schema();
  TRY(schema.read(options.config, overrides_of(options)));
  if (!options.models.empty()) config.models = options.models;
  if (!options.candidate_folders.empty()) config.candidate_folders = options.candidate_folders;
  if (!options.adapters.empty()) config.adapters = options.adapters;
  if (!options.draft_models.empty()) config.draft_models = options.draft_models;
  if (!options.upstreams.empty()) config.upstreams = options.upstreams;
  if (config.memory_mb > 0 && !config.isolate) {
    return fail(Status::invalid("--memory-mb is of processes of models, and there are none without --isolate")
                    .hint("give --isolate (serve.isolate: true), or leave serve.memory_mb out"));
  }
  const bool has_upstreams = !config.upstreams.empty() || !config.upstream_book.empty();
  if (has_upstreams && config.isolate)
    return fail(Status::invalid("--isolate is for models of the server's own, and --upstream for those of others")
                    .hint("give one of them"));
  if (has_upstreams) return run_gateway(config);
  if (config.models.empty())
    return fail(Status::invalid("which model? --model DIR says it, or --upstream URL where others serve it"));
  if (config.isolate) return run_isolated(config, options.format);
  auto models = TRY(models_of(config, options.format));
  auto adapters = TRY(adapters_of(config));
  serve::ServerSettings settings{
      .front = front_of(config),
      .models = std::move(models),
      .embedding_model = config.embedding_model,
      .promotions = {.folders = {config.candidate_folders.begin(), config.candidate_folders.end()},
                     .kept = config.promoted},
      .adapters = {.first = std::move(adapters),
                   .folders = {config.candidate_folders.begin(), config.candidate_folders.end()},
                   .count = config.max_adapters,
                   .rank = config.max_adapter_rank,
                   .bytes = static_cast<size_t>(config.adapter_memory_mb) << 20},
      .stored_response_bytes = static_cast<size_t>(config.stored_responses_mb) << 20,
      .traces = traces_of(config),
      .threads = config.threads,
      .drain_seconds = config.drain_seconds,
      .stall_seconds = config.stall_seconds,
      .slow_start = config.slow_start,
      .slow_start_seconds = config.slow_start_seconds,
      .version = TANDEM_VERSION};
  constexpr size_t kOtherDescriptors = 256;
  allow_descriptors(settings.front.connections + kOtherDescriptors);
  const SystemClock clock;
  auto server = TRY(serve::Server::listen(std::move(settings), clock));
  take_signals(config);
  spdlog::info("loading {}", join(server->model_names(), ", "));
  TRY(server->serve([&] { say_ready(server->url(), server->model_names(), server->adapter_names()); },
                    serve_stop_requested, serve_keys_requested));
  return kDone;
}

}  // namespace

Action add_serve(CLI::App& command) {
  auto options = std::make_shared<ServeOptions>();
  command.add_option("--model", options->models, "Model directory, as DIR or NAME=DIR; may be given several times");
  command.add_option(
      "--upstream", options->upstreams,
      "Server that answers in place of models of its own, as URL or NAME=URL; may be given several times");
  command.add_option("--upstreams", options->upstream_book, "Book of upstreams with keys and limits (docs/serving.md)");
  command.add_option("--host", options->host, "Address to listen on (default: 127.0.0.1); off loopback it needs keys");
  command.add_option("--port", options->port, "Port (default: 8000); 0 takes a free one")->check(CLI::Range(0, 65535));
  command.add_option("--api-key-file", options->api_key_file,
                     "File with a key on each line; without one, no key is asked for");
  command.add_option("--keys", options->keys, "Book of keys with names and limits in place of it (docs/serving.md)");
  command.add_option("--tls-certificate", options->tls_certificate, "Chain of certificates, PEM, for https");
  command.add_option("--tls-key", options->tls_key, "Its private key, PEM");
  command.add_option("--usage-log", options->usage_log, "File that gets a line for each request: key, tokens, seconds");
  command.add_option(
      "--admin-key-file", options->admin_key_file,
      "File with a key on each line for admins, who may change the server while it runs, beside those of "
      "the book of keys");
  command.add_option(
      "--adapter", options->adapters,
      "LoRA adapter beside the first model, as NAME=DIR, or beside another as NAME@MODEL=DIR; clients name "
      "it as their model. May be given several times");
  command.add_option("--candidates", options->candidate_folders,
                     "Folder below which new versions may lie that `tandem promote` tries, and adapters that `tandem "
                     "serve ctl load` loads; may be given several times");
  command.add_option("--promoted", options->promoted,
                     "File that keeps what was promoted, so that the next start serves it");
  command.add_option("--slots", options->slots, "Answers of a model that are sampled at once (default: 16)")
      ->check(CLI::Range(1, 4096));
  command
      .add_option("--max-tokens", options->max_tokens,
                  "Most tokens of prompt and answer together (default: the model's, at most 8192)")
      ->check(CLI::Range(2, 1 << 24));
  command.add_option("--embedding-model", options->embedding_model,
                     "Directory of a sentence encoder for /v1/embeddings");
  command.add_option("--device", options->device,
                     "Device: auto, cpu, cpu:avx2 and the like, cuda:0, cuda:0:tensor, emulated:0 (default: cpu)");
  command.add_option("--draft-model", options->draft_models,
                     "Smaller draft model for speculative decoding, as DIR for the first model, or NAME=DIR; sampled "
                     "tokens do not change");
  command.add_option("--speculation", options->speculation, "Speculative decoding: off, ngram (default: ngram)");
  command.add_flag("--routes", options->routes,
                   "Record which experts tokens go to, of a mixture of experts, for requests that ask for them");
  command.add_option("--threads", options->threads, "Threads that compute, of each model (default: all cores)")
      ->check(CLI::Range(1, 1024));
  command.add_flag("--isolate", options->isolate,
                   "Each model in a process of its own, watched and started again: one that is lost costs the others "
                   "nothing");
  command
      .add_option(
          "--memory-mb", options->memory_mb,
          "With --isolate: memory of each process, above which it is ended and started again (default: no limit)")
      ->check(CLI::Range(0, 1 << 24));
  command.add_option("--config", options->config, "YAML file with these and more under `serve` (docs/serving.md)");
  add_number_format_options(command, options->format);
  command.footer(
      "Examples:\n  tandem serve --model models/SmolLM2-135M-Instruct --port 8000\n"
      "  curl http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' -d '{\"model\":"
      "\"SmolLM2-135M-Instruct\",\"messages\":[{\"role\":\"user\",\"content\":\"Say hello.\"}]}'\n"
      "  tandem serve --model coder=runs/tiny/export --host 0.0.0.0 --api-key-file keys.txt\n"
      "  tandem serve --upstream http://10.0.0.1:8000 --upstream http://10.0.0.2:8000\n"
      "  tandem serve --model base=models/SmolLM2-135M-Instruct --adapter sql=runs/sql/adapter --adapter "
      "docs=runs/docs/adapter\n"
      "  tandem serve --model a=models/a --model b=models/b --isolate --memory-mb 8000\n"
      "  tandem serve --model judge=models/judge --port 8100   # a reward model, for reward.http of a run\n"
      "  tandem serve new-key editor >> keys.yaml");
  auto* const self = &command;
  return [options, ctl = add_serve_ctl(command), new_key = add_serve_new_key(command), self]() -> Result<int> {
    if (self->got_subcommand("ctl")) return ctl();
    if (self->got_subcommand("new-key")) return new_key();
    return run_serve(*options);
  };
}

}  // namespace tandem::cli
