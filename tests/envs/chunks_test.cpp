// How files are cut into pieces, and the words that are in them.
#include "envs/search/chunks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "base/text.h"
#include "envs/search/words.h"

namespace tandem::envs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Lines that make a body of about `bytes`.
std::string body(const std::string& indent, size_t bytes) {
  std::string text;
  for (int i = 0; text.size() < bytes; ++i) text += indent + "total_" + std::to_string(i) + " = add(total, rate)\n";
  return text;
}

std::vector<std::pair<uint32_t, uint32_t>> lines_of(const std::vector<Chunk>& chunks) {
  std::vector<std::pair<uint32_t, uint32_t>> lines;
  for (const auto& chunk : chunks) lines.emplace_back(chunk.first_line, chunk.last_line);
  return lines;
}

TEST(Chunks, a_short_file_is_one_piece_without_the_blank_lines_around_it) {
  const auto chunks = cut_into_chunks("a.py", "\n\nimport os\n\nprint(os.getcwd())\n\n\n");
  ASSERT_EQ(chunks.size(), 1u);
  EXPECT_EQ(lines_of(chunks), (std::vector<std::pair<uint32_t, uint32_t>>{{3, 5}}));
  EXPECT_EQ(chunks[0].text, "import os\n\nprint(os.getcwd())\n");
  EXPECT_TRUE(cut_into_chunks("a.py", "").empty());
  EXPECT_TRUE(cut_into_chunks("a.py", " \n\t\n").empty());
}

TEST(Chunks, functions_are_pieces_with_the_comments_and_decorators_above_them) {
  const std::string text = "def first():\n" + body("    ", 600) + "\n# Says how late it is.\n@cached\ndef second():\n" +
                           body("    ", 600) + "\ndef third():\n" + body("    ", 600);
  const auto chunks = cut_into_chunks("a.py", text);
  ASSERT_EQ(chunks.size(), 3u);
  EXPECT_TRUE(chunks[0].text.starts_with("def first"));
  EXPECT_TRUE(chunks[1].text.starts_with("# Says how late it is.\n@cached\ndef second"));
  EXPECT_TRUE(chunks[2].text.starts_with("def third"));
}

TEST(Chunks, what_does_not_fit_is_cut_along_what_it_is_made_of_and_says_what_it_lies_in) {
  const std::string text = "class Server:\n    def start(self):\n" + body("        ", 800) + "\n    def stop(self):\n" +
                           body("        ", 800);
  const auto chunks = cut_into_chunks("a.py", text);
  ASSERT_EQ(chunks.size(), 2u);
  EXPECT_TRUE(chunks[0].text.starts_with("class Server:\n    def start"));
  EXPECT_TRUE(chunks[1].text.starts_with("    def stop"));
  EXPECT_EQ(chunks[1].scope, "class Server:");
}

TEST(Chunks, braces_say_what_indentation_does_not) {
  std::string text;
  for (const char* name : {"first", "second", "third"})
    text += "void " + std::string(name) + "() {\n" + body("", 700) + "}\n";
  const auto chunks = cut_into_chunks("a.c", text);
  ASSERT_EQ(chunks.size(), 3u);
  for (const auto& chunk : chunks) {
    EXPECT_TRUE(chunk.text.starts_with("void ")) << chunk.text;
    EXPECT_TRUE(chunk.text.ends_with("}\n")) << chunk.text;
  }
}

TEST(Chunks, a_closing_brace_belongs_to_what_it_closes_and_directives_cut_nothing) {
  const std::string text = "int first(int x) {\n" + body("  ", 400) + "#ifdef FAST\n" + body("  ", 300) +
                           "#endif\n}\n\nint second(int x) {\n" + body("  ", 600) + "}\n";
  const auto chunks = cut_into_chunks("a.cpp", text);
  ASSERT_EQ(chunks.size(), 2u);
  EXPECT_TRUE(chunks[0].text.ends_with("#endif\n}\n")) << chunks[0].text;
}

TEST(Chunks, documents_are_cut_at_headings_which_pieces_carry) {
  std::string paragraph;
  for (int i = 0; i < 12; ++i) paragraph += "Words that say something about the matter at hand.\n";
  const auto text = "# Install\n\n" + paragraph + "\n" + paragraph + "\n## Use\n\n" + paragraph;
  const auto chunks = cut_into_chunks("a.md", text);
  ASSERT_EQ(chunks.size(), 3u);
  EXPECT_TRUE(chunks[0].text.starts_with("# Install"));
  EXPECT_EQ(chunks[1].scope, "# Install");
  EXPECT_TRUE(chunks[2].text.starts_with("## Use"));
}

TEST(Chunks, an_edit_changes_the_pieces_around_it_alone) {
  std::string before;
  for (int i = 0; i < 20; ++i) before += "def f" + std::to_string(i) + "():\n" + body("    ", 500) + "\n";
  std::string after = before;
  after.insert(after.find("def f10"), "import os\n\n");
  std::vector<std::string> texts;
  for (const auto& chunk : cut_into_chunks("a.py", before)) texts.emplace_back(chunk.text);
  size_t changed = 0;
  for (const auto& chunk : cut_into_chunks("a.py", after))
    changed += std::find(texts.begin(), texts.end(), chunk.text) == texts.end() ? 1 : 0;
  EXPECT_LE(changed, 2u);
}

// Every byte that is no blank line is in exactly one piece, in order; pieces stay near their size.
TEST(Chunks, any_text_is_cut_without_losing_a_line) {
  Random random(7);
  const std::vector<std::string> parts = {
      "def f():\n", "    x = {\n", "}\n",      "\n",     "# words\n", "\t\tif a:\n",
      "else:\n",    "  [1, 2]\n",  "é中\xff",  "    \n", "@a\n",      std::string(3000, 'x') + "\n",
      "{{{{",       "## T\n",      "};\n};\n", "\r\n",   "int x;\n"};
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (uint64_t i = random.below(60); i > 0; --i) text += random.pick(parts);
    for (const char* name : {"a.py", "a.cpp", "a.md"}) {
      size_t at = 0;
      for (const auto& chunk : cut_into_chunks(name, text)) {
        const auto begin = static_cast<size_t>(chunk.text.data() - text.data());
        ASSERT_GE(begin, at);
        ASSERT_TRUE(trim(std::string_view(text).substr(at, begin - at)).empty());
        ASSERT_LE(chunk.text.size(), 2 * kChunkBytes);
        ASSERT_LE(chunk.first_line, chunk.last_line);
        ASSERT_EQ(chunk.first_line, 1 + std::count(text.begin(), text.begin() + static_cast<long>(begin), '\n'));
        at = begin + chunk.text.size();
      }
      ASSERT_TRUE(trim(std::string_view(text).substr(at)).empty());
    }
  }
}

TEST(Words, identifiers_are_found_by_themselves_and_by_their_parts) {
  const auto has = [](std::string_view text, std::string_view query) {
    const auto words = query_words(query);
    const auto counts = count_words(text);
    return std::all_of(words.begin(), words.end(), [&](uint32_t word) {
      return std::any_of(counts.begin(), counts.end(), [&](const WordCount& count) { return count.word == word; });
    });
  };
  EXPECT_TRUE(has("int maxOpenFiles = 3;", "max open file"));
  EXPECT_TRUE(has("read_HTTPHeader2()", "http header"));
  EXPECT_TRUE(has("int maxOpenFiles;", "maxopenfiles"));
  EXPECT_TRUE(has("SNAKE_CASE_NAME", "snake_case_name"));
  EXPECT_FALSE(has("int maximum;", "max"));
  EXPECT_EQ(query_words("where is the session refreshed").size(), 2u);
  EXPECT_FALSE(query_words("how").empty());
}

}  // namespace
}  // namespace tandem::envs
