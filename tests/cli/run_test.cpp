// The whole loop with real processes, sockets and sandboxes, on the tiny model.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <set>

#include "base/digest.h"
#include "base/file.h"
#include "base/json.h"
#include "base/random.h"
#include "base/text.h"
#include "cli/run_layout.h"

namespace tandem {
namespace {

using Arguments = std::vector<std::string>;

// A child that is ended with the test.
class Process {
 public:
  Process(const Arguments& arguments, const fs::path& output) {
    std::vector<char*> raw;
    for (const auto& argument : arguments) raw.push_back(const_cast<char*>(argument.c_str()));
    raw.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      if (!std::freopen(output.c_str(), "w", stdout) || !std::freopen(output.c_str(), "a", stderr)) ::_exit(126);
      ::execv(raw[0], raw.data());
      ::_exit(127);
    }
  }
  ~Process() {
    if (pid_ > 0) signal(SIGKILL), wait();
  }
  void signal(int number) const { ::kill(pid_, number); }
  bool running() {
    if (pid_ <= 0) return false;
    if (::waitpid(pid_, &status_, WNOHANG) == 0) return true;
    pid_ = -1;
    return false;
  }
  int wait() {
    if (pid_ > 0) ::waitpid(pid_, &status_, 0);
    pid_ = -1;
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : -WTERMSIG(status_);
  }

 private:
  pid_t pid_ = -1;
  int status_ = 0;
};

class RunTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    root() = fs::temp_directory_path() / ("tandem-run-test-" + std::to_string(::getpid()));
    ASSERT_TRUE(make_directories(root()));
    // The tiny model is made once; the runs of the tests start from it.
    ASSERT_EQ(run({"run.steps=0", "tasks.heldout=0"}, root() / "first"), 0) << text(root() / "out");
    fs::rename(root() / "first" / "model", root() / "model");
  }
  static void TearDownTestSuite() {
    std::error_code ignored;
    fs::remove_all(root(), ignored);
  }
  static fs::path& root() {
    static fs::path path;
    return path;
  }
  static std::string text(const fs::path& path) { return read_file(path).value_or(""); }

  static Arguments command(const Arguments& overrides, const fs::path& run_dir) {
    Arguments arguments = {TANDEM_BINARY, "run", TANDEM_SOURCE_DIR "/configs/tiny.yaml", "--run-dir", run_dir.string()};
    if (fs::exists(root() / "model")) arguments.push_back("model.path=" + (root() / "model").string());
    arguments.insert(arguments.end(), overrides.begin(), overrides.end());
    return arguments;
  }
  static int run(const Arguments& overrides, const fs::path& run_dir) {
    return Process(command(overrides, run_dir), root() / "out").wait();
  }
  static Json json(const fs::path& path) { return parse_json(text(path)).value_or(Json::object()); }

  static std::vector<Json> episodes(const fs::path& run_dir, bool tokens = false) {
    Arguments arguments = {TANDEM_BINARY, "episodes", run_dir.string()};
    if (tokens) arguments.push_back("--tokens");
    EXPECT_EQ(Process(arguments, root() / "episodes").wait(), 0) << text(root() / "episodes");
    std::vector<Json> found;
    const std::string all = text(root() / "episodes");
    for (const auto line : split(trim(all), '\n')) found.push_back(parse_json(line).value_or(Json()));
    return found;
  }

  static void expect_books_to_agree(const fs::path& run_dir) {
    const Json summary = json(run_dir / "summary.json");
    ASSERT_TRUE(summary.is_object());
    const Json& books = summary["episodes"];
    uint64_t dropped = 0, outcomes = 0;
    for (const auto& [reason, count] : books["dropped"].items()) dropped += count.get<uint64_t>();
    for (const auto& [outcome, count] : summary["outcomes"].items()) outcomes += count.get<uint64_t>();
    EXPECT_EQ(books["admitted"].get<uint64_t>(),
              books["trained"].get<uint64_t>() + dropped + books["in_flight"].get<uint64_t>());
    EXPECT_EQ(outcomes, books["trained"].get<uint64_t>() + dropped);
    uint64_t trained = 0;
    for (const Json& episode : episodes(run_dir, true)) {
      if (episode["trained_step"].is_null()) continue;
      ++trained;
      EXPECT_TRUE(episode["reward"].is_number()) << episode["episode"];
      EXPECT_FALSE(episode["tokens"].empty()) << "episode " << episode["episode"] << " was trained and is not on disk";
    }
    EXPECT_EQ(trained, books["trained"].get<uint64_t>());
  }

  // Nothing of the run is left outside its folder.
  static void expect_nothing_left(const fs::path& run_dir) {
    EXPECT_FALSE(fs::exists(cli::RunLayout(run_dir).socket_folder()));
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const std::string name = entry.path().filename();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      const std::string line = text(entry.path() / "cmdline");
      EXPECT_EQ(line.find(run_dir.string()), std::string::npos) << "process " << name << " is left: " << line;
    }
  }

  static Digest export_digest(const fs::path& run_dir) {
    return digest_of(text(run_dir / "export" / "model.safetensors"));
  }
};

TEST_F(RunTest, a_run_ends_with_a_summary_whose_books_agree_and_leaves_nothing_behind) {
  const fs::path run_dir = root() / "plain run";  // a path with a space
  ASSERT_EQ(run({"run.steps=3", "tasks.heldout=4"}, run_dir), 0) << text(root() / "out");
  expect_books_to_agree(run_dir);
  expect_nothing_left(run_dir);
  const Json summary = json(run_dir / "summary.json");
  for (const char* key : {"run_id", "exit", "steps", "wall_seconds", "numerics_id", "heldout", "episodes", "outcomes",
                          "logprob", "tokens", "weights", "utilisation", "steals", "restarts", "seconds"}) {
    EXPECT_TRUE(summary.contains(key)) << key;
  }
  EXPECT_EQ(summary["exit"], 0);
  EXPECT_EQ(summary["steps"], 3);
  EXPECT_EQ(summary["logprob"]["max_abs_diff"], 0.0);
  EXPECT_GT(summary["logprob"]["tokens_compared"].get<int>(), 0);
  EXPECT_EQ(summary["heldout"]["before"]["n_tasks"], 4);
  EXPECT_TRUE(fs::exists(run_dir / "report.html"));
  EXPECT_EQ(json(run_dir / "status.json")["state"], "done");
}

TEST_F(RunTest, both_scoring_paths_give_the_bits_that_were_recorded_while_sampling) {
  const fs::path run_dir = root() / "scored";
  ASSERT_EQ(run({"run.steps=2", "tasks.heldout=4"}, run_dir), 0) << text(root() / "out");
  uint64_t compared = 0;
  for (const auto& [version, model] : {std::pair{0, "model"}, {2, "export"}}) {
    std::vector<Json> of_version;
    std::ofstream lines(root() / "lines");
    for (const Json& episode : episodes(run_dir, true)) {
      if (episode["versions"] != Json({version, version}) || episode["tokens"].empty()) continue;
      of_version.push_back(episode);
      lines << Json{{"tokens", episode["tokens"]}}.dump() << "\n";
    }
    lines.close();
    ASSERT_FALSE(of_version.empty());
    for (const char* path : {"engine", "trainer"}) {
      ASSERT_EQ(Process({TANDEM_BINARY, "score", "--model", (run_dir / model).string(), "--path", path, "--input",
                         (root() / "lines").string()},
                        root() / "scores")
                    .wait(),
                0);
      const std::string all = text(root() / "scores");
      const auto scores = split(trim(all), '\n');
      ASSERT_EQ(scores.size(), of_version.size());
      for (size_t i = 0; i < scores.size(); ++i) {
        const Json got = parse_json(scores[i]).value_or(Json());
        for (size_t t = 0; t < of_version[i]["tokens"].size(); ++t) {
          if (of_version[i]["sampled"][t] == 0) continue;
          ASSERT_EQ(got["logprobs"][t].get<float>(), of_version[i]["logprobs"][t].get<float>())
              << path << " version " << version << " token " << t;
          ++compared;
        }
      }
    }
  }
  EXPECT_GT(compared, 200u);
}

TEST_F(RunTest, a_deterministic_run_that_was_interrupted_ends_with_the_same_weights_as_one_that_was_not) {
  const Arguments settings = {"run.steps=4", "tasks.heldout=0", "run.deterministic=true", "trainer.checkpoint_every=2"};
  ASSERT_EQ(run(settings, root() / "whole"), 0) << text(root() / "out");
  const fs::path run_dir = root() / "interrupted";
  {
    Process process(command(settings, run_dir), root() / "out");
    while (process.running() && json(run_dir / "status.json").value("step", 0) < 1) ::usleep(20'000);
    process.signal(SIGTERM);
    const int code = process.wait();
    ASSERT_TRUE(code == 75 || code == 0) << code << text(root() / "out");
  }
  expect_nothing_left(run_dir);
  Arguments resume = command(settings, run_dir);
  resume.push_back("--resume");
  ASSERT_EQ(Process(resume, root() / "out").wait(), 0) << text(root() / "out");
  expect_books_to_agree(run_dir);
  EXPECT_EQ(export_digest(run_dir), export_digest(root() / "whole"));
}

TEST_F(RunTest, a_deterministic_run_does_not_depend_on_who_samples_what) {
  const Arguments settings = {"run.steps=2", "tasks.heldout=0", "run.deterministic=true"};
  ASSERT_EQ(run(settings, root() / "two"), 0) << text(root() / "out");
  Arguments other = settings;
  for (const char* change : {"rollout.workers=3", "rollout.slots=5", "rollout.steal_from=1", "env.threads=1"})
    other.push_back(change);
  ASSERT_EQ(run(other, root() / "three"), 0) << text(root() / "out");
  EXPECT_EQ(export_digest(root() / "two"), export_digest(root() / "three"));
}

// Each role is killed twice at random moments; the run ends well all the same.
TEST_F(RunTest, every_role_may_be_killed_at_any_time) {
  const fs::path run_dir = root() / "killed";
  Process process(command({"run.steps=12", "tasks.heldout=4", "trainer.checkpoint_every=3"}, run_dir), root() / "out");
  Random random(::getpid());
  std::map<std::string, int> kills;
  std::set<pid_t> dead;
  for (int i = 0; i < 4000 && process.running(); ++i) {
    ::usleep(10'000);
    if (!random.chance(0.012)) continue;
    const Json status = json(run_dir / "status.json");
    if (!status.contains("roles") || status["state"] != "running") continue;
    const Json& role = status["roles"][random.below(status["roles"].size())];
    const auto pid = role["pid"].get<pid_t>();
    if (pid <= 0 || kills[role["name"]] >= 2 || !dead.insert(pid).second) continue;
    ++kills[role["name"]];
    ::kill(pid, SIGKILL);
  }
  ASSERT_EQ(process.wait(), 0) << text(root() / "out");
  EXPECT_FALSE(kills.empty());
  expect_books_to_agree(run_dir);
  expect_nothing_left(run_dir);
  EXPECT_EQ(json(run_dir / "summary.json")["logprob"]["max_abs_diff"], 0.0);
}

TEST_F(RunTest, a_killed_supervisor_takes_its_processes_with_it_and_the_next_start_goes_on) {
  const fs::path run_dir = root() / "orphaned";
  const Arguments settings = {"run.steps=6", "tasks.heldout=0", "trainer.checkpoint_every=2"};
  {
    Process process(command(settings, run_dir), root() / "out");
    while (process.running() && json(run_dir / "status.json").value("step", 0) < 1) ::usleep(20'000);
    process.signal(SIGKILL);
    process.wait();
  }
  Arguments resume = command(settings, run_dir);
  resume.push_back("--resume");
  ASSERT_EQ(Process(resume, root() / "out").wait(), 0) << text(root() / "out");
  expect_books_to_agree(run_dir);
  expect_nothing_left(run_dir);
}

TEST_F(RunTest, a_bad_config_names_every_mistake_and_starts_nothing) {
  const fs::path config = root() / "bad.yaml";
  std::ofstream(config)
      << "run:\n  stpes: 3\n  seed: yes\ntrainer:\n  gruop_size: 8\n  learning_rate: 5\nrun:\n  steps: 1\n";
  const fs::path run_dir = root() / "never";
  EXPECT_EQ(Process({TANDEM_BINARY, "run", config.string(), "--run-dir", run_dir.string()}, root() / "out").wait(), 2);
  const std::string said = text(root() / "out");
  for (const char* part :
       {"bad.yaml:2:3: unknown key run.stpes; did you mean run.steps?", "run.seed: \"yes\" is not a number",
        "trainer.group_size?", "trainer.learning_rate: 5 is outside 0 to 1", "run stands twice; first on line 1"}) {
    EXPECT_NE(said.find(part), std::string::npos) << part << "\nin\n" << said;
  }
  EXPECT_FALSE(fs::exists(run_dir));
  EXPECT_EQ(run({"model.path=/nowhere"}, run_dir), 1) << text(root() / "out");
  EXPECT_FALSE(fs::exists(run_dir));
}

}  // namespace
}  // namespace tandem
