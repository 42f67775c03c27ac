// results.json, and all files of an outcome written
#include <fmt/format.h>

#include "base/file.h"
#include "eval/outcome_files.h"

namespace tandem::eval {

Json results_json(const Verdict& verdict) {
  Json out = Json::object();
  const Json night = to_json(verdict.night), summary = to_json(verdict.summary);
  out["format"] = 1;
  for (const auto& [key, value] : night.items()) {
    if (key != "tasks") out[key] = value;
  }
  for (const auto& [key, value] : summary.items()) out[key] = value;
  out["exit"] = static_cast<int>(verdict.code);
  out["gates"] = to_json(verdict.gates);
  out["against"] = verdict.against ? to_json(*verdict.against) : Json();
  out["blessed"] = verdict.blessed ? to_json(*verdict.blessed) : Json();
  out["tasks"] = night.at("tasks");
  return out;
}

Status write_outcome(const Verdict& verdict, const fs::path& directory) {
  const auto transcript = [&](const SampleResult& sample) -> Json {
    if (sample.transcript.empty()) return {};
    const auto text = read_file(directory / sample.transcript);
    return text ? parse_json(*text).value_or(Json()) : Json();
  };
  // All are written aside first: a disk that is full leaves those of an earlier call as they are, none beside
  // another's.
  const fs::path aside = directory / ".outcome.tmp";
  std::error_code ignored;
  fs::remove_all(aside, ignored);  // of a call that was killed
  const auto write = [&]() -> Status {
    TRY(make_directories(aside));
    TRY(write_file(aside / "junit.xml", junit_xml(verdict)));
    TRY(write_file(aside / "report.md", report_markdown(verdict)));
    TRY(write_file(aside / "report.html", report_page(verdict, transcript)));
    TRY(write_file(aside / "history.jsonl", history_text(verdict.history)));
    TRY(write_file(aside / "results.json", results_json(verdict).dump(2) + "\n"));
    // Last: where it is, the others are.
    for (const char* name : {"junit.xml", "report.md", "report.html", "history.jsonl", "results.json"}) {
      std::error_code error;
      fs::rename(aside / name, directory / name, error);
      if (error) return Status::from_errno(fmt::format("rename {}", (directory / name).string()), error.value());
    }
    return {};
  };
  const Status status = write();
  fs::remove_all(aside, ignored);
  return status;
}

}  // namespace tandem::eval
