// `tandem generate`.
#include <fmt/format.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "cli/command.h"
#include "cli/json_lines.h"
#include "cli/model/generate_request.h"
#include "cli/model/model_options.h"
#include "rollout/engine/draft_model.h"
#include "rollout/engine/no_numbers.h"
#include "run/run_step.h"

namespace tandem::cli {

namespace {

struct GenerateOptions {
  JsonLinesOptions lines;
  ModelOptions model;
  int slots = 16;
  int workers = 1;
  int max_context = 0;
  std::string special_in_content = "text", draft_model;
  int threads = static_cast<int>(std::thread::hardware_concurrency());
};

// One answer of a line.
struct Request {
  size_t index = 0;  // of the line
  size_t choice = 0;
  uint64_t sequence = 0;  // among all of the process
  std::shared_ptr<const GenerateRequest> line;
};

// The answers to one line.
struct Gathered {
  size_t left = 1;
  std::vector<Result<Json>> choices;
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
  void submit(size_t index, GenerateRequest line) {
    std::lock_guard lock(mutex_);
    const auto n = static_cast<size_t>(line.n);
    gathered_[index] = {.left = n, .choices = std::vector<Result<Json>>(n)};
    const auto shared = std::make_shared<const GenerateRequest>(std::move(line));
    for (size_t choice = 0; choice < n; ++choice) requests_.push_back({index, choice, next_sequence_++, shared});
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
  // Takes one of the answers to a line; the first that fails is told for all.
  void answer(const Request& request, Result<Json> result) {
    std::unique_lock lock(mutex_);
    Gathered& gathered = gathered_.at(request.index);
    gathered.choices[request.choice] = std::move(result);
    if (--gathered.left > 0) return;
    const auto choices = std::move(gathered_.extract(request.index).mapped().choices);
    lock.unlock();
    for (const auto& choice : choices)
      if (!choice) return answer(request.index, tl::unexpected(choice.error()));
    if (choices.size() == 1) return answer(request.index, choices[0]);
    Json all = Json::array();
    for (const auto& choice : choices) all.push_back(*choice);
    answer(request.index, Json{{"choices", std::move(all)}});
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
  std::deque<Json> ids_;                 // of the lines not yet written
  std::map<size_t, Gathered> gathered_;  // by line
  std::map<size_t, Result<Json>> answers_;
  uint64_t next_sequence_ = 0;
  size_t next_index_ = 0, written_ = 0;
  bool closed_ = false;
  Status trouble_;
};

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
    rollout::TurnRequest turn = request.line->turn;
    turn.seed += request.choice;
    if (const Status status = engine_.add(request.sequence, request.line->prompt, turn); !status.ok())
      return exchange_.answer(request, tl::unexpected(status));
    const uint64_t sequence = request.sequence;
    running_[sequence].request = std::move(request);
  }

  void record(const rollout::SampledToken& token) {
    const auto found = running_.find(token.sequence);
    if (found == running_.end()) return;  // behind a stop text, of the same pass
    Running& r = found->second;
    if (token.turn_ended && token.end == rollout::TurnEnd::kConstraint) {
      return end(token.sequence,
                 tl::unexpected(Status::exhausted("the constraint can be followed no further: too many readings "
                                                  "of anyOf, or no token of the model goes on")
                                    .hint("let the branches of anyOf differ early")));
    }
    if (Status numbers = rollout::check_are_numbers(std::span(&token.logprob, 1)); !numbers.ok())
      return end(token.sequence, tl::unexpected(std::move(numbers)));
    r.tokens.push_back(token.token);
    r.logprobs.push_back(token.logprob);
    r.sampling_logprobs.push_back(token.sampling_logprob);
    const GenerateRequest& line = *r.request.line;
    bool stopped = token.turn_ended && token.end == rollout::TurnEnd::kStop;
    if (!stopped && !line.stop_texts.empty()) {
      const std::string text = tokenizer_->decode(r.tokens);
      for (const auto& stop : line.stop_texts) stopped = stopped || text.find(stop) != std::string::npos;
    }
    if (stopped || token.turn_ended) end(token.sequence, answer_of(r, token, stopped));
  }

  Json answer_of(const Running& r, const rollout::SampledToken& last, bool stopped) const {
    const GenerateRequest& line = *r.request.line;
    const auto& turn = line.turn;
    Json answer = {{"tokens", r.tokens}, {"logprobs", r.logprobs}};
    if (!turn.sampling.plain() || turn.constraint || turn.presence_penalty != 0 || turn.frequency_penalty != 0 ||
        turn.min_new_tokens > 0)
      answer["sampling_logprobs"] = r.sampling_logprobs;
    answer["text"] = tokenizer_ == nullptr ? Json() : Json(tokenizer_->decode(r.tokens));
    answer["finish_reason"] = stopped ? "stop" : "length";
    if (!line.format) return answer;
    const bool ended = last.turn_ended && last.end == rollout::TurnEnd::kStop;
    answer["message"] = message_of(line, tokenizer_->decode(std::span(r.tokens).first(r.tokens.size() - ended)));
    if (stopped && answer["message"].contains("tool_calls")) answer["finish_reason"] = "tool_calls";
    return answer;
  }

  void end(uint64_t sequence, Result<Json> result) {
    engine_.release(sequence);
    exchange_.answer(running_.at(sequence).request, std::move(result));
    running_.erase(sequence);
  }

  void abandon(const Status& status) {
    for (const auto& [sequence, running] : running_) exchange_.answer(running.request, tl::unexpected(status));
  }

  rollout::Engine engine_;
  Exchange& exchange_;
  const model::Tokenizer* tokenizer_;
  std::map<uint64_t, Running> running_;  // by sequence
};

Result<int> run_generate(GenerateOptions options) {
  options.model.model = TRY(run::model_directory(options.model.model)).string();
  model::Place place = TRY(place_of(options.model.device, options.threads));
  auto packing = TRY(place.host_stream());
  auto loaded = std::make_shared<model::Weights>(TRY(load_model(packing, options.model)));
  TRY(place.ready(*loaded));
  const auto& config = loaded->config();
  serve::TextSide side = TRY(serve::TextSide::load(options.model.model));
  if (options.special_in_content == "tokens") side.special_in_content = model::SpecialInContent::kTokens;
  const model::Tokenizer* tokenizer = side.tokenizer_or_null();
  serve::Constraints constraints(side, config);

  std::vector<std::string_view> keys;
  for (const auto& key : generate_keys()) keys.push_back(key.name);
  JsonLinesWriter writer = TRY(JsonLinesWriter::open(options.lines.output));
  JsonLinesReader reader = TRY(JsonLinesReader::open(options.lines.input, keys));
  Exchange exchange(writer);
  const int max_context = options.max_context > 0 ? options.max_context : std::min(config.max_positions, 4096);
  std::vector<std::unique_ptr<Worker>> workers;
  place.threads = std::max(1, options.threads / options.workers);
  std::shared_ptr<const model::Weights> draft;
  if (!options.draft_model.empty()) {
    const auto directory = TRY(run::model_directory(options.draft_model));
    draft = TRY(rollout::load_draft_weights(directory, options.model.model, place));
  }
  const rollout::EngineSettings settings{
      .slots = options.slots, .max_tokens = max_context, .speculation = rollout::Speculation::kNgram};
  for (int i = 0; i < options.workers; ++i) {
    auto engine = TRY(rollout::Engine::create(loaded, 0, place, settings));
    if (draft) engine.draft_with(TRY(rollout::DraftModel::create(draft, place, settings)));
    workers.push_back(std::make_unique<Worker>(std::move(engine), exchange, tokenizer));
  }
  std::vector<std::jthread> threads;
  for (auto& worker : workers) threads.emplace_back([&] { worker->run(); });
  Status trouble;
  std::set<std::string> warned;
  for (;;) {
    auto line = reader.next();
    if (!line) {
      trouble = line.error();
      break;
    }
    if (!*line) break;
    const size_t index = exchange.announce((*line)->id);
    auto request = (*line)->object ? read_generate_request(*(*line)->object, config, side, constraints)
                                   : Result<GenerateRequest>(tl::unexpected((*line)->object.error()));
    if (!request) {
      exchange.answer(index, tl::unexpected(request.error()));
      continue;
    }
    if (!request->warning.empty() && warned.insert(request->warning).second)
      fmt::print(stderr, "tandem generate: warning: line {}: {}\n", (*line)->number, request->warning);
    exchange.submit(index, std::move(*request));
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
  command.add_option("--draft-model", options->draft_model,
                     "Directory of a smaller draft model with the same tokenizer, for speculative decoding; sampled "
                     "tokens do not change");
  command.add_option("--max-context", options->max_context,
                     "Longest sequence in tokens (default: the model's, at most 4096)");
  command
      .add_option("--special-tokens-in-content", options->special_in_content,
                  "How the text of a special token within a message is encoded: as text, or as that token")
      ->check(CLI::IsMember({"text", "tokens"}));
  command.add_option("--threads", options->threads, "Threads of all workers together")->check(CLI::Range(1, 1024));
  std::string about = "Keys of a line:\n";
  for (const auto& key : generate_keys()) about += fmt::format("  {:<23} {}\n", key.name, key.about);
  command.footer(
      about +
      "Example:\n  echo '{\"prompt\":\"The capital of France is\",\"max_tokens\":8,\"temperature\":0}' | tandem "
      "generate --model models/SmolLM2-135M-Instruct\n"
      "  echo '{\"messages\":[{\"role\":\"user\",\"content\":\"Say hello.\"}],\"max_tokens\":16}' | tandem generate "
      "--model models/SmolLM2-135M-Instruct\n"
      "  echo '{\"messages\":[{\"role\":\"user\",\"content\":\"Name a city.\"}],\"response_format\":"
      "{\"type\":\"json_object\"}}' | tandem generate --model models/SmolLM2-135M-Instruct");
  return [options] { return run_generate(*options); };
}

}  // namespace tandem::cli
