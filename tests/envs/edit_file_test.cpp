// GCC 12 sees overlapping and endless copies in sums of strings that are not there (GCC bug 105651).
#pragma GCC diagnostic ignored "-Wrestrict"
#pragma GCC diagnostic ignored "-Wstringop-overflow"

#include "base/clock.h"
#include "envs/tools/sketch.h"
#include "tests/envs/tools_fixture.h"

namespace tandem::envs {
namespace {

using testing::HasSubstr;
using testing::Not;

const std::string kServer =
    "import os\n"
    "\n"
    "class Server:\n"
    "    def start(self):\n"
    "        self.running = True\n"
    "        return self\n"
    "\n"
    "    def stop(self):\n"
    "        self.running = False\n"
    "        return self\n";

std::string applied(const std::string& sketch) {
  const auto text = apply_sketch(kServer, sketch);
  return text ? text->content : text.error().message();
}

std::string replaced_in_server(const std::string& from, const std::string& to) {
  std::string text = kServer;
  return text.replace(text.find(from), from.size(), to);
}

TEST(Sketch, comments_of_words_between_ellipses_stand_for_code_in_any_language) {
  for (const char* line :
       {"// ... existing code ...", "    # ... existing code ...", "/* ... existing code ... */", "-- ... rest ...",
        "<!-- ... existing code ... -->", "{/* ... existing code ... */}", "# \xE2\x80\xA6 as before \xE2\x80\xA6",
        "//... existing code...", "; ... same ...", "# ... existing code ...\r"}) {
    EXPECT_TRUE(stands_for_code(line)) << line;
  }
  for (const char* line : {"...", "# ...", "// ... and so on", "x = [...]", "print('... a ...')", "# ......", ""}) {
    EXPECT_FALSE(stands_for_code(line)) << line;
  }
}

TEST(Sketch, a_part_between_gaps_replaces_everything_from_its_first_line_to_its_last) {
  EXPECT_EQ(applied("# ... existing code ...\n\n    def stop(self):\n        self.close()\n        return self\n"),
            replaced_in_server("self.running = False", "self.close()"));
  EXPECT_EQ(applied("# ... existing code ...\n    def start(self):\n        self.open()\n        self.running = True\n"
                    "# ... existing code ...\n"),
            replaced_in_server("        self.running = True\n", "        self.open()\n        self.running = True\n"));
}

TEST(Sketch, the_ends_of_the_file_are_anchors_where_no_gap_stands) {
  EXPECT_EQ(applied("import os\nimport sys\n\nclass Server:\n# ... existing code ...\n"),
            replaced_in_server("import os\n", "import os\nimport sys\n"));
  EXPECT_EQ(applied("# ... existing code ...\n    def stop(self):\n        pass"),
            replaced_in_server("        self.running = False\n        return self\n", "        pass"));
}

TEST(Sketch, several_parts_are_looked_for_one_behind_the_other) {
  const auto text =
      apply_sketch(kServer,
                   "# ... existing code ...\n    def start(self):\n        return 1\n\n    def stop(self):\n"
                   "# ... existing code ...\n        self.running = False\n        return 2\n");
  ASSERT_TRUE(text.has_value()) << text.error().message();
  EXPECT_THAT(text->content, HasSubstr("start(self):\n        return 1\n\n    def stop(self):\n        self.running = "
                                       "False\n        return 2\n"));
  ASSERT_EQ(text->parts.size(), 2u);
  EXPECT_EQ(text->parts[0].first, 4u);
  EXPECT_EQ(text->parts[0].last, 8u);
  EXPECT_EQ(text->parts[0].new_lines, 4u);
}

TEST(Sketch, more_lines_that_stay_tell_equal_places_apart) {
  EXPECT_THAT(applied("# ... existing code ...\n        return self\n        # end\n"),
              HasSubstr("part 1 of code_edit begins with \"return self\", which fits 2 places; give more of the lines "
                        "that stay behind it"));
  EXPECT_THAT(applied("import os\n        return self\n# ... existing code ...\n"),
              HasSubstr("ends with \"return self\", which fits 2 places; give more of the lines that stay before it"));
  EXPECT_EQ(applied("import os\n        self.running = True\n        return self\n# ... existing code ...\n"),
            "import os\n" + kServer.substr(kServer.find("        self.running = True")));
}

TEST(Sketch, a_part_that_is_nowhere_is_refused_with_the_nearest_lines) {
  EXPECT_THAT(applied("# ... existing code ...\n    def stopp(self):\n        pass\n"),
              HasSubstr("part 1 of code_edit begins with \"def stopp(self):\", and there is no such line. The nearest "
                        "lines are:\n"));
  EXPECT_THAT(applied("# ... existing code ...\n    def stop(self):\n        pass\n# ... existing code ...\n"),
              HasSubstr("ends with \"pass\""));
  EXPECT_THAT(
      applied("# ... existing code ...\n    def stop(self):\n        self.running = False\n"
              "# ... existing code ...\n    def start(self):\n        pass\n"),
      HasSubstr("part 2 of code_edit begins with \"def start(self):\", and there is no such line behind the part "
                "before it"));
  EXPECT_THAT(applied("# ... existing code ...\n"), HasSubstr("everything stays as it is"));
}

TEST(Sketch, a_large_file_of_one_line_over_and_over_is_refused_soon) {
  std::string file;
  for (int i = 0; i < 400'000; ++i) file += "x\n";
  const SystemClock clock;
  const Time start = clock.now();
  EXPECT_FALSE(apply_sketch(file, "# ... existing code ...\n" + file + "# ... existing code ...\n").has_value());
  EXPECT_LT(to_seconds(clock.now() - start), 60) << "a comparison of every line with every other takes hours";
}

class EditFile : public Tools {
 protected:
  EditFile() { context_.tools = {"edit_file"}; }
  ToolOutcome edit(const std::string& path, const std::string& sketch) {
    return call("edit_file", {{"target_file", path}, {"instructions", "I edit."}, {"code_edit", sketch}});
  }
};

TEST_F(EditFile, applies_a_sketch_and_says_which_lines_it_took) {
  scratch_.put("a.py", kServer);
  const auto outcome =
      edit("a.py", "# ... existing code ...\n    def stop(self):\n        self.close()\n        return self\n");
  EXPECT_EQ(outcome.output, "Edited a.py: lines 8 to 10 became 3.");
  EXPECT_TRUE(outcome.changed_files);
  EXPECT_EQ(scratch_.get("a.py"), replaced_in_server("self.running = False", "self.close()"));
}

TEST_F(EditFile, without_a_gap_the_sketch_is_the_whole_file) {
  EXPECT_EQ(edit("src/a.py", "x = 1\n").output, "Created src/a.py (6 bytes).");
  EXPECT_EQ(edit("src/a.py", "x = 2\n").output, "Replaced src/a.py (6 bytes).");
  EXPECT_THAT(edit("none.py", "x = 1\n# ... existing code ...\n").output, HasSubstr("there is no file \"none.py\""));
  EXPECT_THAT(edit("../a.py", "x = 1\n# ... existing code ...\n").output, HasSubstr("outside the workspace"));
}

TEST_F(EditFile, what_is_refused_changes_nothing_and_windows_ends_are_kept) {
  scratch_.put("a.txt", "one\r\ntwo\r\nthree\r\n");
  const auto refused = edit("a.txt", "# ... existing code ...\nfour\n");
  EXPECT_FALSE(refused.ok);
  EXPECT_FALSE(refused.changed_files);
  EXPECT_THAT(refused.output, HasSubstr("Nothing was changed in a.txt"));
  EXPECT_EQ(edit("a.txt", "# ... existing code ...\ntwo\n2.5\nthree\n").output, "Edited a.txt: lines 2 to 3 became 3.");
  EXPECT_EQ(scratch_.get("a.txt"), "one\r\ntwo\r\n2.5\r\nthree\r\n");
  EXPECT_EQ(edit("a.txt", "# ... existing code ...\ntwo\n2.5\nthree\n").output,
            "Error: the edit would change nothing in a.txt");
}

}  // namespace
}  // namespace tandem::envs
