// Commands that read one JSON object a line and answer each with one line, in order.
//
// A line that cannot be read or answered gives {"id", "error": {"message", "code"}} and the command goes on; its exit
// code is then 1 at the end. An `id` (string or number; null is none) is echoed. Blank lines are passed over. Each
// answer is flushed as it is written, so that the other side may wait for it before it sends the next line.
//
// Thread safety: none; the reader and the writer may be used on two different threads.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace tandem::cli {

struct JsonLinesOptions {
  std::string input = "-";   // "-": standard input
  std::string output = "-";  // "-": standard output
  // What else is written to standard output, as by functions of the user, goes to standard error.
  bool alone_on_output = false;
};

// Declares --input and --output.
void add_json_lines_options(CLI::App& command, JsonLinesOptions& options);

struct JsonLine {
  int number = 0;       // from 1
  Json id;              // null where the line has none
  Result<Json> object;  // the line without `id`, or what is wrong with it
};

class JsonLinesReader {
 public:
  // `keys`: those that a line may have beside `id`; they outlive the reader.
  static Result<JsonLinesReader> open(const std::string& path, std::span<const std::string_view> keys);

  // The next line; nothing at the end. An error of the file itself, not of a line, is a failed Result.
  Result<std::optional<JsonLine>> next();

 private:
  struct Close {
    void operator()(std::FILE* file) const;
  };
  std::unique_ptr<std::FILE, Close> file_;
  std::string path_;
  std::span<const std::string_view> keys_;
  int number_ = 0;
};

class JsonLinesWriter {
 public:
  static Result<JsonLinesWriter> open(const std::string& path);
  // Standard output, which then becomes standard error for all others of this process.
  static Result<JsonLinesWriter> take_standard_output();

  // The answer to a line: `id` in front where it is not null.
  Status answer(const Json& id, const Json& result);
  Status answer(const Json& id, const Status& error);
  Status answer(const Json& id, const Result<Json>& outcome);

  // Whether one of the answers was an error.
  int exit_code() const;

 private:
  struct Close {
    void operator()(std::FILE* file) const;
  };
  Status put(const Json& id, const Json& fields);
  std::unique_ptr<std::FILE, Close> file_;
  std::string path_;
  bool any_failed_ = false;
};

// Reads, answers and writes one line after the other; the result is the exit code.
Result<int> run_json_lines(const JsonLinesOptions& options, std::span<const std::string_view> keys,
                           const std::function<Result<Json>(const Json& line)>& answer);

}  // namespace tandem::cli
