// What a user may get wrong: one clear message, the right exit code, and nothing half-written.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "tests/cli/run_fixture.h"

namespace tandem {
namespace {

class RunInput : public RunTest {
 protected:
  // The tiny model, to be spoilt.
  static fs::path model_copy(const std::string& name) {
    const fs::path copy = root() / name;
    fs::copy(root() / "model", copy, fs::copy_options::recursive);
    return copy;
  }
  static void expect_refused(const fs::path& model, int code, const std::vector<std::string>& words) {
    const fs::path run_dir = root() / "never";
    EXPECT_EQ(run({"model.path=" + model.string()}, run_dir), code) << text(output());
    for (const auto& word : words)
      EXPECT_NE(text(output()).find(word), std::string::npos) << word << "\n" << text(output());
    EXPECT_FALSE(fs::exists(run_dir));
    const std::string said = text(output());
    EXPECT_LE(std::count(said.begin(), said.end(), '\n'), 3) << said;
  }
};

TEST_F(RunInput, a_mistyped_command_or_option_is_answered_with_the_nearest) {
  const std::pair<Arguments, std::string> cases[] = {
      {{"inspct"}, "\"inspct\" is not a command; did you mean \"inspect\"?"},
      {{"tools", "cal", "read_file"}, "\"cal\" is not a command; did you mean \"call\"?\n  see tandem tools --help"},
      {{"run", "x.yaml", "--resum"}, "\"--resum\" is not an option; did you mean \"--resume\"?"},
      {{"tasks", "list", "x", "--cuont=3"}, "did you mean \"--count\"?\n  see tandem tasks list --help"},
      {{"agent", "--modle", "x"}, "\"--modle\" is not an option; did you mean \"--model\"?"}};
  for (const auto& [arguments, expected] : cases) {
    EXPECT_EQ(tandem(arguments), 2);
    EXPECT_NE(text(output()).find(expected), std::string::npos) << text(output());
  }
  EXPECT_EQ(tandem({"run", "--nothing-like-it"}), 2);
  EXPECT_EQ(text(output()).find("did you mean"), std::string::npos) << text(output());
}

// fmt throws where a write fails, and every command ended by SIGABRT.
TEST_F(RunInput, a_standard_error_that_cannot_be_written_ends_nothing_and_a_standard_output_with_an_error) {
  const auto shell = [](const std::string& line) {
    const std::string whole = fmt::format("{} {}", TANDEM_BINARY, line);
    return Process({"/bin/sh", "-c", whole}, output()).wait();
  };
  EXPECT_EQ(shell("config check " TANDEM_SOURCE_DIR "/configs/tiny.yaml algorithm.gamma=0.9 2>/dev/full"), 0)
      << text(output());
  EXPECT_NE(text(output()).find("no mistakes"), std::string::npos);
  EXPECT_EQ(shell("config check " TANDEM_SOURCE_DIR "/configs/tiny.yaml algorithm.gamma=0.9 2>&-"), 0);
  EXPECT_EQ(shell("config check " TANDEM_SOURCE_DIR "/configs/tiny.yaml >&-"), 0) << "nobody wants to read it";
  EXPECT_EQ(shell("confg 2>/dev/full"), 2);
  EXPECT_NE(shell("config check " TANDEM_SOURCE_DIR "/configs/tiny.yaml >/dev/full"), 0);
  EXPECT_NE(text(output()).find("standard output: No space left"), std::string::npos) << text(output());
  EXPECT_NE(shell("config reference >/dev/full"), 0);
  EXPECT_NE(text(output()).find("standard output: "), std::string::npos) << text(output());
}

TEST_F(RunInput, help_that_cannot_be_written_is_an_error) {
  const auto help = fmt::format("{} run --help >/dev/full", TANDEM_BINARY);
  EXPECT_EQ(Process({"/bin/sh", "-c", help}, output()).wait(), 1);
  EXPECT_NE(text(output()).find("standard output: No space left"), std::string::npos) << text(output());
}

// It ended by SIGPIPE, a run in the middle of its training: `tandem run ... 2>&1 | head`.
TEST_F(RunInput, a_standard_error_whose_reader_is_gone_ends_nothing) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::close(ends[0]), 0);
  const auto line = fmt::format("{} config check " TANDEM_SOURCE_DIR "/configs/tiny.yaml algorithm.lambda=0.9 2>&{}",
                                TANDEM_BINARY, ends[1]);
  const int code = Process({"/bin/bash", "-c", line}, output()).wait();
  ::close(ends[1]);
  EXPECT_EQ(code, 0);
  EXPECT_NE(text(output()).find("no mistakes"), std::string::npos) << text(output());
}

// The commands below this one, as its help lists them.
std::vector<std::string> subcommands(const std::string& help) {
  std::vector<std::string> names;
  std::istringstream lines(help.substr(std::min(help.find("Subcommands:\n"), help.size())));
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line) && line.starts_with("  ")) {
    if (line.size() > 2 && line[2] != ' ') names.push_back(line.substr(2, line.find(' ', 2) - 2));
  }
  return names;
}

TEST_F(RunInput, the_help_of_every_command_has_an_example_that_names_it) {
  std::vector<Arguments> left = {{}};
  int count = 0;
  while (!left.empty()) {
    Arguments path = left.back();
    left.pop_back();
    Arguments asked = path;
    asked.push_back("--help");
    ASSERT_EQ(tandem(asked), 0);
    const std::string help = text(output());
    if (path != Arguments{} && path != Arguments{"version"}) {
      const size_t example = help.find("\nExample");
      ASSERT_NE(example, std::string::npos) << help;
      EXPECT_NE(help.find("tandem " + path[0], example), std::string::npos) << help;
      ++count;
    }
    for (const auto& name : subcommands(help)) {
      path.push_back(name);
      left.push_back(path);
      path.pop_back();
    }
  }
  EXPECT_GT(count, 40);
}

TEST_F(RunInput, the_version_is_told_by_a_command_and_by_an_option) {
  ASSERT_EQ(tandem({"version"}), 0);
  const std::string line = text(output());
  EXPECT_TRUE(line.starts_with("tandem ") && line.ends_with("\n")) << line;
  ASSERT_EQ(tandem({"--version"}), 0);
  EXPECT_EQ(text(output()), line);
}

TEST_F(RunInput, the_page_of_all_keys_is_the_one_that_is_printed) {
  ASSERT_EQ(Process({TANDEM_BINARY, "config", "reference"}, output()).wait(), 0);
  EXPECT_EQ(text(output()), text(fs::path(TANDEM_SOURCE_DIR) / "docs" / "config.md"))
      << "tandem config reference > docs/config.md";
}

TEST_F(RunInput, a_run_in_the_place_of_the_config_is_told_how_to_go_on_with) {
  const fs::path run = root() / "a-run";
  ASSERT_TRUE(make_directories(run));
  EXPECT_EQ(tandem({"run", "--resume", run.string()}), 2);
  EXPECT_NE(text(output()).find("a-run: is a folder, not a config"), std::string::npos) << text(output());
  std::ofstream(run / "config.yaml") << "run:\n  steps: 1\n";
  EXPECT_EQ(tandem({"run", "--resume", run.string()}), 2);
  EXPECT_NE(text(output()).find("tandem run --resume --run-dir " + run.string()), std::string::npos) << text(output());
}

TEST_F(RunInput, a_bad_config_names_every_mistake_and_starts_nothing) {
  const fs::path config = root() / "bad.yaml";
  std::ofstream(config)
      << "run:\n  stpes: 3\n  seed: yes\ntrainer:\n  gruop_size: 8\n  learning_rate: 5\nrun:\n  steps: 1\n";
  const fs::path run_dir = root() / "never";
  EXPECT_EQ(tandem({"run", config.string(), "--run-dir", run_dir.string()}), 2);
  const std::string said = text(output());
  for (const char* part :
       {"bad.yaml:2:3: unknown key run.stpes; did you mean run.steps?",
        "bad.yaml:3:3: run.seed: \"yes\" is not a number",
        "bad.yaml:5:3: unknown key trainer.gruop_size; did you mean trainer.group_size?",
        "bad.yaml:6:3: trainer.learning_rate: 5 is outside 0 to 1", "run stands twice; first on line 1"}) {
    EXPECT_NE(said.find(part), std::string::npos) << part << "\nin\n" << said;
  }
  EXPECT_FALSE(fs::exists(run_dir));
  EXPECT_EQ(run({"run.stpes=3"}, run_dir), 2);
  EXPECT_NE(text(output()).find("run.steps?"), std::string::npos) << text(output());
  EXPECT_FALSE(fs::exists(run_dir));
}

TEST_F(RunInput, a_model_that_is_not_there_or_lacks_its_tokenizer_is_named) {
  expect_refused("/nowhere", 2, {"model.path: /nowhere is no model directory"});
  const fs::path model = model_copy("no-tokenizer");
  fs::remove(model / "tokenizer.json");
  expect_refused(model, 1, {model.string() + ": has no tokenizer.json"});
}

TEST_F(RunInput, weights_that_cannot_be_read_are_refused_before_anything_is_started) {
  const fs::path cut = model_copy("cut-weights");
  fs::resize_file(cut / "model.safetensors", fs::file_size(cut / "model.safetensors") / 2);
  expect_refused(cut, 1, {(cut / "model.safetensors").string()});
  const fs::path garbage = model_copy("garbage-weights");
  ASSERT_TRUE(write_file(garbage / "model.safetensors", "\x20\0\0\0\0\0\0\0 this is no JSON, of 32 bytes"));
  expect_refused(garbage, 1, {(garbage / "model.safetensors").string()});
  const fs::path other = model_copy("other-weights");
  Json config = json(other / "config.json");
  config["num_hidden_layers"] = config["num_hidden_layers"].get<int>() + 1;
  ASSERT_TRUE(write_file(other / "config.json", config.dump()));
  expect_refused(other, 1, {other.string(), "model.layers.2."});
}

TEST_F(RunInput, a_gguf_file_that_is_broken_is_refused_and_leaves_no_folder) {
  const std::string whole = text(TANDEM_SOURCE_DIR "/tests/golden/gguf/tiny-llama.gguf");
  ASSERT_GT(whole.size(), 1000u);
  const fs::path out = root() / "imported";
  const auto import = [&](const std::string& name, const std::string& bytes) {
    const fs::path file = root() / name;
    EXPECT_TRUE(write_file(file, bytes));
    const int code = tandem({"import", "--gguf", file.string(), out.string()});
    EXPECT_TRUE(code == 1 || code == 2) << name << " " << code;
    EXPECT_NE(text(output()).find("tandem import: " + file.string()), std::string::npos) << text(output());
    EXPECT_FALSE(fs::exists(out)) << name;
  };
  import("empty.gguf", "");
  import("other.gguf", "PK\3\4" + whole.substr(4));
  for (int i = 1; i < 10; ++i) import("cut.gguf", whole.substr(0, whole.size() * static_cast<size_t>(i) / 10));
  std::string version = whole;
  version[4] = 77;
  import("version.gguf", version);
  // The same file whole is read.
  ASSERT_TRUE(write_file(root() / "whole.gguf", whole));
  EXPECT_EQ(tandem({"import", "--gguf", (root() / "whole.gguf").string(), out.string()}), 0) << text(output());
  EXPECT_TRUE(fs::exists(out / "model.safetensors"));
}

TEST_F(RunInput, a_run_directory_belongs_to_one_run_at_a_time) {
  const fs::path run_dir = root() / "in-use";
  Process process(command({"run.steps=5000", "tasks.heldout=0"}, run_dir), output());
  ASSERT_TRUE(reaches_step(process, run_dir, 1)) << text(output());
  const pid_t trainer = pid_of(run_dir, "trainer");
  for (const bool resume : {false, true}) {
    EXPECT_EQ(Process(command({"run.steps=5000", "tasks.heldout=0"}, run_dir, resume), root() / "second").wait(), 2);
    EXPECT_NE(text(root() / "second").find(" is in use by process " + std::to_string(process.pid())), std::string::npos)
        << text(root() / "second");
  }
  // The first has not noticed.
  const int step = step_of(run_dir);
  ASSERT_TRUE(reaches_step(process, run_dir, step + 1)) << text(output());
  EXPECT_EQ(pid_of(run_dir, "trainer"), trainer);
  process.signal(SIGINT);
  EXPECT_EQ(process.wait(), 75) << text(output());
  // What it left is a run, which is gone on with or left alone.
  EXPECT_EQ(run({}, run_dir), 2);
  EXPECT_NE(text(output()).find("holds a run already"), std::string::npos) << text(output());
}

TEST_F(RunInput, a_signal_before_the_run_has_begun_says_how_to_begin_it) {
  for (const int number : {SIGINT, SIGTERM}) {
    const fs::path run_dir = root() / fmt::format("by signal {}", number), said = run_dir.string() + " said";
    Process process(command({"model.path=tiny"}, run_dir), said);
    ASSERT_TRUE(within(60s, [&] { return text(said).find("tiny model: step") != std::string::npos; }));
    process.signal(number);
    EXPECT_EQ(process.wait(), 75) << text(said);
    EXPECT_NE(text(said).find("before the run began; --resume-or-start begins it"), std::string::npos) << text(said);
  }
}

TEST_F(RunInput, a_folder_that_cannot_be_written_to_is_refused_with_what_to_do) {
  const fs::path folder = root() / "read-only";
  ASSERT_TRUE(make_directories(folder / "there"));
  // Root may write anywhere but there.
  const std::string mount = "mount --bind '" + folder.string() + "' '" + folder.string() +
                            "' && mount -o remount,bind,ro '" + folder.string() + "' && exec";
  for (const char* name : {"there", "not-there"}) {
    std::string line = mount;
    for (const auto& argument : command({}, folder / name)) line += " '" + argument + "'";
    const Arguments unshared = {"/usr/bin/unshare", "--user", "--map-root-user", "--mount", "/bin/sh", "-c", line};
    EXPECT_EQ(Process(unshared, output()).wait(30s), 3) << text(output());
    EXPECT_NE(text(output()).find((folder / name).string()), std::string::npos) << text(output());
    EXPECT_NE(text(output()).find("Read-only file system"), std::string::npos) << text(output());
    EXPECT_NE(text(output()).find("choose another folder"), std::string::npos) << text(output());
  }
}

TEST_F(RunInput, where_no_sandbox_can_be_made_no_run_is_started) {
  // In a user namespace of its own a process may forbid itself further ones, and bubblewrap.
  const fs::path run_dir = root() / "never";
  std::string line =
      "echo 0 > /proc/sys/user/max_user_namespaces && { [ ! -e /usr/bin/bwrap ] || mount --bind /dev/null "
      "/usr/bin/bwrap; } && exec";
  for (const auto& argument : command({}, run_dir)) line += " '" + argument + "'";
  EXPECT_EQ(
      Process({"/usr/bin/unshare", "--user", "--map-root-user", "--mount", "/bin/sh", "-c", line}, output()).wait(), 3)
      << text(output());
  EXPECT_NE(text(output()).find("no sandbox can be made here"), std::string::npos) << text(output());
  EXPECT_NE(text(output()).find("tandem doctor"), std::string::npos) << text(output());
  EXPECT_FALSE(fs::exists(run_dir));
}

}  // namespace
}  // namespace tandem
