// `tandem embed`.
#include <fmt/format.h>

#include <array>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "cli/command.h"
#include "cli/json_lines.h"
#include "model/text_encoder.h"

namespace tandem::cli {

namespace {

constexpr size_t kWaitingTexts = 4096;  // read ahead at most

struct EmbedOptions {
  JsonLinesOptions lines;
  std::string model;
  int threads = static_cast<int>(std::thread::hardware_concurrency());
};

// A line that has been read, and the tokens of its text or what is wrong with it.
struct Text {
  Json id;
  Result<std::vector<model::TokenId>> tokens;
  bool truncated = false;
};

// Texts on their way from the thread that reads to the one that computes. Any thread.
class TextQueue {
 public:
  // Waits while the queue is full; false where nobody takes any more.
  bool put(Text text) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return texts_.size() < kWaitingTexts || closed_; });
    if (closed_) return false;
    texts_.push_back(std::move(text));
    changed_.notify_all();
    return true;
  }

  // Those that are there, up to a batch of them: a caller that writes a line and waits for its answer gets it at once.
  // Waits for one; none where the queue is closed and empty.
  std::vector<Text> take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !texts_.empty() || closed_; });
    std::vector<Text> batch;
    size_t tokens = 0;
    while (!texts_.empty()) {
      tokens += texts_.front().tokens ? texts_.front().tokens->size() : 0;
      if (!batch.empty() && tokens > model::kEncoderBatchTokens) break;
      batch.push_back(std::move(texts_.front()));
      texts_.pop_front();
    }
    changed_.notify_all();
    return batch;
  }

  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Text> texts_;
  bool closed_ = false;
};

Text read_text(const JsonLine& line, const model::TextEncoder& encoder) {
  Text text{.id = line.id, .tokens = {}};
  const auto read = [&]() -> Result<std::vector<model::TokenId>> {
    const Json& object = TRY(line.object);
    const auto found = object.find("text");
    if (found == object.end() || !found->is_string()) return fail(Status::invalid("\"text\" must be a string"));
    auto tokens = TRY(encoder.tokens(found->get_ref<const std::string&>()));
    text.truncated = tokens.truncated;
    return std::move(tokens.ids);
  };
  text.tokens = read();
  if (!text.tokens && line.object) {
    text.tokens = fail(std::move(text.tokens).error().at(fmt::format("line {}", line.number)));
  }
  return text;
}

// Answers all texts of a batch in order.
Status answer(const model::TextEncoder& encoder, kernels::Stream& stream, std::span<Text> batch,
              JsonLinesWriter& writer) {
  std::vector<std::vector<model::TokenId>> tokens;
  for (Text& text : batch) {
    if (text.tokens) tokens.push_back(std::move(*text.tokens));
  }
  const auto embeddings = TRY(encoder.embed_tokens(stream, tokens));
  auto next = embeddings.begin();
  for (const Text& text : batch) {
    if (!text.tokens) {
      TRY(writer.answer(text.id, text.tokens.error()));
      continue;
    }
    Json embedding = Json::array();
    for (int i = 0; i < encoder.config().width; ++i) embedding.push_back(*next++);
    Json result = {{"embedding", std::move(embedding)}};
    if (text.truncated) result["truncated"] = true;
    TRY(writer.answer(text.id, result));
  }
  return {};
}

Result<int> run(const EmbedOptions& options) {
  auto stream = TRY(kernels::Stream::cpu(options.threads));
  const auto encoder = TRY(model::TextEncoder::load(options.model, stream));
  static constexpr std::array<std::string_view, 1> kKeys = {"text"};
  JsonLinesReader reader = TRY(JsonLinesReader::open(options.lines.input, kKeys));
  JsonLinesWriter writer = TRY(JsonLinesWriter::open(options.lines.output));
  TextQueue queue;
  Status answered, trouble;
  std::jthread worker([&] {
    for (auto batch = queue.take(); answered.ok() && !batch.empty(); batch = queue.take()) {
      answered = answer(encoder, stream, batch, writer);
    }
    queue.close();
  });
  for (;;) {
    auto line = reader.next();
    if (!line) trouble = line.error();
    if (!line || !*line) break;
    if (!queue.put(read_text(**line, encoder))) break;
  }
  queue.close();
  worker.join();
  TRY(std::move(answered));
  TRY(std::move(trouble));
  return writer.exit_code();
}

}  // namespace

Action add_embed(CLI::App& command) {
  auto options = std::make_shared<EmbedOptions>();
  add_json_lines_options(command, options->lines);
  command.add_option("--model", options->model, "Directory of a BERT sentence encoder (Hugging Face layout)")
      ->required();
  command.add_option("--threads", options->threads, "Threads to compute with")->check(CLI::Range(1, 1024));
  command.footer(
      "Example:\n  echo '{\"id\":1,\"text\":\"The file was deleted.\"}' | tandem embed --model "
      "models/all-MiniLM-L6-v2");
  return [options] { return run(*options); };
}

}  // namespace tandem::cli
