// The files that an evaluation leaves in its folder, for scripts, CI systems and people.
//
// All are written, or none of them is replaced. They are a function of what the folder holds, of the evaluations that
// it is compared with and of the gates: written again, they are the same bytes.
#pragma once

#include <functional>

#include "eval/gates.h"
#include "eval/history.h"

namespace tandem::eval {

struct Verdict {
  Night night;
  NightSummary summary;
  std::optional<NightComparison> against, blessed;
  std::vector<GateResult> gates;
  std::vector<HistoryLine> history;  // the last one is this night's
  ExitCode code = kDone;
};

// results.json, junit.xml, report.md, report.html, history.jsonl. `directory` has the transcripts. An error, as of a
// disk that is full, leaves what an earlier call wrote.
Status write_outcome(const Verdict& verdict, const fs::path& directory);

Json results_json(const Verdict& verdict);
// JUnit's XML: a test case a task.
std::string junit_xml(const Verdict& verdict);
// Markdown for a pull request: the verdict, gates, what regressed, then all tasks.
std::string report_markdown(const Verdict& verdict);
// A page that needs no server and no network. `transcript` gives what a sample's file holds, null where it has none.
std::string report_page(const Verdict& verdict, const std::function<Json(const SampleResult&)>& transcript);

}  // namespace tandem::eval
