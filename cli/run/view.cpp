// `tandem view`: the report of a run; live on 127.0.0.1 while the run is on.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>

#include "base/clock.h"
#include "base/json_file.h"
#include "base/json_line.h"
#include "cli/command.h"
#include "dashboard/report.h"
#include "dashboard/summary.h"
#include "dashboard/view_server.h"
#include "run/resume.h"

namespace tandem::cli {
namespace {

constexpr double kRenderSeconds = 2;  // between two renderings of a live page

struct ViewOptions {
  std::string run;
  int port = 0;
  bool once = false, json = false;
};

std::atomic<bool> view_stop_requested{false};
void request_view_stop(int) { view_stop_requested = true; }

// What is served, rendered anew when it is asked for and old enough.
class LivePage {
 public:
  LivePage(fs::path run_dir, rollout::RunPlan plan) : run_dir_(std::move(run_dir)), plan_(std::move(plan)) {}

  Result<dashboard::ServedPage> answer(const std::string& path) {
    if (path != "/" && path != "/summary.json") return fail(Status::not_found("there is / and /summary.json"));
    const Time now = clock_.now();
    if (html_.empty() || to_seconds(now - rendered_) >= kRenderSeconds) {
      const auto run = TRY(dashboard::read_run(run_dir_, plan_));
      const bool on = dashboard::is_on(run_dir_, run.status);
      html_ = dashboard::render_report(run, on ? dashboard::PageUpdates::kWhileServed : dashboard::PageUpdates::kNever);
      summary_ = dump_json_line(with_format(dashboard::summarise(run), dashboard::kSummaryFormat)) + "\n";
      rendered_ = clock_.now();
    }
    if (path == "/") return dashboard::ServedPage{"text/html; charset=utf-8", html_};
    return dashboard::ServedPage{"application/json", summary_};
  }

 private:
  const fs::path run_dir_;
  const rollout::RunPlan plan_;
  const SystemClock clock_;
  Time rendered_{};
  std::string html_, summary_;
};

void announce(const ViewOptions& options, bool on, const fs::path& report, const std::string& url) {
  if (options.json) {
    fmt::print("{}\n", dump_json_line(Json{{"running", on},
                                           {"report", report.empty() ? Json() : Json(report.string())},
                                           {"url", url.empty() ? Json() : Json(url)}}));
  } else {
    fmt::print("{}\n", url.empty() ? report.string() : url);
    std::error_code error;
    if (!on && fs::exists(fs::path(options.run) / "export", error))
      fmt::print(stderr, "Next: tandem agent --workspace DIR --model {} \"TASK\"\n",
                 (fs::path(options.run) / "export").string());
  }
  std::fflush(stdout);
}

// RUN/report.html; of a run that this user may only read, a file named after it here, or among temporary files.
Result<fs::path> write_report_somewhere(const dashboard::RunFiles& run, const fs::path& run_dir) {
  if (::access(run_dir.c_str(), W_OK) == 0) {
    TRY(dashboard::write_report(run));
    return run_dir / "report.html";
  }
  const std::string name = fmt::format("{}-report.html", run_dir.filename().string());
  const fs::path here = fs::current_path();
  const fs::path report = (::access(here.c_str(), W_OK) == 0 ? here : fs::temp_directory_path()) / name;
  TRY(write_file(report, dashboard::render_report(run, dashboard::PageUpdates::kNever)));
  fmt::print(stderr, "tandem view: {} cannot be written; the report is {}\n", run_dir.string(), report.string());
  return report;
}

Result<int> view(const ViewOptions& options) {
  TRY(dashboard::check_run_directory(options.run));
  const fs::path run_dir = fs::absolute(options.run).lexically_normal();
  const rollout::RunPlan plan = TRY(run::plan_of(TRY(run::read_resolved(run_dir)), run_dir));
  const bool on = dashboard::is_on(run_dir, TRY(dashboard::read_status(run_dir)));
  if (!on || options.once) {
    const auto run = TRY(dashboard::read_run(run_dir, plan));
    for (const auto& loss : run.losses) fmt::print(stderr, "tandem view: {}\n", loss);
    announce(options, on, TRY(write_report_somewhere(run, run_dir)), "");
    return kDone;
  }
  auto server = TRY(dashboard::ViewServer::listen(static_cast<uint16_t>(options.port)));
  std::signal(SIGINT, request_view_stop);
  std::signal(SIGTERM, request_view_stop);
  announce(options, on, {}, fmt::format("http://127.0.0.1:{}/", server.port()));
  if (!options.json) fmt::print(stderr, "live until Ctrl-C\n");
  LivePage page(run_dir, plan);
  TRY(server.serve([&](const std::string& path) { return page.answer(path); }, view_stop_requested));
  return kDone;
}

}  // namespace

Action add_view(CLI::App& command) {
  const auto options = std::make_shared<ViewOptions>();
  command.add_option("RUN", options->run, "The run directory")->required();
  command.add_option("--port", options->port, "Where a run that is on is served, on 127.0.0.1; 0: any free port")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  command.add_flag(
      "--once", options->once,
      "Write RUN/report.html and end, also while the run is on; of a run that cannot be written, a file here");
  command.add_flag("--json", options->json, "Print {running, report, url}");
  command.footer(
      "Examples:\n"
      "  tandem view runs/tiny-1\n"
      "  tandem view runs/tiny-1 --once");
  return [options] { return view(*options); };
}

}  // namespace tandem::cli
