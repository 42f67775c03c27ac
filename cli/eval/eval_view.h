// An evaluation as people and scripts see it.
#pragma once

#include "eval/evaluation.h"
#include "eval/outcome_files.h"

namespace tandem::cli {

// "120 of 240 samples, 61.2 % passed, 8 running, about 3m05s left"
std::string progress_text(const eval::EvaluationProgress& progress);

// The verdict in a few lines, or results.json, to stdout.
void print_verdict(const eval::Verdict& verdict, const fs::path& folder, bool json);

// Lines of it; `with` says in a word what it was compared with.
void print_comparison(const char* with, const eval::NightComparison& comparison);

// Night by night, the oldest first.
void print_history(const std::vector<eval::HistoryLine>& lines);

}  // namespace tandem::cli
