// `tandem bench ledger`: events, leases, durable commits and restarts of the books of a run.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>

#include "base/random.h"
#include "bench/measure.h"
#include "rollout/books/ledger_log.h"

namespace tandem::bench {

namespace {

using namespace rollout;

constexpr uint64_t kEpisodes = 1'000'000;
constexpr int kWorkers = 256;
constexpr size_t kEventsATurn = 256;  // what a coordinator takes in before it waits for the disk

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

RunPlan long_plan() {
  return {.seed = 1,
          .steps = kMostSteps,
          .groups_per_step = 64,
          .group_size = 16,
          .max_lag = 1,
          .kinds = {"a", "b", "c", "d"},
          .heldout_tasks = 0};
}

// A fleet that commits what it was leased, in any order, and asks for more; a trainer that trains at once.
class Fleet {
 public:
  using Apply = std::function<Result<std::vector<Action>>(const Event&)>;
  explicit Fleet(Apply apply) : apply_(std::move(apply)) {}

  Status start() {
    TRY(send(TrainerJoined{0}));
    for (int i = 0; i < kWorkers; ++i) TRY(send(Pull{name(i), 8}));
    return {};
  }
  // A commit, what follows from it, and the worker's wish for another episode.
  Status turn() {
    const size_t which = random_.below(held_.size());
    const auto [worker, key] = std::exchange(held_[which], held_.back());
    held_.pop_back();
    const uint64_t said = derive_seed(key.episode, {1});
    TRY(send(Commit{.worker = worker,
                    .key = key,
                    .reward = static_cast<double>(said % 2),
                    .terms = {{"tests_passed", 0.5}},
                    .first_version = trained_,
                    .last_version = trained_,
                    .turns = 3,
                    .tool_calls = 2,
                    .prompt_tokens = 400,
                    .sampled_tokens = 200,
                    .seconds = 3.25}));
    ++commits_;
    return send(Pull{worker, 1});
  }
  uint64_t events() const { return events_; }
  uint64_t commits() const { return commits_; }

 private:
  static std::string name(int i) { return "rollout-" + std::to_string(i); }
  Status send(const Event& event) {
    ++events_;
    uint64_t last = trained_;
    for (const Action& action : TRY(apply_(event))) {
      if (const auto* grant = std::get_if<Grant>(&action)) {
        for (const auto& lease : grant->leases) held_.emplace_back(grant->worker, lease.key);
      } else if (const auto* batch = std::get_if<TrainBatch>(&action)) {
        last = batch->step;
      }
    }
    while (trained_ < last) {
      ++trained_;
      TRY(send(Trained{trained_, {}}));
      TRY(send(Checkpointed{trained_}));
    }
    return {};
  }

  Apply apply_;
  Random random_{1};
  std::vector<std::pair<std::string, EpisodeKey>> held_;
  uint64_t trained_ = 0, events_ = 0, commits_ = 0;
};

// Writes that wait for the disk, of as many bytes as the log takes for one turn.
Result<double> disk_waits(const fs::path& folder, double seconds) {
  const fs::path path = folder / "waits";
  FileDescriptor fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  if (!fd) return fail(Status::from_errno(path.string(), errno));
  const std::string bytes(kEventsATurn * 200, 'x');
  return median_seconds(seconds, [&]() -> Status {
    TRY(write_all(fd.get(), bytes, path.string()));
    return ::fdatasync(fd.get()) == 0 ? Status() : Status::from_errno(path.string(), errno);
  });
}

// Leases a second, out of a queue of a hundred thousand.
double lease_rate() {
  RunPlan plan = long_plan();
  plan.heldout_tasks = 20'000;
  Ledger ledger(plan, History::kOpen);
  (void)ledger.step(TrainerJoined{0});
  constexpr int kCredits = 391;  // of each: a little more than all of it
  uint64_t leases = 0;
  const double seconds = seconds_of([&] {
    for (int i = 0; i < kWorkers; ++i) {
      for (const Action& action : ledger.step(Pull{"rollout-" + std::to_string(i), kCredits})) {
        if (const auto* grant = std::get_if<Grant>(&action)) leases += grant->leases.size();
      }
    }
  });
  return static_cast<double>(leases) / seconds;
}

Result<double> commit_rate(const fs::path& folder, double seconds) {
  TRY(record_terms(folder, {long_plan(), {}}, {long_plan(), {}}));
  auto log = TRY(LedgerLog::open(folder));
  Fleet fleet([&](const Event& event) { return log.apply(event); });
  TRY(fleet.start());
  Status status;
  double spent = 0;
  while (status.ok() && spent < seconds) {
    spent += seconds_of([&] {
      const uint64_t end = fleet.events() + kEventsATurn;
      while (status.ok() && fleet.events() < end) status = fleet.turn();
      if (status.ok()) status = log.sync();
    });
  }
  TRY(std::move(status));
  return static_cast<double>(fleet.commits()) / spent;
}

}  // namespace

Result<std::vector<Figure>> bench_ledger(const Settings& settings) {
  auto stream = TRY(kernels::Stream::cpu(1));
  const double bandwidth = kernels::measure_read_bandwidth(stream);
  const double seconds = std::max(0.05, settings.seconds);
  std::vector<Figure> figures;

  Ledger ledger(long_plan(), History::kOpen);
  Fleet fleet([&](const Event& event) -> Result<std::vector<Action>> { return ledger.step(event); });
  TRY(fleet.start());
  const uint64_t episodes = settings.seconds < 0.5 ? kEpisodes / 50 : kEpisodes;
  while (ledger.books().admitted < episodes) {
    for (int i = 0; i < 1000; ++i) TRY(fleet.turn());
  }
  const uint64_t before = fleet.events();
  double spent = 0;
  Status status;
  while (status.ok() && spent < seconds) {
    spent += seconds_of([&] {
      for (int i = 0; status.ok() && i < 1000; ++i) status = fleet.turn();
    });
  }
  TRY(std::move(status));
  const std::string after = fmt::format("after {} episodes", episodes);
  figures.push_back({"event, " + after, spent / static_cast<double>(fleet.events() - before) * 1e6, "us", 0, ""});
  figures.push_back({"leases", lease_rate(), "/s", 0, ""});

  std::string bytes;
  const double saving = seconds_of([&] { bytes = ledger.snapshot(); });
  const double size = static_cast<double>(bytes.size());
  figures.push_back({"snapshot made, " + after, size / saving / 1e9, "GB/s", bandwidth / 1e9, "memory"});
  figures.push_back({"bytes of it an episode", size / static_cast<double>(ledger.books().admitted), "B", 0, ""});
  const double restoring =
      seconds_of([&] { status = [&]() -> Status { return TRY(Ledger::restore(bytes)), Status(); }(); });
  TRY(std::move(status));
  figures.push_back({"snapshot read, " + after, size / restoring / 1e9, "GB/s", bandwidth / 1e9, "memory"});

  const fs::path folder = fs::temp_directory_path() / fmt::format("tandem-bench-ledger-{}", ::getpid());
  TRY(make_directories(folder));
  const auto wait = disk_waits(folder, seconds / 4);
  const auto rate = commit_rate(folder, seconds);
  double replaying = 0;
  uint64_t records = 0;
  if (rate) {
    std::error_code ignored;
    fs::remove(folder / "ledger" / "snapshot", ignored);
    replaying = seconds_of([&] { status = [&]() -> Status { return TRY(LedgerLog::open(folder)), Status(); }(); });
    TRY(read_log(ledger_log_path(folder), [&](std::string_view, uint64_t) { return ++records, Status(); }));
  }
  std::error_code ignored;
  fs::remove_all(folder, ignored);
  TRY(std::move(status));
  // A commit comes with a pull, so half of a turn's events are commits.
  const double commits = TRY(Result<double>(rate)), disk = TRY(Result<double>(wait));
  figures.push_back({"commits, logged and on disk", commits, "/s", kEventsATurn / 2.0 / disk, "disk"});
  figures.push_back({"events replayed", static_cast<double>(records) / replaying, "/s", 0, ""});
  return figures;
}

}  // namespace tandem::bench
