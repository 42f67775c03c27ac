#include "cli/json_lines.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/json_line.h"
#include "base/text.h"
#include "cli/command.h"

namespace tandem::cli {
namespace {

constexpr size_t kLongestLine = 256 << 20;

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r\n") == std::string_view::npos; }

// What is wrong with `object` as a line, `id` taken out of it.
Status take_id(Json& object, Json& id, std::span<const std::string_view> keys) {
  if (!object.is_object()) return Status::invalid("is not an object");
  if (const auto found = object.find("id"); found != object.end()) {
    if (!found->is_string() && !found->is_number() && !found->is_null())
      return Status::invalid("id is neither a string nor a number");
    id = *found;
    object.erase("id");
  }
  for (const auto& [key, value] : object.items()) {
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
    return Status::invalid(fmt::format("unknown key \"{}\"{}", key, did_you_mean(key, keys)));
  }
  return {};
}

}  // namespace

void add_json_lines_options(CLI::App& command, JsonLinesOptions& options) {
  command.add_option("--input", options.input, "JSON Lines to read; - is standard input")->capture_default_str();
  command.add_option("--output", options.output, "JSON Lines to write; - is standard output")->capture_default_str();
}

void JsonLinesReader::Close::operator()(std::FILE* file) const {
  if (file != stdin) std::fclose(file);
}

void JsonLinesWriter::Close::operator()(std::FILE* file) const {
  if (file != stdout) std::fclose(file);
}

Result<JsonLinesReader> JsonLinesReader::open(const std::string& path, std::span<const std::string_view> keys) {
  JsonLinesReader reader;
  reader.path_ = path == "-" ? "standard input" : path;
  reader.keys_ = keys;
  reader.file_.reset(path == "-" ? stdin : std::fopen(path.c_str(), "rbe"));
  if (!reader.file_) return fail(Status::from_errno(path, errno));
  return reader;
}

Result<std::optional<JsonLine>> JsonLinesReader::next() {
  for (;;) {
    char* buffer = nullptr;
    size_t capacity = 0;
    const ssize_t length = ::getline(&buffer, &capacity, file_.get());
    const std::unique_ptr<char, decltype(&std::free)> owner(buffer, &std::free);
    if (length < 0) {
      if (std::ferror(file_.get())) return fail(Status::from_errno(path_, errno));
      return std::optional<JsonLine>();
    }
    ++number_;
    const std::string_view text(buffer, static_cast<size_t>(length));
    if (is_blank(text)) continue;
    JsonLine line{.number = number_, .object = Json()};
    const auto place = fmt::format("line {}", number_);
    if (text.size() > kLongestLine) {
      line.object = fail(Status::invalid(fmt::format("is longer than {}", format_bytes(kLongestLine))).at(place));
      return std::optional(std::move(line));
    }
    line.object = parse_json(trim(text));
    Status status = line.object ? take_id(*line.object, line.id, keys_) : line.object.error();
    if (!status.ok()) line.object = fail(std::move(status).at(place));
    return std::optional(std::move(line));
  }
}

Result<JsonLinesWriter> JsonLinesWriter::open(const std::string& path) {
  JsonLinesWriter writer;
  writer.path_ = path == "-" ? "standard output" : path;
  writer.file_.reset(path == "-" ? stdout : std::fopen(path.c_str(), "wbe"));
  if (!writer.file_) return fail(Status::from_errno(path, errno));
  return writer;
}

Result<JsonLinesWriter> JsonLinesWriter::take_standard_output() {
  JsonLinesWriter writer;
  writer.path_ = "standard output";
  const int descriptor = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (descriptor < 0 || ::dup2(STDERR_FILENO, STDOUT_FILENO) < 0) return fail(Status::from_errno(writer.path_, errno));
  writer.file_.reset(::fdopen(descriptor, "w"));
  if (!writer.file_) return fail(Status::from_errno(writer.path_, errno));
  return writer;
}

Status JsonLinesWriter::put(const Json& id, const Json& fields) {
  Json line = Json::object();
  if (!id.is_null()) line["id"] = id;
  line.update(fields);
  const std::string text = dump_json_line(line) + "\n";
  if (std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size() || std::fflush(file_.get()) != 0) {
    return Status::from_errno(path_, errno);
  }
  return {};
}

Status JsonLinesWriter::answer(const Json& id, const Json& result) { return put(id, result); }

Status JsonLinesWriter::answer(const Json& id, const Status& error) {
  any_failed_ = true;
  return put(id, {{"error", {{"message", error.to_string()}, {"code", to_string(error.code())}}}});
}

Status JsonLinesWriter::answer(const Json& id, const Result<Json>& outcome) {
  return outcome ? answer(id, *outcome) : answer(id, outcome.error());
}

int JsonLinesWriter::exit_code() const { return any_failed_ ? kFailed : kDone; }

Result<int> run_json_lines(const JsonLinesOptions& options, std::span<const std::string_view> keys,
                           const std::function<Result<Json>(const Json& line)>& answer) {
  JsonLinesReader reader = TRY(JsonLinesReader::open(options.input, keys));
  const bool takes = options.alone_on_output && options.output == "-";
  JsonLinesWriter writer = TRY(takes ? JsonLinesWriter::take_standard_output() : JsonLinesWriter::open(options.output));
  for (;;) {
    const auto line = TRY(reader.next());
    if (!line) return writer.exit_code();
    if (!line->object) {
      TRY(writer.answer(line->id, line->object.error()));
      continue;
    }
    Result<Json> outcome = answer(*line->object);
    if (!outcome) outcome = fail(std::move(outcome).error().at(fmt::format("line {}", line->number)));
    TRY(writer.answer(line->id, outcome));
  }
}

}  // namespace tandem::cli
