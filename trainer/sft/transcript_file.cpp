#include "trainer/sft/transcript_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <vector>

#include "base/text.h"

namespace tandem::trainer {

namespace {

constexpr size_t kTranscriptFileLongest = size_t{64} << 20;

// Lines of a file, each within kTranscriptFileLongest; one that is longer is passed over and said to be.
class Lines {
 public:
  explicit Lines(std::FILE* file) : file_(file) {}

  enum class Next : uint8_t { kLine, kTooLong, kEnd };
  Next next(std::string& line) {
    line.clear();
    bool any = false, too_long = false;
    for (;;) {
      if (begin_ == end_) {
        begin_ = 0;
        end_ = std::fread(block_.data(), 1, block_.size(), file_.get());
        if (end_ == 0) break;
      }
      any = true;
      const std::string_view rest(block_.data() + begin_, end_ - begin_);
      const size_t newline = rest.find('\n');
      const size_t length = std::min(newline, rest.size());
      too_long = too_long || line.size() + length > kTranscriptFileLongest;
      if (!too_long) line += rest.substr(0, length);
      begin_ += length;
      if (newline == std::string_view::npos) continue;
      ++begin_;
      break;
    }
    if (!any) return Next::kEnd;
    return too_long ? Next::kTooLong : Next::kLine;
  }
  bool failed() const { return std::ferror(file_.get()) != 0; }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::unique_ptr<std::FILE, Close> file_;
  std::vector<char> block_ = std::vector<char>(1 << 16);
  size_t begin_ = 0, end_ = 0;  // of what is left of the block
};

// Whether the file is one document over several lines: its first line opens one and does not end it.
bool opens_a_document(std::string_view first_line) {
  const auto text = trim(first_line);
  return text == "{" || text == "[" || (text.starts_with('[') && !text.ends_with(']'));
}

}  // namespace

Status visit_transcripts(const fs::path& file, const std::function<Status(int line, Result<Json> value)>& visit) {
  std::error_code error;
  if (fs::is_directory(file, error)) return Status::invalid("is a folder, not a file").at(file.string());
  std::FILE* const opened = std::fopen(file.c_str(), "rbe");
  if (opened == nullptr) return Status::from_errno(file.string(), errno);
  Lines lines(opened);
  std::string line;
  bool any = false;
  for (int number = 1;; ++number) {
    const auto next = lines.next(line);
    if (next == Lines::Next::kEnd) break;
    if (next == Lines::Next::kTooLong) {
      any = true;
      TRY(visit(number, fail(Status::invalid(fmt::format("is longer than {}", format_bytes(kTranscriptFileLongest))))));
      continue;
    }
    if (trim(line).empty()) continue;
    if (!any && opens_a_document(line)) {
      auto document = parse_json(TRY(read_file(file, kTranscriptFileLongest)));
      if (document && document->is_array())
        return Status::invalid("is a list of JSON; transcripts stand one a line")
            .at(file.string())
            .hint(fmt::format("jq -c '.[]' {} > {}l", file.string(), file.string()));
      return visit(number, std::move(document));
    }
    any = true;
    TRY(visit(number, parse_json(line)));
  }
  if (lines.failed()) return Status::from_errno(file.string(), EIO);
  if (!any) return Status::invalid("is empty: there is no transcript in it").at(file.string());
  return {};
}

}  // namespace tandem::trainer
