#include "tests/cli/run_fixture.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "envs/sandbox/owner.h"

namespace tandem {

namespace {

// Processes of the run, by what they were started with.
std::string processes_of(const fs::path& run_dir) {
  std::string found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (text(entry.path() / "cmdline").find(run_dir.string()) != std::string::npos) found += name + " ";
  }
  return found;
}

// Control groups of spawners that are no more.
std::set<std::string> groups_without_owner() {
  std::set<std::string> found;
  std::error_code error;
  const auto options = fs::directory_options::skip_permission_denied;
  for (auto it = fs::recursive_directory_iterator("/sys/fs/cgroup", options, error);
       it != fs::recursive_directory_iterator(); it.increment(error)) {
    const std::string name = it->path().filename();
    if (!name.starts_with("tandem-")) continue;
    it.disable_recursion_pending();
    if (envs::owner_is_gone(std::string_view(name).substr(7, name.rfind('-') - 7))) found.insert(it->path());
  }
  return found;
}

bool has_line_with(const char* file, const std::string& part) { return text(file).find(part) != std::string::npos; }

// Groups that were there before these tests: of another parent group, which nothing of ours looks into.
std::set<std::string>& groups_of_others() {
  static std::set<std::string> groups;
  return groups;
}

std::string groups_of_ours_without_owner() {
  std::string found;
  for (const std::string& group : groups_without_owner())
    if (!groups_of_others().contains(group)) found += group + " ";
  return found;
}

std::set<std::string> entries(const fs::path& folder) {
  std::set<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) names.insert(entry.path().filename());
  return names;
}

// TMPDIR as these tests found it.
std::string& temporary_before() {
  static std::string folder;
  return folder;
}

}  // namespace

const fs::path& RunTest::root() {
  static const fs::path path = fs::temp_directory_path() / ("tandem-run-test-" + std::to_string(::getpid()));
  return path;
}

void RunTest::SetUpTestSuite() {
  ASSERT_TRUE(make_directories(root() / "tmp"));
  groups_of_others() = groups_without_owner();
  const char* const before = ::getenv("TMPDIR");
  temporary_before() = before != nullptr ? before : "";
  ::setenv("TMPDIR", (root() / "tmp").c_str(), 1);
  if (fs::exists(root() / "model")) return;
  // The runs of the tests start from one tiny model: ctest's, or one made here where these tests run without ctest.
  std::error_code error;
  const fs::path weights = fs::path(TANDEM_TINY_MODEL) / "model.safetensors";
  const auto made = fs::last_write_time(weights, error);
  if (!error && made > fs::last_write_time(TANDEM_BINARY)) {
    fs::copy(TANDEM_TINY_MODEL, root() / "model", fs::copy_options::recursive, error);
    ASSERT_FALSE(error) << error.message();
    return;
  }
  ASSERT_EQ(run({"run.steps=0", "tasks.heldout=0"}, root() / "first"), 0) << text(output());
  fs::rename(root() / "first" / "model", root() / "model");
}

void RunTest::TearDownTestSuite() {
  if (temporary_before().empty())
    ::unsetenv("TMPDIR");
  else
    ::setenv("TMPDIR", temporary_before().c_str(), 1);
  std::error_code ignored;
  // A run that was killed and not gone on with has left its sockets for a next start that does not come.
  for (const auto& entry : fs::directory_iterator(root(), ignored)) {
    if (const auto layout = run::RunLayout::open(entry.path())) fs::remove_all(layout->socket_folder(), ignored);
  }
  fs::remove_all(root(), ignored);
}

Arguments RunTest::command(const Arguments& overrides, const fs::path& run_dir, bool resume) {
  Arguments arguments = {TANDEM_BINARY,
                         "run",
                         TANDEM_SOURCE_DIR "/configs/tiny.yaml",
                         "--run-dir",
                         run_dir.string(),
                         "trainer.groups_per_step=2",
                         "trainer.group_size=6"};
  if (fs::exists(root() / "model")) arguments.push_back("model.path=" + (root() / "model").string());
  arguments.insert(arguments.end(), overrides.begin(), overrides.end());
  if (resume) arguments.push_back("--resume");
  return arguments;
}

int RunTest::run(const Arguments& overrides, const fs::path& run_dir, bool resume) {
  return Process(command(overrides, run_dir, resume), output()).wait();
}

int RunTest::tandem(Arguments arguments) {
  arguments.insert(arguments.begin(), TANDEM_BINARY);
  return Process(arguments, output()).wait();
}

std::vector<Json> RunTest::episodes(const fs::path& run_dir, bool tokens) {
  Arguments arguments = {TANDEM_BINARY, "episodes", run_dir.string()};
  if (tokens) arguments.push_back("--tokens");
  EXPECT_EQ(Process(arguments, root() / "episodes").wait(), 0) << text(root() / "episodes");
  std::vector<Json> found;
  const std::string all = text(root() / "episodes");
  for (const auto line : split(trim(all), '\n')) {
    auto parsed = parse_json(line);
    if (parsed && parsed->is_object()) found.push_back(std::move(*parsed));
  }
  return found;
}

std::string RunTest::logs(const fs::path& run_dir) {
  std::string all;
  std::error_code error;
  for (const auto& entry : fs::recursive_directory_iterator(run_dir / "logs", error)) {
    if (entry.is_regular_file()) all += text(entry.path());
  }
  return all;
}

int RunTest::step_of(const fs::path& run_dir) {
  int step = 0;
  const std::string all = text(run_dir / "metrics.jsonl");
  for (const auto line : split(std::string_view(all).substr(0, all.rfind('\n') + 1), '\n')) {
    const auto metrics = parse_json(line);
    if (metrics && metrics->is_object()) step = std::max(step, metrics->value("step", 0));
  }
  return step;
}

bool RunTest::has_trained(Process& process, const fs::path& run_dir, int step) {
  return within(120s, [&] { return step_of(run_dir) >= step || !process.running(); }) && step_of(run_dir) >= step;
}

bool RunTest::reaches_step(Process& process, const fs::path& run_dir, int step) {
  const auto there = [&] { return step_of(run_dir) >= step && pid_of(run_dir, "trainer") > 0; };
  return within(120s, [&] { return there() || !process.running(); }) && there();
}

pid_t RunTest::pid_of(const fs::path& run_dir, const std::string& name, int rank) {
  const Json status = json(run_dir / "status.json");
  for (const Json& role : status.value("roles", Json::array())) {
    if (role["name"] == name && role["rank"] == rank && role["state"] == "ok")
      return std::max<pid_t>(0, role["pid"].get<pid_t>());
  }
  return 0;
}

bool RunTest::signal(const fs::path& run_dir, pid_t pid, int number) {
  if (pid <= 1 || text("/proc/" + std::to_string(pid) + "/cmdline").find(run_dir.string()) == std::string::npos)
    return false;
  return ::kill(pid, number) == 0;
}

void RunTest::expect_warm_start_of(const fs::path& model) {
  for (const char* each : {"warm", "warm.work"}) fs::remove_all(root() / each);
  ASSERT_EQ(tandem({"sft", TANDEM_SOURCE_DIR "/configs/warm_start.yaml", "model=" + model.string(),
                    "out=" + (root() / "warm").string(), "kinds=[set]", "max_tokens=1024", "transcripts_per_step=4",
                    "stages.first.steps=2", "stages.second.steps=0"}),
            0)
      << text(output());
  EXPECT_NE(text(output()).find("step   2/2"), std::string::npos) << text(output());
}

void RunTest::expect_exact_run_of(const fs::path& model) {
  const fs::path run_dir = root() / "run", out = root() / "exported";
  ASSERT_EQ(run({"run.steps=2", "tasks.heldout=0", kWithSignal, "model.path=" + model.string()}, run_dir), 0)
      << text(output());
  EXPECT_EQ(json(run_dir / "summary.json")["steps"], 2);
  expect_same_logprobs(run_dir);
  expect_books_to_agree(run_dir);
  ASSERT_EQ(tandem({"export", run_dir, out, "--verify", "--json"}), 0) << text(output());
  EXPECT_EQ(json(output())["verified"], true);
  EXPECT_NE(digest_of(text(out / "model.safetensors")), digest_of(text(model / "model.safetensors")));
}

void RunTest::expect_same_logprobs(const fs::path& run_dir) {
  const Json logprob = json(run_dir / "summary.json")["logprob"];
  EXPECT_EQ(logprob["max_abs_diff"], 0.0) << run_dir;
  EXPECT_GT(logprob["tokens_compared"].get<int>(), 0) << run_dir;
}

void RunTest::expect_books_to_agree(const fs::path& run_dir, bool lost) {
  const Json summary = json(run_dir / "summary.json");
  ASSERT_TRUE(summary.contains("episodes"));
  const Json& books = summary["episodes"];
  uint64_t dropped = 0, outcomes = 0;
  for (const auto& [reason, count] : books["dropped"].items()) dropped += count.get<uint64_t>();
  for (const auto& [outcome, count] : summary["outcomes"].items()) outcomes += count.get<uint64_t>();
  EXPECT_EQ(books["admitted"].get<uint64_t>(),
            books["trained"].get<uint64_t>() + dropped + books["in_flight"].get<uint64_t>());
  EXPECT_EQ(outcomes, books["trained"].get<uint64_t>() + dropped);
  const std::vector<Json> all = episodes(run_dir, true);
  EXPECT_EQ(all.size(), books["admitted"].get<uint64_t>());
  uint64_t trained = 0, named = 0;
  for (const Json& episode : all) {
    named += !episode["dropped"].is_null();
    EXPECT_FALSE(!episode["dropped"].is_null() && !episode["trained_step"].is_null()) << episode["episode"];
    // A reward comes with an outcome of the policy and the tokens that earned it, and from nowhere else.
    if (episode["reward"].is_number()) {
      EXPECT_TRUE(episode["outcome"] == "completed" || episode["outcome"] == "truncated") << episode["outcome"];
      EXPECT_GE(episode["reward"].get<double>(), 0);
      EXPECT_LE(episode["reward"].get<double>(), 1);
      EXPECT_TRUE(lost || !episode["tokens"].empty()) << "episode " << episode["episode"] << " is not on disk";
    }
    if (episode["trained_step"].is_null()) continue;
    ++trained;
    EXPECT_TRUE(episode["reward"].is_number()) << episode["episode"];
  }
  EXPECT_EQ(trained, books["trained"].get<uint64_t>());
  EXPECT_EQ(named, dropped);
}

void RunTest::expect_nothing_trained_twice(const fs::path& run_dir) {
  std::map<int, Json> last;
  const std::string lines = text(run_dir / "metrics.jsonl");
  for (const auto line : split(trim(lines), '\n')) {
    auto parsed = parse_json(line);
    if (parsed && parsed->is_object()) last[(*parsed)["step"].get<int>()] = *parsed;
  }
  const int steps = json(run_dir / "summary.json")["steps"].get<int>();
  EXPECT_EQ(static_cast<int>(last.size()), steps);
  std::map<int, uint64_t> of_episodes;  // tokens that a step's loss counts, by the episodes that name the step
  for (const Json& episode : episodes(run_dir, true)) {
    if (episode["trained_step"].is_null()) continue;
    for (const Json& sampled : episode["sampled"])
      of_episodes[episode["trained_step"].get<int>()] += sampled.get<int>();
  }
  for (const auto& [step, metrics] : last) {
    // A report is lost where both who wrote it and who was to hear it were killed.
    if (!metrics.contains("trained_tokens")) continue;
    EXPECT_EQ(metrics["trained_tokens"].get<uint64_t>(), of_episodes[step]) << "step " << step;
  }
}

void RunTest::expect_nothing_left(const fs::path& run_dir) {
  if (const auto layout = run::RunLayout::open(run_dir)) {
    const fs::path sockets = layout->socket_folder();
    EXPECT_FALSE(fs::exists(sockets)) << sockets;
    EXPECT_FALSE(has_line_with("/proc/net/unix", sockets.string()));
  } else {
    EXPECT_EQ(layout.error().code(), Code::kNotFound) << layout.error().to_string();  // a folder without a run
  }
  // A sandbox and its control group end with the process that holds them, which takes the kernel a moment.
  std::string left;
  EXPECT_TRUE(within(60s, [&] { return (left = processes_of(run_dir)).empty(); })) << "processes " << left;
  EXPECT_TRUE(within(60s, [&] { return (left = groups_of_ours_without_owner()).empty(); })) << left;
  EXPECT_FALSE(has_line_with("/proc/self/mounts", "tandem"));
  for (const std::string& name : entries("/dev/shm")) EXPECT_EQ(name.find("tandem"), std::string::npos) << name;
  std::error_code error;
  for (const auto& entry : fs::recursive_directory_iterator(run_dir, error))
    EXPECT_EQ(entry.path().filename().string().find(".tmp"), std::string::npos) << entry.path();
  // Sockets of this run are looked for above; another one may be on.
  const std::string sockets_of_a_run = "tandem-" + std::to_string(::getuid()) + "-";
  for (const std::string& name : entries(root() / "tmp")) EXPECT_TRUE(name.starts_with(sockets_of_a_run)) << name;
}

}  // namespace tandem
