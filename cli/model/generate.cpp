// `tandem generate`.
#include <fmt/format.h>

#include <array>
#include <climits>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "cli/command.h"
#include "cli/json_lines.h"
#include "cli/model/model_options.h"
#include "rollout/engine/engine.h"
#include "serve/constraints.h"

namespace tandem::cli {

namespace {

struct GenerateOptions {
  JsonLinesOptions lines;
  ModelOptions model;
  int slots = 16;
  int workers = 1;
  int max_context = 0;
  int threads = static_cast<int>(std::thread::hardware_concurrency());
};

constexpr std::array<std::string_view, 15> kGenerateKeys = {
    "tokens", "prompt", "messages", "tools",          "max_tokens", "temperature",     "top_p",      "top_k",
    "min_p",  "seed",   "stop",     "stop_token_ids", "ignore_eos", "response_format", "tool_choice"};

struct Request {
  size_t index = 0;  // of the line
  std::vector<int32_t> prompt;
  rollout::TurnRequest turn;
  std::vector<std::string> stop_texts;
  std::optional<model::MessageFormat> format;  // of a chat: the answer is a message
  Json tools;                                  // of the chat
};

struct Answer {
  Json id;
  Result<Json> result;
};

// Takes requests out, in order, to whoever has room; keeps answers until all before them are written.
class Exchange {
 public:
  explicit Exchange(JsonLinesWriter& writer) : writer_(writer) {}

  size_t announce(Json id) {
    std::lock_guard lock(mutex_);
    ids_.push_back(std::move(id));
    return next_index_++;
  }
  void submit(Request request) {
    std::lock_guard lock(mutex_);
    requests_.push_back(std::move(request));
    changed_.notify_all();
  }
  void close() {
    std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }
  // The next request. Nothing where there is none now, or, with `wait`, where there will be none.
  std::optional<Request> take(bool wait) {
    std::unique_lock lock(mutex_);
    if (wait) changed_.wait(lock, [&] { return closed_ || !requests_.empty(); });
    if (requests_.empty()) return std::nullopt;
    Request request = std::move(requests_.front());
    requests_.pop_front();
    return request;
  }
  void answer(size_t index, Result<Json> result) {
    std::lock_guard lock(mutex_);
    answers_.emplace(index, std::move(result));
    for (auto next = answers_.find(written_); next != answers_.end(); next = answers_.find(written_)) {
      if (const Status status = writer_.answer(ids_.front(), next->second); !status.ok()) trouble_ = status;
      ids_.pop_front();
      answers_.erase(next);
      ++written_;
    }
  }
  Status trouble() const { return trouble_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  JsonLinesWriter& writer_;
  std::deque<Request> requests_;
  std::deque<Json> ids_;  // of the lines not yet written
  std::map<size_t, Result<Json>> answers_;
  size_t next_index_ = 0, written_ = 0;
  bool closed_ = false;
  Status trouble_;
};

// The integer `value`, which the request calls `name`.
template <typename T>
Result<T> integer_of(const Json& value, std::string_view name, T least, T most) {
  // A float may be any number at all.
  const auto fits = [&] {
    if (!value.is_number_integer()) return false;
    const auto number = value.get<int64_t>();
    return number >= static_cast<int64_t>(least) && number <= static_cast<int64_t>(most);
  };
  if (fits()) return static_cast<T>(value.get<int64_t>());
  return fail(Status::invalid(
      fmt::format("\"{}\" is {}, expected an integer from {} to {}", name, dump_json(value), least, most)));
}
template <typename T>
Result<T> integer_of(const Json& line, const char* key, T otherwise, T least, T most) {
  return line.contains(key) ? integer_of<T>(line[key], key, least, most) : Result<T>(otherwise);
}
Result<std::vector<int32_t>> tokens_of(const Json& line, const char* key, int vocabulary) {
  std::vector<int32_t> tokens;
  if (!line.contains(key)) return tokens;
  if (!line[key].is_array()) return fail(Status::invalid(fmt::format("\"{}\" must be an array of tokens", key)));
  for (const Json& token : line[key])
    tokens.push_back(TRY(integer_of<int32_t>(token, fmt::format("{}[{}]", key, tokens.size()), 0, vocabulary - 1)));
  return tokens;
}

Result<Request> read_request(const Json& line, const model::ModelConfig& config, const serve::TextSide& side,
                             serve::Constraints& constraints) {
  Request request;
  try {
    if (line.contains("tokens") + line.contains("prompt") + line.contains("messages") != 1)
      return fail(Status::invalid("give one of \"tokens\", \"prompt\" and \"messages\""));
    if (line.contains("tools") && !line.contains("messages"))
      return fail(Status::invalid("\"tools\" go with \"messages\""));
    if (line.contains("tokens")) {
      request.prompt = TRY(tokens_of(line, "tokens", config.vocabulary));
    } else if (!side.tokenizer) {
      return fail(Status::invalid("text needs a tokenizer.json in the model directory"));
    } else if (line.contains("prompt")) {
      request.prompt = TRY(side.tokenizer->encode(line["prompt"].get<std::string>(), model::AddSpecial::kYes));
    } else {
      request.tools = line.value("tools", Json());
      auto rendered = TRY(side.render(line["messages"], request.tools, {.add_generation_prompt = true}));
      request.prompt = std::move(rendered.ids);
      request.format = side.format(!request.tools.is_null(), rendered.text);
    }
    request.turn.max_new_tokens = TRY(integer_of<int>(line, "max_tokens", 256, 1, INT_MAX));
    const int top_k = TRY(integer_of<int>(line, "top_k", 0, 0, INT_MAX));
    request.turn.sampling = {.temperature = line.value("temperature", 1.0f),
                             .top_k = top_k,
                             .top_p = line.value("top_p", 1.0f),
                             .min_p = line.value("min_p", 0.0f)};
    // Any integer; negative ones count as those that have their bits.
    if (line.contains("seed") && !line["seed"].is_number_integer())
      return fail(Status::invalid(fmt::format("\"seed\" is {}, expected an integer", dump_json(line["seed"]))));
    request.turn.seed = line.value("seed", uint64_t{0});
    request.turn.stop_tokens = TRY(tokens_of(line, "stop_token_ids", INT_MAX));
    if (!line.value("ignore_eos", false)) {
      request.turn.stop_tokens.insert(request.turn.stop_tokens.end(), config.eos_tokens.begin(),
                                      config.eos_tokens.end());
    }
    if (line.contains("stop")) {
      if (!side.tokenizer) return fail(Status::invalid("\"stop\" needs a tokenizer.json in the model directory"));
      request.stop_texts = line["stop"].is_string() ? std::vector{line["stop"].get<std::string>()}
                                                    : line["stop"].get<std::vector<std::string>>();
    }
    request.turn.constraint =
        TRY(constraints.of(line, request.format ? std::optional(request.format->dialect) : std::nullopt));
  } catch (const Json::exception& error) {
    return fail(Status::invalid(error.what()));
  }
  return request;
}

// What the assistant said, as OpenAI's chat format has it.
Json message_of(const model::MessageFormat& format, const Json& tools, const std::string& text) {
  const auto parsed = model::parse_message(format, text, tools);
  Json message = {{"role", "assistant"}, {"content", parsed.content}};
  if (!parsed.reasoning.empty()) message["reasoning"] = parsed.reasoning;
  for (const auto& call : parsed.calls) {
    message["tool_calls"].push_back(
        {{"id", call.id.empty() ? fmt::format("call_{}", message["tool_calls"].size()) : call.id},
         {"type", "function"},
         {"function", {{"name", call.name}, {"arguments", dump_json(call.arguments)}}}});
  }
  for (const auto& error : parsed.errors) message["tool_call_errors"].push_back(error.message);
  return message;
}

// One engine, fed from the exchange until it is closed and empty.
class Worker {
 public:
  Worker(rollout::Engine engine, Exchange& exchange, const model::Tokenizer* tokenizer)
      : engine_(std::move(engine)), exchange_(exchange), tokenizer_(tokenizer) {}

  void run() {
    for (;;) {
      while (engine_.free_slots() > 0) {
        auto request = exchange_.take(engine_.idle());
        if (!request) break;
        start(std::move(*request));
      }
      if (engine_.idle()) return;
      auto sampled = engine_.step();
      if (!sampled) return abandon(sampled.error());
      for (const auto& token : *sampled) record(token);
    }
  }

 private:
  struct Running {
    Request request;
    std::vector<int32_t> tokens;
    std::vector<float> logprobs, sampling_logprobs;
  };

  void start(Request request) {
    const size_t index = request.index;
    if (const Status status = engine_.add(index, request.prompt, request.turn); !status.ok()) {
      return exchange_.answer(index, tl::unexpected(status));
    }
    running_[index].request = std::move(request);
  }

  void record(const rollout::SampledToken& token) {
    Running& r = running_.at(token.sequence);
    if (token.turn_ended && token.end == rollout::TurnEnd::kConstraint) {
      engine_.release(token.sequence);
      exchange_.answer(token.sequence,
                       tl::unexpected(Status::exhausted("the constraint can be followed no further: too many readings "
                                                        "of anyOf, or no token of the model goes on")
                                          .hint("let the branches of anyOf differ early")));
      running_.erase(token.sequence);
      return;
    }
    r.tokens.push_back(token.token);
    r.logprobs.push_back(token.logprob);
    r.sampling_logprobs.push_back(token.sampling_logprob);
    bool stopped = token.turn_ended && token.end == rollout::TurnEnd::kStop;
    if (!stopped && !r.request.stop_texts.empty()) {
      const std::string text = tokenizer_->decode(r.tokens);
      for (const auto& stop : r.request.stop_texts) stopped = stopped || text.find(stop) != std::string::npos;
    }
    if (!stopped && !token.turn_ended) return;
    Json answer = {{"tokens", r.tokens}, {"logprobs", r.logprobs}};
    if (!r.request.turn.sampling.plain() || r.request.turn.constraint)
      answer["sampling_logprobs"] = r.sampling_logprobs;
    answer["text"] = tokenizer_ == nullptr ? Json() : Json(tokenizer_->decode(r.tokens));
    answer["finish_reason"] = stopped ? "stop" : "length";
    if (r.request.format) {
      const bool ended = token.turn_ended && token.end == rollout::TurnEnd::kStop;
      answer["message"] = message_of(*r.request.format, r.request.tools,
                                     tokenizer_->decode(std::span(r.tokens).first(r.tokens.size() - ended)));
      if (stopped && answer["message"].contains("tool_calls")) answer["finish_reason"] = "tool_calls";
    }
    engine_.release(token.sequence);
    exchange_.answer(token.sequence, std::move(answer));
    running_.erase(token.sequence);
  }

  void abandon(const Status& status) {
    for (const auto& [index, unused] : running_) exchange_.answer(index, tl::unexpected(status));
  }

  rollout::Engine engine_;
  Exchange& exchange_;
  const model::Tokenizer* tokenizer_;
  std::map<size_t, Running> running_;
};

Result<int> run_generate(const GenerateOptions& options) {
  auto packing = TRY(kernels::Stream::cpu(options.threads));
  auto loaded = std::make_shared<model::Weights>(TRY(load_model(packing, options.model)));
  TRY(loaded->pack(packing));
  const auto& config = loaded->config();
  const serve::TextSide side = TRY(serve::TextSide::load(options.model.model));
  const model::Tokenizer* tokenizer = side.tokenizer_or_null();
  serve::Constraints constraints(side, config);

  JsonLinesWriter writer = TRY(JsonLinesWriter::open(options.lines.output));
  JsonLinesReader reader = TRY(JsonLinesReader::open(options.lines.input, kGenerateKeys));
  Exchange exchange(writer);
  const int max_context = options.max_context > 0 ? options.max_context : std::min(config.max_positions, 4096);
  std::vector<std::unique_ptr<Worker>> workers;
  for (int i = 0; i < options.workers; ++i) {
    auto stream = TRY(kernels::Stream::cpu(std::max(1, options.threads / options.workers)));
    workers.push_back(std::make_unique<Worker>(
        TRY(rollout::Engine::create(loaded, 0, std::move(stream), {.slots = options.slots, .max_tokens = max_context})),
        exchange, tokenizer));
  }
  std::vector<std::jthread> threads;
  for (auto& worker : workers) threads.emplace_back([&] { worker->run(); });
  Status trouble;
  for (;;) {
    auto line = reader.next();
    if (!line) {
      trouble = line.error();
      break;
    }
    if (!*line) break;
    const size_t index = exchange.announce((*line)->id);
    auto request = (*line)->object ? read_request(*(*line)->object, config, side, constraints)
                                   : Result<Request>(tl::unexpected((*line)->object.error()));
    if (!request) {
      exchange.answer(index, tl::unexpected(request.error()));
      continue;
    }
    request->index = index;
    exchange.submit(std::move(*request));
  }
  exchange.close();
  threads.clear();
  TRY(std::move(trouble));
  TRY(exchange.trouble());
  return writer.exit_code();
}

}  // namespace

Action add_generate(CLI::App& command) {
  auto options = std::make_shared<GenerateOptions>();
  add_json_lines_options(command, options->lines);
  add_model_options(command, options->model);
  command.add_option("--slots", options->slots, "Sequences that sample at once, for each worker")
      ->check(CLI::Range(1, 4096));
  command.add_option("--workers", options->workers, "Engines side by side")->check(CLI::Range(1, 64));
  command.add_option("--max-context", options->max_context,
                     "Longest sequence in tokens (default: the model's, at most 4096)");
  command.add_option("--threads", options->threads, "Threads of all workers together")->check(CLI::Range(1, 1024));
  command.footer(
      "Example:\n  echo '{\"prompt\":\"The capital of France is\",\"max_tokens\":8,\"temperature\":0}' | tandem "
      "generate --model models/SmolLM2-135M-Instruct\n"
      "  echo '{\"messages\":[{\"role\":\"user\",\"content\":\"Say hello.\"}],\"max_tokens\":16}' | tandem generate "
      "--model models/SmolLM2-135M-Instruct\n"
      "  echo '{\"messages\":[{\"role\":\"user\",\"content\":\"Name a city.\"}],\"response_format\":"
      "{\"type\":\"json_object\"}}' | tandem generate --model models/SmolLM2-135M-Instruct");
  return [options] { return run_generate(*options); };
}

}  // namespace tandem::cli
