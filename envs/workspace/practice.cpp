// Formats of no table. With a table alone, however long, a model learns the formats of the table: it writes the marks
// that it knows in place of those that it reads.
#include <algorithm>
#include <string_view>

#include "envs/workspace/formats.h"

namespace tandem::envs {
namespace {

constexpr std::string_view kExtensions[] = {
    "ada", "asm", "bas",   "cbl", "clj",  "cr",    "d",    "dart", "erl",    "ex",    "f",    "fs",    "groovy",
    "hcl", "hx",  "idl",   "inc", "kts",  "lisp",  "ml",   "nim",  "nix",    "pas",   "pony", "proto", "pug",
    "qml", "rkt", "sas",   "scm", "sol",  "st",    "sv",   "svg",  "twig",   "vala",  "vb",   "vhdl",  "wat",
    "zig", "zsh", "plist", "opt", "unit", "rules", "desk", "set",  "values", "local", "old",  "draft", "x1"};
constexpr std::string_view kOpenings[] = {"",
                                          "",
                                          "# {title}\n",
                                          "[{title}]\n",
                                          "// {title}\n",
                                          "; {title}\n\n",
                                          "begin {title}\n",
                                          "--- {title} ---\n",
                                          "% {title}\n",
                                          "section {title}\n",
                                          "** {title} **\n",
                                          "{title}\n\n",
                                          "@{title}\n"};
constexpr std::string_view kIndents[] = {"", "", "", "  ", "    ", "\t"};
constexpr std::string_view kBeforeKeys[] = {
    "",        "",        "",       "- ",      "* ",     "$",    "@",   "--",    "set ",   "let ", "var ",
    "option ", "define ", "key ",   "put ",    ". ",     "| ",   "%",   "<opt ", "field ", "+ ",   "config ",
    "~",       "!",       "local ", "static ", "param:", "[x] ", ">> ", "item ", "has ",   "_."};
constexpr std::string_view kBetween[] = {" = ", "=",    ": ", ":",    " ",    " -> ", " := ", " is ", " | ",
                                         "  ",  " => ", "~",  " :: ", " == ", "; ",   " to ", "/",    " <- ",
                                         "\t",  "...",  " (", "@",    "+",    " <= ", " # "};
constexpr std::string_view kAfterValues[] = {"", "", "", "", ";", ";", ",", ".", " ;", " |", " \\", "!", " end", " --"};
constexpr std::string_view kQuotes[] = {"", "", "", "\"", "'", "`", "|"};
constexpr std::string_view kBeforeLines[] = {"",    "- ",   "+ ",   "# ",   "; ",  "-- ", "// ",    "> ",     ">> ",
                                             "[] ", "(x) ", "o ",   "= ",   "~ ",  "| ",  "info: ", "note: ", "@ ",
                                             "% ",  "! ",   "... ", "--> ", "1) ", "*) ", "\t",     "  ",     "entry "};
constexpr std::string_view kAfterLines[] = {"", "", "", "", ".", ";", ",", " |", " --", " //"};

// Draws until no held-out format has the same marks.
template <typename Format, typename Draw, typename SameMarks>
Format drawn_apart(std::span<const Format> listed, Draw draw, SameMarks same) {
  for (;;) {
    const Format format = draw();
    const auto clashes = [&](const Format& other) { return side_of_format(other) != Side::kTrain && same(format, other); };
    if (std::none_of(listed.begin(), listed.end(), clashes)) return format;
  }
}

}  // namespace

void practise(SettingsFormat& format, Random& random) {
  const auto draw = [&] {
    return SettingsFormat{.extension = random.pick(kExtensions),
                          .held_out = false,
                          .large_keys = random.chance(0.2),
                          .open = random.pick(kOpenings),
                          .indent = random.pick(kIndents),
                          .before_key = random.pick(kBeforeKeys),
                          .between = random.pick(kBetween),
                          .after_value = random.pick(kAfterValues),
                          .joiner = "\n",
                          .close = "\n",
                          .quote = random.pick(kQuotes),
                          .quote_numbers = random.chance(0.2)};
  };
  format = drawn_apart(settings_formats(), draw, [](const SettingsFormat& a, const SettingsFormat& b) {
    return a.before_key == b.before_key && a.between == b.between && a.after_value == b.after_value &&
           a.quote == b.quote;
  });
}

void practise(NotesFormat& format, Random& random) {
  const auto draw = [&] {
    return NotesFormat{.extension = random.pick(kExtensions),
                       .held_out = false,
                       .open = random.pick(kOpenings),
                       .before = random.pick(kBeforeLines),
                       .after = random.pick(kAfterLines),
                       .close = ""};
  };
  format = drawn_apart(notes_formats(), draw, [](const NotesFormat& a, const NotesFormat& b) {
    return a.before == b.before && a.after == b.after;
  });
}

void practise(RecordsFormat& format, Random& random) {
  const auto draw = [&] {
    return RecordsFormat{.extension = random.pick(kExtensions),
                         .held_out = false,
                         .before = random.pick(kBeforeKeys),
                         .between = random.pick(kBetween),
                         .after = ""};
  };
  format = drawn_apart(records_formats(), draw, [](const RecordsFormat& a, const RecordsFormat& b) {
    return a.before == b.before && a.between == b.between && a.after == b.after;
  });
}

// Code must mean something; only what a file of it is called is made up.
void practise(CodeFormat& format, Random& random) { format.extension = random.pick(kExtensions); }

}  // namespace tandem::envs
