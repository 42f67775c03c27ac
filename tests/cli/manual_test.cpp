// Man pages and completions, made of the help that commands have.
#include <gmock/gmock.h>

#include "cli/command.h"
#include "tests/cli/run_fixture.h"

namespace tandem {
namespace {

using testing::HasSubstr;

class ManualTest : public testing::Test {
 protected:
  ManualTest() {
    std::string name = (fs::temp_directory_path() / "tandem-manual-XXXXXX").string();
    if (::mkdtemp(name.data()) != nullptr) folder_ = name;
  }
  ~ManualTest() override { fs::remove_all(folder_); }

  std::string said() const { return text(folder_ / "out"); }
  int run(const Arguments& arguments) const { return Process(arguments, folder_ / "out").wait(60s); }

  fs::path folder_;
};

TEST_F(ManualTest, every_command_has_a_page_with_its_options) {
  ASSERT_EQ(run({TANDEM_BINARY, "manual", "man", folder_.string()}), 0) << said();
  const std::string all = text(folder_ / "tandem.1");
  for (const cli::Command& command : cli::commands()) {
    EXPECT_THAT(all, HasSubstr("\\fB" + std::string(command.name) + "\\fR")) << command.name;
    EXPECT_THAT(text(folder_ / ("tandem-" + std::string(command.name) + ".1")), HasSubstr(".SH SYNOPSIS"))
        << command.name;
  }
  EXPECT_THAT(text(folder_ / "tandem-run.1"), HasSubstr("\\-\\-resume\\-or\\-start"));
  EXPECT_TRUE(fs::exists(folder_ / "tandem-eval-history.1"));
  // A line that begins with a dot is a request: none comes from a help text.
  for (const auto& entry : fs::directory_iterator(folder_)) {
    if (entry.path().extension() != ".1") continue;
    const std::string page = text(entry.path());
    for (const auto line : split_lines(page)) {
      const bool is_known = !line.starts_with('.') || line.starts_with(".TH ") || line.starts_with(".SH ") ||
                            line == ".TP" || line == ".nf" || line == ".fi";
      EXPECT_TRUE(is_known) << entry.path() << ": " << line;
    }
  }
}

TEST_F(ManualTest, bash_completes_commands_and_their_options) {
  ASSERT_EQ(run({TANDEM_BINARY, "manual", "bash"}), 0);
  fs::rename(folder_ / "out", folder_ / "tandem.bash");
  const auto completed = [&](const std::string& words) {
    const std::string script = "source " + (folder_ / "tandem.bash").string() + "; COMP_WORDS=(" + words +
                               "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _tandem; echo \"${COMPREPLY[@]}\"";
    EXPECT_EQ(run({"/bin/bash", "-c", script}), 0) << said();
    return std::string(trim(said()));
  };
  EXPECT_EQ(completed("tandem lau"), "launch");
  EXPECT_EQ(completed("tandem eval hist"), "history");
  EXPECT_EQ(completed("tandem run x.yaml --res"), "--resume --resume-or-start");
  EXPECT_EQ(completed("tandem eval history --js"), "--json");
  EXPECT_EQ(completed("tandem run some.ya"), "") << "files are bash's";
}

}  // namespace
}  // namespace tandem
