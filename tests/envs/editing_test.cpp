// Edits of files that are not plain: indentation, line ends, marks of byte order, letters that look alike.
#include "envs/tools/editable_text.h"
#include "envs/tools/indentation.h"
#include "envs/tools/output.h"
#include "tests/envs/tools_fixture.h"

namespace tandem::envs {
namespace {

using testing::HasSubstr;
using testing::Not;

class Editing : public Tools {
 protected:
  // The file after an edit by search_replace.
  std::string replace(const std::string& content, const std::string& from, const std::string& to) {
    scratch_.put("f.py", content);
    const auto outcome = call("search_replace", {{"file_path", "f.py"}, {"old_string", from}, {"new_string", to}});
    said_ = outcome.output;
    return outcome.ok ? scratch_.get("f.py") : "refused";
  }
  std::string patch(const std::string& content, const std::string& hunk) {
    context_.tools = {"apply_patch"};
    scratch_.put("f.py", content);
    const auto outcome =
        call("apply_patch", {{"input", "*** Begin Patch\n*** Update File: f.py\n@@\n" + hunk + "\n*** End Patch"}});
    context_.tools.clear();
    said_ = outcome.output;
    return outcome.ok ? scratch_.get("f.py") : "refused";
  }
  std::string said_;
};

TEST_F(Editing, a_loose_match_takes_the_indentation_of_the_file) {
  const std::string spaces = "def f(x):\n    if x:\n        y = 1\n        z = 2\n    return y + z\n";
  EXPECT_EQ(replace(spaces, "if x:\n  y = 1", "if x:\n  y = 10"),
            "def f(x):\n    if x:\n        y = 10\n        z = 2\n    return y + z\n");
  EXPECT_THAT(said_, HasSubstr("the file's indentation was kept"));
  EXPECT_EQ(replace(spaces, "if x:\n\ty = 1", "if x:\n\tfor i in x:\n\t\ty = 1"),
            "def f(x):\n    if x:\n        for i in x:\n            y = 1\n        z = 2\n    return y + z\n");
  // Less deep than any of the old lines.
  EXPECT_EQ(replace(spaces, "      y = 1\n      z = 2", "      y = 1\n    else:\n      z = 2"),
            "def f(x):\n    if x:\n        y = 1\n    else:\n        z = 2\n    return y + z\n");
  const std::string tabs = "def f(x):\n\tif x:\n\t\ty = 1\n\t\tz = 2\n\treturn y + z\n";
  EXPECT_EQ(replace(tabs, "if x:\n    y = 1", "if x:\n    y = 10"),
            "def f(x):\n\tif x:\n\t\ty = 10\n\t\tz = 2\n\treturn y + z\n");
  EXPECT_EQ(replace(tabs, "        y = 1\n", "        if y:\n            y = 1\n"),
            "def f(x):\n\tif x:\n\t\tif y:\n\t\t\ty = 1\n\t\tz = 2\n\treturn y + z\n");
  EXPECT_EQ(replace("class A {\n  void f() {\n    g();\n  }\n}\n", "    void f() {\n        g();\n    }",
                    "    void f() {\n        if (a) {\n            g();\n        }\n    }"),
            "class A {\n  void f() {\n    if (a) {\n      g();\n    }\n  }\n}\n");
}

TEST_F(Editing, lines_that_have_lost_their_depth_are_replaced_one_for_one_or_refused) {
  const std::string file = "def f(x):\n    if x:\n        y = 1\n    return y\n";
  EXPECT_EQ(replace(file, "if x:\ny = 1\nreturn y", "if x:\ny = 2\nreturn y"),
            "def f(x):\n    if x:\n        y = 2\n    return y\n");
  EXPECT_EQ(replace(file, "if x:\ny = 1\nreturn y", "if x:\ny = 2\nz = 3\nreturn y"), "refused");
  EXPECT_THAT(said_, HasSubstr("does not tell how deep its lines belong"));
}

TEST_F(Editing, a_patch_takes_the_indentation_of_the_file) {
  EXPECT_EQ(
      patch("def f(x):\n\tif x:\n\t\ty = 1\n\treturn y\n", "   if x:\n-      y = 1\n+      if y:\n+          y = 2"),
      "def f(x):\n\tif x:\n\t\tif y:\n\t\t\ty = 2\n\treturn y\n");
  EXPECT_EQ(patch("def f(x):\n    return x\n", " def f(x):\n-    return x\n+    if x:\n+      return x"),
            "def f(x):\n    if x:\n      return x\n")
      << "where it fits as it is, it goes in as it is";
}

TEST_F(Editing, lines_keep_their_ends_in_a_file_that_mixes_them) {
  const std::string mixed = "a = 1\r\nb = 2\r\nc = 3\r\nlast = 4\n";
  EXPECT_EQ(replace(mixed, "a = 1\nb = 2", "a = 1\nb = 20"), "a = 1\r\nb = 20\r\nc = 3\r\nlast = 4\n");
  EXPECT_EQ(replace(mixed, "c = 3", "c = 3\nd = 3"), "a = 1\r\nb = 2\r\nc = 3\r\nd = 3\r\nlast = 4\n");
  EXPECT_EQ(replace(mixed, "last = 4", "last = 5"), "a = 1\r\nb = 2\r\nc = 3\r\nlast = 5\n");
  EXPECT_EQ(replace(mixed, "b = 2\r\nc = 3\r\n", ""), "a = 1\r\nlast = 4\n");
  EXPECT_EQ(replace("x\ny\r\nz\n", "x", "w"), "w\ny\r\nz\n");
  EXPECT_EQ(patch(mixed, " a = 1\n-b = 2\n+b = 20"), "a = 1\r\nb = 20\r\nc = 3\r\nlast = 4\n");
  EXPECT_EQ(patch("a\nb\r\nc\n", "-a\n+a1\n+a2\n b"), "a1\na2\nb\r\nc\n");
  const std::string other = "a\r\nb\nc\r\nd\n";
  EXPECT_EQ(replace(other, "b\nc", "B\nC\nnew"), "a\r\nB\nC\r\nnew\r\nd\n") << "what follows is no part of the text";
  EXPECT_EQ(replace(other, "b\nc", "B"), "a\r\nB\r\nd\n");
  EXPECT_EQ(patch(other, " a\n-b\n-c\n+B\n+C\n d"), "a\r\nB\nC\r\nd\n");
  EXPECT_EQ(replace("a\nb\nc\n", "a\r\nb", "a\r\nd"), "a\nd\nc\n") << "a model that writes what the file does not have";
}

TEST_F(Editing, a_mark_of_byte_order_stays_in_front) {
  const std::string mark(kByteOrderMark);
  EXPECT_EQ(patch(mark + "const a = 3;\n", "-const a = 3;\n+const a = 4;"), mark + "const a = 4;\n");
  EXPECT_EQ(patch(mark + "b\n", "+a\n b"), mark + "a\nb\n");
  EXPECT_EQ(replace(mark + "a\nb\n", "a", "c"), mark + "c\nb\n");
  EXPECT_EQ(replace(mark + "a\r\nb\r\n", mark + "a", "c"), mark + "c\r\nb\r\n");
  context_.tools = {"edit_file", "write", "str_replace_based_edit_tool"};
  scratch_.put("f.py", mark + "a;\nb;\n");
  call("edit_file", {{"target_file", "f.py"}, {"code_edit", "a;\nx;\nb;\n// ... existing code ...\n"}});
  EXPECT_EQ(scratch_.get("f.py"), mark + "a;\nx;\nb;\n");
  call("str_replace_based_edit_tool",
       {{"command", "insert"}, {"path", "f.py"}, {"insert_line", 0}, {"insert_text", "first;"}});
  EXPECT_EQ(scratch_.get("f.py"), mark + "first;\na;\nx;\nb;\n");
  call("write", {{"file_path", "f.py"}, {"contents", "all new\n"}});
  EXPECT_EQ(scratch_.get("f.py"), mark + "all new\n");
}

TEST_F(Editing, what_nobody_sees_is_said_where_text_is_not_found) {
  EXPECT_EQ(replace("# caf\xE9 au lait\n", "# caf\xEF\xBF\xBD au lait", "# tea"), "refused");
  EXPECT_THAT(said_, HasSubstr("The file is not UTF-8: line 1 has the byte 0xE9"));
  EXPECT_THAT(said_, Not(HasSubstr("Copy the text exactly")));
  EXPECT_EQ(replace("total = a\u00A0+ b\n", "total = a + b", "x"), "refused");
  EXPECT_THAT(said_, HasSubstr("Line 1 differs at character 10: the file has U+00A0 (no-break space) there, old_string "
                               "has U+0020 (space)."));
  EXPECT_EQ(replace("name = 'cafe\u0301'\n", "name = 'caf\u00E9'", "x"), "refused");
  EXPECT_THAT(said_, HasSubstr("differs at character 12: the file has U+0065 (e) there, old_string has U+00E9"));
  EXPECT_EQ(replace("a\u00A0= 1\n", "a = 1", "x"), "refused") << "a short line";
  EXPECT_THAT(said_, HasSubstr("Line 1 differs at character 2: the file has U+00A0 (no-break space) there"));
  EXPECT_EQ(replace("x\nre\u0301sume\u0301 = 1\n", "r\u00E9sum\u00E9 = 1", "x"), "refused");
  EXPECT_THAT(said_, HasSubstr("Line 2 differs at character 2: the file has U+0065 (e) there, old_string has U+00E9"));
  EXPECT_EQ(replace("\u0445\n", "x", "y"), "refused") << "nothing else is there";
  EXPECT_THAT(said_, HasSubstr("Line 1 differs at character 1: the file has U+0445 there, old_string has U+0078 (x)."));
  EXPECT_EQ(replace("return valeu\n", "return value + 1", "x"), "refused");
  EXPECT_THAT(said_, HasSubstr("Copy the text exactly.")) << "a difference that anybody sees";
}

TEST_F(Editing, utf_16_is_called_what_it_is) {
  const std::string text(
      "\xFF\xFE"
      "a\0b\0\n\0",
      8),
      bare("a\0b\0c\0d\0\n\0", 10);
  for (const auto& content : {text, bare}) {
    EXPECT_EQ(replace(content, "a", "b"), "refused");
    EXPECT_THAT(said_, HasSubstr("is text in UTF-16LE"));
    EXPECT_THAT(call("read_file", {{"target_file", "f.py"}}).output, HasSubstr("iconv -f UTF-16"));
    EXPECT_EQ(patch(content, "-a\n+b"), "refused");
    EXPECT_EQ(scratch_.get("f.py"), content);
  }
}

TEST_F(Editing, grep_and_globs_find_what_is_meant) {
  scratch_.put("repo/.github/workflows/ci.yml", "on: x\n");
  scratch_.put("app/[id]/page.tsx", "on x\n");
  const auto grep = [&](const char* glob) { return call("grep", {{"pattern", "on"}, {"glob", glob}}).output; };
  EXPECT_EQ(grep(".github/workflows/*.yml"), "repo/.github/workflows/ci.yml:1:on: x\n");
  EXPECT_EQ(grep("repo/**/*.yml"), "repo/.github/workflows/ci.yml:1:on: x\n");
  EXPECT_EQ(grep("/workspace/app/**"), "app/[id]/page.tsx:1:on x\n");
  EXPECT_EQ(grep("/workspace/workflows/*.yml"), "No matches for \"on\".");
  EXPECT_EQ(grep("app/[id]/*.tsx"), "app/[id]/page.tsx:1:on x\n");
  EXPECT_EQ(grep("*.yml"), "repo/.github/workflows/ci.yml:1:on: x\n");
  EXPECT_EQ(grep("!app/**"), "repo/.github/workflows/ci.yml:1:on: x\n");
  EXPECT_EQ(call("glob_file_search", {{"glob_pattern", "app/[id]/*.tsx"}}).output, "app/[id]/page.tsx\n");
  EXPECT_EQ(call("glob_file_search", {{"glob_pattern", "[pq]age.tsx"}}).output, "app/[id]/page.tsx\n");
  ASSERT_EQ(mkfifo((scratch_.path / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(call("grep", {{"pattern", "a"}, {"path", "pipe"}}).output, HasSubstr("neither a file nor a folder"));
  EXPECT_THAT(grep("*.tsx"), HasSubstr("page.tsx"));
}

TEST_F(Editing, brackets_and_braces_of_a_glob_are_names_where_they_can_be) {
  for (const char* name : {"app/[id]/page.ts", "app/[user-id]/page.ts", "app/[[...opt]]/p.tsx", "i/page.ts",
                           "{{cookie.name}}/a.py", "src/a.py"})
    scratch_.put(name, "on\n");
  const auto found = [&](const char* glob) {
    const auto files = call("glob_file_search", {{"glob_pattern", glob}}).output;
    std::vector<std::string> lines;
    for (const auto line : split_lines(files)) lines.emplace_back(line);
    std::sort(lines.begin(), lines.end());
    const auto sorted = lines.empty() ? "" : join(lines, "\n") + "\n";
    const Json grep = {{"pattern", "on"}, {"glob", glob}, {"output_mode", "files_with_matches"}};
    EXPECT_EQ(call("grep", grep).output, sorted) << glob;
    return sorted;
  };
  EXPECT_EQ(found("app/[id]/page.[jt]s"), "app/[id]/page.ts\n");
  EXPECT_EQ(found("app/[user-id]/*.ts"), "app/[user-id]/page.ts\n");
  EXPECT_EQ(found("[id]/*.ts"), "app/[id]/page.ts\ni/page.ts\n");
  EXPECT_EQ(found("[[...opt]]/*.ts{x,}"), "app/[[...opt]]/p.tsx\n");
  EXPECT_EQ(found("*.{p{y,yx},tsx}"), "app/[[...opt]]/p.tsx\nsrc/a.py\n{{cookie.name}}/a.py\n");
  EXPECT_EQ(found("{{cookie.name}}/*.py"), "{{cookie.name}}/a.py\n");
  EXPECT_EQ(found("\\{\\{cookie.name\\}\\}/*.py"), "{{cookie.name}}/a.py\n");
  EXPECT_THAT(call("grep", {{"pattern", "on"}, {"glob", "app/[id"}}).output, HasSubstr("is not closed by"));
  EXPECT_TRUE(call("grep", {{"pattern", "on"}, {"-A", 18446744073709551615u}}).ok);
}

TEST_F(Editing, new_lines_end_as_those_of_the_file_and_lines_that_stay_keep_their_bytes) {
  EXPECT_EQ(replace("a\nb\nc\n", "b", "b\r\nx"), "a\nb\nx\nc\n");
  EXPECT_EQ(replace("one  \ntwo\nthree  \n", "one\ntwo\nthree", "one\nTWO\nthree"), "one  \nTWO\nthree  \n");
  EXPECT_EQ(replace("if a:\n    x = 1\n    \n    y = 2\n", "x = 1\n\ny = 2", "x = 1\n\ny = 3"),
            "if a:\n    x = 1\n    \n    y = 3\n");
  EXPECT_EQ(replace("a\rb\r", "a\nb", "a\nc"), "refused");
  EXPECT_THAT(said_, HasSubstr("carriage return alone"));
}

TEST_F(Editing, letters_of_two_and_four_bytes_are_called_what_they_are) {
  const auto said_of = [&](std::string_view content) {
    scratch_.put("f.txt", std::string(content));
    return call("read_file", {{"target_file", "f.txt"}}).output;
  };
  using std::string_view_literals::operator""sv;
  EXPECT_THAT(said_of("\xFF\xFE\0\0a\0\0\0\n\0\0\0"sv), HasSubstr("is text in UTF-32"));
  EXPECT_THAT(said_of("\x3F\x04\x40\x04 \0\x38\x04\n\0"sv), HasSubstr("is text in UTF-16LE")) << "Cyrillic";
  EXPECT_THAT(said_of("\x04\x3F\x04\x40\0 \x04\x38\0\n"sv), HasSubstr("is text in UTF-16BE"));
  EXPECT_THAT(said_of("ELF\x02\x01\x01\0\0\0\0\0\0"sv), Not(HasSubstr("UTF-16"))) << "a program";
}

TEST_F(Editing, nothing_that_has_the_name_of_a_temporary_file_is_waited_for) {
  scratch_.put("a", "x\n");
  ASSERT_EQ(mkfifo((scratch_.path / ".a.tandem-new").c_str(), 0600), 0);
  EXPECT_TRUE(call("write", {{"file_path", "a"}, {"contents", "y\n"}}).ok);
  EXPECT_EQ(scratch_.get("a"), "y\n");
  const std::string longest(255, 'n');
  EXPECT_TRUE(call("write", {{"file_path", longest}, {"contents", "y\n"}}).ok);
  EXPECT_EQ(scratch_.get(longest), "y\n");
}

TEST_F(Editing, arguments_are_read_as_json_schema_reads_them) {
  scratch_.put("a.txt", "1\n2\n");
  EXPECT_EQ(call("read_file", {{"target_file", "a.txt"}, {"offset", 2.0}}).output, "     2|2\n");
  EXPECT_FALSE(call("read_file", {{"target_file", "a.txt"}, {"offset", 1.5}}).ok);
  const Json item = {{"id", "1"}, {"content", "c"}, {"status", "completed"}};
  EXPECT_TRUE(call("todo_write", {{"merge", true}, {"todos", Json::array({item})}}).ok);
  EXPECT_FALSE(call("todo_write", {{"merge", true}, {"todos", Json::array()}}).ok);
  EXPECT_FALSE(call("todo_write", {{"merge", false}, {"todos", Json::array({item})}}).ok) << "a list has several";
}

TEST(Output, a_terminal_shows_what_was_printed_last) {
  EXPECT_EQ(as_on_terminal("P 10%\rP 20%\rdone\n"), "done\n");
  EXPECT_EQ(as_on_terminal("a\r\nb\r\n"), "a\nb\n");
  EXPECT_EQ(as_on_terminal("100%\r"), "100%") << "nothing was printed over it";
  EXPECT_EQ(as_on_terminal("\x1b]0;title\ahello\x1b]8;;http://x\x1b\\link\a\n"), "hellolink\n");
  EXPECT_EQ(as_on_terminal("\x1b[31mred\x1b[0m\x1b(B b\bc_\b\xC3\xA4\n"), "red c\xC3\xA4\n");
}

TEST(Output, a_terminal_is_steered_by_sequences_of_any_length) {
  EXPECT_EQ(as_on_terminal("\x1b[1;38;2;249;138;114;48;2;139;140;134mhi\x1b[0m\n"), "hi\n");
  EXPECT_EQ(make_printable("\x1b[1;38;2;249;138;114;48;2;139;140;134mhi\x1b[0m\n"), "hi\n");
  EXPECT_EQ(as_on_terminal("\x1b]52;c;" + std::string(9000, 'A') + "\ahi\n"), "hi\n");
  EXPECT_EQ(as_on_terminal("\x1b]1337;File=inline=1:AAAA\nBBBB\ahi\n"), "hi\n");
  EXPECT_EQ(as_on_terminal("\x1b]0;title\u009Chi\n"), "hi\n");
  EXPECT_EQ(as_on_terminal("\x1b]0;no end\nline\a\n"), "0;no end\nline\n") << "no output is lost";
  EXPECT_EQ(as_on_terminal("cut\x1b[3"), "cut");
  EXPECT_EQ(as_on_terminal("\x1b[?25l\x1b[>4;2mx\x1b[4:3my\0337\0338\x1bMz\x1b(B\n"), "xyz\n");
}

TEST(Output, a_terminal_goes_back_over_whole_letters_and_erases_only_what_is_printed_over) {
  EXPECT_EQ(as_on_terminal("abc\b\n"), "abc\n");
  EXPECT_EQ(as_on_terminal("\u00E4\bx\n"), "x\n");
  EXPECT_EQ(as_on_terminal("\u65E5\u672C\b\bx\n"), "\u65E5x\n") << "two columns are one letter";
  EXPECT_EQ(as_on_terminal("e\u0301\bx\n"), "x\n");
  EXPECT_EQ(as_on_terminal("|\b/\b-\bdone\n"), "done\n");
  EXPECT_EQ(as_on_terminal("abc\x1b[2Dxy\n"), "axy\n");
  EXPECT_EQ(as_on_terminal("a\x1b[3Cb\n"), "a   b\n");
}

TEST(Output, a_terminal_shows_lines_as_they_were_printed_last) {
  EXPECT_EQ(as_on_terminal("10%\x1b[1G20%\x1b[Gdone\n"), "done\n");
  EXPECT_EQ(as_on_terminal("abc\x1b[2K\rdone\n"), "done\n");
  EXPECT_EQ(as_on_terminal("abc\r\x1b[K\n"), "\n");
  EXPECT_EQ(as_on_terminal("one\ntwo\n\x1b[2A\x1b[2KONE\n\x1b[2KTWO\n"), "ONE\nTWO\n");
  EXPECT_EQ(as_on_terminal("one\ntwo\n\x1b[1FTWO\nend\n"), "one\nTWO\nend\n");
  EXPECT_EQ(as_on_terminal("one\ntwo\n\x1b[2A\x1b[Jend\n"), "end\n");
  EXPECT_EQ(as_on_terminal("old\n\x1b[2J\x1b[Hnew\n"), "old\nnew\n") << "what has scrolled by stays";
}

TEST_F(Editing, a_terminal_is_read_as_one) {
  EXPECT_EQ(call("run_terminal_cmd", {{"command", "printf 'P 10%%\\rP 20%%\\rdone\\n\\a'"}}).output, "done\n");
  scratch_.put("old.txt", "a\rb\n");
  EXPECT_THAT(call("read_file", {{"target_file", "old.txt"}}).output, HasSubstr("a\uFFFD"
                                                                                "b"))
      << "a file keeps all";
}

TEST_F(Editing, who_misses_the_network_is_told_that_there_is_none) {
  context_.has_network = false;
  const auto run = [&](const char* command) { return call("run_terminal_cmd", {{"command", command}}).output; };
  EXPECT_THAT(run("echo 'curl: (6) Could not resolve host: a.b'; false"), HasSubstr("[there is no network here]\n"));
  EXPECT_THAT(run("echo 'npm error getaddrinfo ENOTFOUND a.b'; true"), HasSubstr("[there is no network here]\n"));
  const std::string pip = "pip3() { echo 'ERROR: No matching distribution found for six'; false; }\n";
  for (const char* command : {"pip3 download six 2>&1 | tail -3", "pip3 install six || true", "pip3 install six; ls",
                              "out=$(pip3 install six 2>&1); echo \"$out\""})
    EXPECT_THAT(run((pip + command).c_str()), HasSubstr("[there is no network here]\n")) << command;
  EXPECT_THAT(run("echo 'ERROR: No matching distribution found for six' | cat"), Not(HasSubstr("no network")))
      << "nothing that fetches";
  EXPECT_THAT(run("echo fine"), Not(HasSubstr("no network")));
  context_.has_network = true;
  EXPECT_THAT(run("echo 'Could not resolve host'; false"), Not(HasSubstr("no network")));
}

}  // namespace
}  // namespace tandem::envs
