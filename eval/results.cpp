// results.json, and all files of an outcome written
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
  TRY(write_file(directory / "junit.xml", junit_xml(verdict)));
  TRY(write_file(directory / "report.md", report_markdown(verdict)));
  TRY(write_file(directory / "report.html", report_page(verdict, transcript)));
  TRY(write_file(directory / "history.jsonl", history_text(verdict.history)));
  // Last: where it is, the others are.
  return write_file(directory / "results.json", results_json(verdict).dump(2) + "\n");
}

}  // namespace tandem::eval
