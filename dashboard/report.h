// report.html: what came out of a run, in one file that needs no server and no network.
//
// It is a function of what lies in the run directory, finished or not: sections that have nothing to show yet say so.
// Everything that the model, the tools or the config said is escaped.
#pragma once

#include <string>

#include "dashboard/html.h"
#include "dashboard/run_files.h"

namespace tandem::dashboard {

std::string render_report(const RunFiles& run, PageUpdates updates = PageUpdates::kNever);

// Writes RUN/report.html, whole or not at all.
Status write_report(const RunFiles& run);

}  // namespace tandem::dashboard
