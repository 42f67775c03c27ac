// The usage log: a line of JSON for each sampled request, appended as it ends.
//
// Nothing of what was said is in it. Thread safety: none.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/file.h"
#include "base/json.h"

namespace tandem::serve {

// The line of one request.
struct UsageLine {
  double time = 0;  // Unix seconds at its end
  std::string id, key, model;
  std::string adapter;  // beside the model; empty: none, and the line does not say it
  std::string path, priority, outcome;
  std::string upstream = {};  // of a gateway: which one answered; empty: left out
  uint64_t prompt_tokens = 0, cached_tokens = 0, answer_tokens = 0;
  double seconds = 0;  // since it came
  // Seconds of computing it alone, its share of each pass by rows, on all threads; nothing where another process
  // computed it, and the line does not say it.
  std::optional<double> core_seconds = {};
  // Of the answer's tokens, those that a candidate had said before this version went on; 0: left out.
  uint64_t taken_over_tokens = 0;
};

class UsageLog {
 public:
  // Empty: nothing is written.
  static Result<UsageLog> open(const fs::path& path);

  // The file of that name once more, which another program may have moved away. One that cannot be opened is an error,
  // and the file before it stays.
  Status reopen();
  // A line that cannot be written is counted and said; the server goes on.
  void write(const UsageLine& usage);
  uint64_t lost() const { return lost_; }
  // Key, tokens and time of the lines since `since` (Unix seconds), oldest first; of a log above 256 MiB, those in its
  // last 256 MiB. Lines that are torn are left out.
  Status visit_since(double since,
                     const std::function<void(const std::string& key, double tokens, double time)>& visit) const;

 private:
  UsageLog(fs::path path, FileDescriptor file) : path_(std::move(path)), file_(std::move(file)) {}
  fs::path path_;
  FileDescriptor file_;
  uint64_t lost_ = 0;
  bool torn_ = false;  // the last line may have no end
};

}  // namespace tandem::serve
