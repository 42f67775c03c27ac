#include "cli/run/run_view.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/text.h"
#include "dashboard/live.h"
#include "dashboard/run_files.h"
#include "rollout/books/alarms.h"
#include "run/rewards.h"

namespace tandem::cli {

namespace {

// The algorithm with what its name stands for, and what is beside it.
std::string algorithm_text(const run::RunConfig& config, const trainer::Algorithm& algorithm) {
  const auto& a = config.algorithm;
  std::string text = fmt::format("{}, advantages {}", a.name, to_string(algorithm.advantage));
  if (algorithm.whiten_advantages) text += ", whitened";
  for (const std::string& line : a.kinds) text += "; " + line;
  if (algorithm.correction.kind != trainer::Correction::Kind::kNone) text += "; correction " + a.correction.kind;
  if (algorithm.kl.coefficient > 0) text += fmt::format("; KL {} x {}", a.kl.estimator, algorithm.kl.coefficient);
  if (algorithm.entropy_target.target > 0) text += fmt::format("; entropy held at {}", algorithm.entropy_target.target);
  if (!a.demonstrations.data.empty())
    text += fmt::format("; {} demonstrations a step x {}", a.demonstrations.samples, a.demonstrations.coefficient);
  if (config.trainer.replay_routes) text += "; routes of the sampler";
  return text;
}

}  // namespace

void print_plan(const run::RunConfig& config, const run::Topology& topology, const Schema& schema, const Json& memory,
                const std::string& tasks) {
  const auto& t = config.trainer;
  const int64_t of_step = int64_t{t.groups_per_step} * t.group_size;
  fmt::print("batch     {} groups x {} episodes = {} episodes a step, {} steps, {} episodes in all\n",
             t.groups_per_step, t.group_size, of_step, config.run.steps, of_step * config.run.steps);
  const auto algorithm = run::algorithm_of(config);
  const bool of_groups = algorithm && !trainer::is_of_whole_batch(*algorithm) && !config.algorithm.teacher.any();
  if (const int most = run::dynamic_sampling_of(config); most > 0 && of_groups)
    fmt::print("refilled  groups without a signal, up to {} a step\n", int64_t{most} * t.groups_per_step);
  if (t.epochs * t.minibatches > 1)
    fmt::print("updates   {} epochs x {} minibatches of {} to {} groups = {} of a step\n", t.epochs, t.minibatches,
               t.groups_per_step / t.minibatches, (t.groups_per_step + t.minibatches - 1) / t.minibatches,
               t.epochs * t.minibatches);
  if (const auto& branch = config.rollout.branch; branch.ways > 1) {
    const int trunks = (t.group_size + branch.ways - 1) / branch.ways;
    fmt::print("branches  {} trunks a group, of {} episodes at most; they part after turn {}{}; credit {}\n", trunks,
               branch.ways, branch.first_turn,
               branch.last_turn > branch.first_turn ? fmt::format(" to {}", branch.last_turn) : "",
               config.algorithm.branch_credit);
  }
  fmt::print("tasks     {}\n", tasks);
  const std::string during =
      config.tasks.heldout_every > 0 ? fmt::format(", every {} steps", config.tasks.heldout_every) : "";
  fmt::print("held out  {} tasks x ({} samples + 1 greedy), before{} and after\n", config.tasks.heldout,
             config.tasks.heldout_samples, during);
  if (algorithm) fmt::print("algorithm {}\n", algorithm_text(config, *algorithm));
  fmt::print("reward    {}\n", run::describe_rewards(config));
  if (const auto& teacher = config.algorithm.teacher; teacher.any()) {
    const std::string who =
        !teacher.path.empty() ? teacher.path
        : teacher.is_remote() ? fmt::format("{} at {}", teacher.endpoint.model, teacher.endpoint.url)
                              : fmt::format("the model itself, with a hint of {} tokens at most", teacher.hint_tokens);
    fmt::print("teacher   {}, x {}{}\n", who, teacher.weight,
               config.algorithm.advantage == "distill" ? ", in place of rewards" : "");
  }
  for (const std::string& line : topology.lines()) fmt::print("processes {}\n", line);
  fmt::print("slots     {} of each rollout\n", config.rollout.slots);
  for (const auto& [role, parts] : memory.items()) {
    uint64_t total = 0;
    for (const auto& [what, bytes] : parts.items()) total += bytes.get<uint64_t>();
    fmt::print("memory    {}: {}\n", role, format_bytes(total));
    for (const auto& [what, bytes] : parts.items())
      fmt::print("            {:<32} {}\n", what, format_bytes(bytes.get<uint64_t>()));
  }
  fmt::print("config\n");
  for (const Field& field : schema.fields())
    fmt::print("  {} = {}  ({})\n", field.path, dump_json(field.get()), schema.origin(field.path));
}

Screen::Screen(const fs::path& run_dir, const Clock& clock)
    : run_dir_(run_dir), clock_(clock), started_(clock.now()), tty_(::isatty(STDERR_FILENO) == 1) {}

void Screen::note(const std::string& text) {
  wipe();
  fmt::print(stderr, "{}\n", text);
}

void Screen::show(const Json& report) {
  const Time now = clock_.now();
  if (report.empty() || now < next_) return;
  next_ = now + (tty_ ? std::chrono::milliseconds(500) : std::chrono::seconds(5));
  Json status = report;
  status["time"] = clock_.unix_seconds();
  const auto history = dashboard::read_metrics(run_dir_);
  const Json lines = history ? Json(*history) : Json::array();
  if (tty_) {
    wipe();
    const std::string view = dashboard::render_live(status, lines, 100);
    drawn_ = static_cast<int>(std::count(view.begin(), view.end(), '\n'));
    fmt::print(stderr, "{}", view);
    return;
  }
  const std::string line = dashboard::plain_line(status, lines);
  if (line != last_) fmt::print(stderr, "{:>8}  {}\n", format_seconds(to_seconds(now - started_)), line);
  last_ = line;
}

void Screen::wipe() {
  if (drawn_ > 0) fmt::print(stderr, "\033[{}A\033[J", drawn_);
  drawn_ = 0;
}

namespace {

std::string interval(const Json& rate) {
  if (rate.is_null() || rate["pass_rate"].is_null()) return "-";
  return fmt::format("{:.1f} % [{:.1f}, {:.1f}]", 100 * rate["pass_rate"].get<double>(),
                     100 * rate["ci95"][0].get<double>(), 100 * rate["ci95"][1].get<double>());
}

}  // namespace

void print_result(const fs::path& run_dir, const Json& summary, int steps) {
  const Json& heldout = summary["heldout"];
  fmt::print("\n{} in {}\n", run_dir.string(), format_seconds(summary.value("wall_seconds", 0.0)));
  if (!heldout["before"].is_null() && heldout["before"]["n_tasks"].get<int>() > 0) {
    fmt::print("held-out success   sampled {} -> {}\n                   greedy  {} -> {}\n",
               interval(heldout["before"]), interval(heldout["after"]), interval(heldout["greedy"]["before"]),
               interval(heldout["greedy"]["after"]));
    for (const auto& [name, rate] : heldout["floors"].items())
      fmt::print("  baseline {:<12} {:.1f} %\n", name, 100 * rate.get<double>());
  }
  const Json& books = summary["episodes"];
  uint64_t dropped = 0;
  for (const auto& [reason, count] : books["dropped"].items()) dropped += count.get<uint64_t>();
  fmt::print("episodes           {} admitted = {} trained + {} dropped + {} in flight\n",
             books["admitted"].get<uint64_t>(), books["trained"].get<uint64_t>(), dropped,
             books["in_flight"].get<uint64_t>());
  const auto counts_of = [](const Json& counts) {
    std::string text;
    for (const auto& [what, count] : counts.items())
      if (count.get<uint64_t>() > 0)
        text += fmt::format("{}{} {}", text.empty() ? "" : ", ", what, count.get<uint64_t>());
    return text.empty() ? "none" : text;
  };
  fmt::print("  outcomes         {}\n", counts_of(summary["outcomes"]));
  if (dropped > 0) fmt::print("  dropped          {}\n", counts_of(books["dropped"]));
  for (const Json& failure : summary.value("failures", Json::array()))
    fmt::print("  without a reward {} x {}\n", failure["count"].get<uint64_t>(), failure["reason"].get<std::string>());
  for (const Json& alarm : summary.value("alarms", Json::array()))
    fmt::print("{}\n", rollout::alarm_line(alarm["steps"].back().get<uint64_t>(), alarm));
  const Json& logprob = summary["logprob"];
  if (logprob["max_abs_diff"].is_null())
    fmt::print("trainer = sampler  no tokens were compared\n");
  else
    fmt::print("trainer = sampler  max |logprob difference| {} over {} tokens\n", dump_json(logprob["max_abs_diff"]),
               dump_json(logprob["tokens_compared"]));
  fmt::print("report             {}\n", (run_dir / "report.html").string());
  const fs::path exported = run_dir / "export";
  if (!fs::exists(exported)) return;
  const int trained = summary.value("steps", 0);
  if (trained >= steps)
    fmt::print("trained model      {}\nnext               tandem view {}\n", exported.string(), run_dir.string());
  else  // it had fewer steps to do then
    fmt::print("trained model      none yet: {} of {} steps; {} is of an earlier end\n", trained, steps,
               exported.string());
}

Tensorboard::Tensorboard(const fs::path& run_dir, const Clock& clock)
    : folder_(run_dir / "tb"), clock_(clock), lines_(run_dir) {}

void Tensorboard::follow() {
  if (clock_.now() < next_) return;
  next_ = clock_.now() + std::chrono::seconds(2);
  const auto fresh = lines_.next();
  if (fresh.empty()) return;
  if (!file_) begin();
  for (const Json& line : fresh) add(line);
}

void Tensorboard::finish(const std::vector<Json>& steps) {
  next_ = {};
  follow();
  std::vector<double> wanted;
  for (const Json& line : steps) wanted.push_back(dashboard::number_at(line, "step", -1));
  if (steps.empty() || (file_ && written_ == wanted)) return;
  begin();
  for (const Json& line : steps) add(line);
}

void Tensorboard::begin() {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder_, ignored)) {
    if (entry.path().filename().string().starts_with("events.out.tfevents.")) fs::remove(entry.path(), ignored);
  }
  written_.clear();
  auto file = dashboard::EventFile::create(folder_, clock_);
  if (file) file_ = std::move(*file);
}

void Tensorboard::add(const Json& line) {
  written_.push_back(dashboard::number_at(line, "step", -1));
  if (file_ && !file_->add_line(line).ok()) file_.reset();
}

}  // namespace tandem::cli
