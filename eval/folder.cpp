#include "eval/folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/json_line.h"
#include "base/text.h"

namespace tandem::eval {
namespace {

constexpr const char* kHead = "evaluation.json";
constexpr const char* kLog = "episodes.jsonl";

// Nothing but the record of its lock.
bool holds_nothing(const fs::path& path) {
  std::error_code error;
  return std::all_of(fs::directory_iterator(path, error), {},
                     [](const auto& entry) { return entry.path().filename() == "lock.json"; });
}

// Tasks are named like paths; what else a name may hold stays out of paths.
std::string transcript_name(const SampleResult& sample) {
  std::string name;
  for (const char c : sample.task) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '/';
    name += plain ? c : '_';
  }
  return fmt::format("transcripts/{}/{}.json", name, sample.sample);
}

}  // namespace

Result<std::map<SampleKey, SampleResult>> read_samples(const fs::path& path, uint64_t* whole) {
  std::map<SampleKey, SampleResult> samples;
  const auto text = TRY(read_file(path));
  const size_t end = text.rfind('\n') + 1;  // nothing where there is none
  if (whole != nullptr) *whole = end;
  int number = 0;
  for (const auto line : split(std::string_view(text).substr(0, end), '\n')) {
    ++number;
    if (trim(line).empty()) continue;
    const auto read = [&]() -> Result<SampleResult> { return sample_from_json(TRY(parse_json(line))); };
    auto sample = read();
    if (!sample) return fail(Status(sample.error()).at(path.string(), number));
    SampleKey key(sample->task, sample->sample);
    samples.insert_or_assign(std::move(key), std::move(*sample));
  }
  return samples;
}

Result<FolderHead> read_head(const fs::path& directory) {
  const fs::path path = directory / kHead;
  const auto text = read_file(path);
  if (!text) {
    return fail(Status::invalid("is no folder of an evaluation: it has no evaluation.json")
                    .at(directory.string())
                    .hint("give what --out of `tandem eval` named"));
  }
  const auto read = [&]() -> Result<FolderHead> {
    const Json json = TRY(parse_json(*text));
    FolderHead head;
    head.identity = TRY(identity_from_json(json));
    head.terms = TRY(terms_from_json(json.value("terms", Json::object())));
    return head;
  };
  auto head = read();
  if (!head) return fail(Status(head.error()).at(path.string()));
  return head;
}

Result<EvaluationFolder> EvaluationFolder::open(const fs::path& path, const Identity& identity, const Terms& terms) {
  EvaluationFolder folder;
  folder.path_ = path;
  TRY(make_directories(path));
  auto lock = FolderLock::claim(path, SystemClock());
  if (!lock) {
    const bool in_use = lock.error().code() == Code::kInvalid;
    return fail(std::move(lock).error().hint(in_use ? "wait for the end of that evaluation, or choose another --out"
                                                    : "choose an --out on a file system with locks"));
  }
  folder.lock_ = std::move(*lock);
  std::error_code error;
  if (fs::exists(path / kHead, error)) {
    const auto head = TRY(read_head(path));
    if (const auto difference = first_difference(head.identity, identity); !difference.empty()) {
      return fail(Status::invalid(fmt::format("holds another evaluation: {}", difference))
                      .at(path.string())
                      .hint("give another --out"));
    }
  } else if (!holds_nothing(path)) {
    return fail(Status::invalid("is not empty, and holds no evaluation").at(path.string()).hint("give another --out"));
  }
  Json head = to_json(identity);
  head["terms"] = to_json(terms);
  // A folder that has ended can be judged again on a disk that is full.
  const auto words = head.dump(2) + "\n";
  if (const auto there = read_file(path / kHead); !there || *there != words) TRY(write_file(path / kHead, words));

  const fs::path log = path / kLog;
  uint64_t whole = 0;
  if (fs::exists(log, error)) folder.samples_ = TRY(read_samples(log, &whole));
  folder.log_ = FileDescriptor(::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!folder.log_) return fail(Status::from_errno(log.string(), errno));
  // What a kill or a full disk cut short is run again.
  if (::ftruncate(folder.log_.get(), static_cast<off_t>(whole)) != 0)
    return fail(Status::from_errno(log.string(), errno));
  return folder;
}

Status EvaluationFolder::add(SampleResult sample, const Json& transcript) {
  TRY(lock_->check());
  if (!transcript.is_null()) {
    sample.transcript = transcript_name(sample);
    const fs::path file = path_ / sample.transcript;
    TRY(make_directories(file.parent_path()));
    TRY(write_file(file, dump_json(transcript) + "\n"));
  }
  const auto log = (path_ / kLog).string();
  TRY(write_all(log_.get(), dump_json_line(to_json(sample)) + "\n", log));
  if (::fdatasync(log_.get()) != 0) return Status::from_errno(log, errno);
  SampleKey key(sample.task, sample.sample);
  samples_.insert_or_assign(std::move(key), std::move(sample));
  return {};
}

}  // namespace tandem::eval
