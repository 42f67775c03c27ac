#include "envs/tasks/workspace/formats.h"

#include <algorithm>
#include <cctype>

namespace tandem::envs {
namespace {

constexpr bool kTrain = false, kNew = true;

// clang-format off
constexpr SettingsFormat kSettings[] = {
    {"ini", kTrain, false, "[{title}]\n", "", "", " = ", "", "\n", "\n", "", false},
    {"env", kTrain, true, "", "", "", "=", "", "\n", "\n", "", false},
    {"json", kTrain, false, "{\n", "  ", "\"", "\": ", "", ",\n", "\n}\n", "\"", false},
    {"conf", kTrain, false, "# {title}\n", "", "", " ", "", "\n", "\n", "", false},
    {"py", kTrain, true, "", "", "", " = ", "", "\n", "\n", "\"", false},
    {"md", kTrain, false, "# {title}\n\n", "", "- ", ": ", "", "\n", "\n", "", false},
    {"txt", kTrain, false, "", "", "", ": ", "", "\n", "\n", "", false},
    {"properties", kTrain, false, "", "", "", "=", "", "\n", "\n", "", false},
    {"sql", kTrain, false, "", "", "SET ", " = ", ";", "\n", "\n", "'", true},
    {"html", kTrain, false, "<dl>\n", "  ", "<dt>", "</dt><dd>", "</dd>", "\n", "\n</dl>\n", "", false},
    {"sh", kTrain, true, "#!/bin/sh\n", "", "export ", "=", "", "\n", "\n", "", false},
    {"js", kTrain, false, "", "", "const ", " = ", ";", "\n", "\n", "\"", false},
    {"cfg", kTrain, false, "", "", "", " := ", "", "\n", "\n", "", false},
    {"service", kTrain, false, "[{title}]\n", "", "", "=", "", "\n", "\n", "", false},
    {"php", kTrain, false, "<?php\n", "", "$", " = ", ";", "\n", "\n", "\"", false},
    {"ts", kTrain, false, "", "", "let ", ": any = ", ";", "\n", "\n", "'", false},
    {"rs", kTrain, true, "", "", "const ", ": &str = ", ";", "\n", "\n", "\"", true},
    {"java", kTrain, true, "class {title} {\n", "  ", "static final String ", " = ", ";", "\n", "\n}\n", "\"", true},
    {"cpp", kTrain, false, "// {title}\n", "", "constexpr auto ", " = ", ";", "\n", "\n", "\"", false},
    {"kt", kTrain, false, "", "", "val ", " = ", "", "\n", "\n", "\"", false},
    {"r", kTrain, false, "", "", "", " <- ", "", "\n", "\n", "\"", false},
    {"jl", kTrain, false, "# {title}\n", "", "const ", " = ", "", "\n", "\n", "\"", false},
    {"vim", kTrain, false, "", "", "let g:", " = ", "", "\n", "\n", "'", false},
    {"fish", kTrain, false, "", "", "set ", " ", "", "\n", "\n", "", false},
    {"tcl", kTrain, false, "", "", "set ", " ", "", "\n", "\n", "\"", false},
    {"mk", kTrain, true, "", "", "", " := ", "", "\n", "\n", "", false},
    {"bat", kTrain, true, "@echo off\n", "", "set ", "=", "", "\n", "\n", "", false},
    {"ps1", kTrain, false, "", "", "$", " = ", "", "\n", "\n", "\"", false},
    {"el", kTrain, false, "", "", "(setq ", " ", ")", "\n", "\n", "\"", false},
    {"edn", kTrain, false, "{\n", "  ", ":", " ", "", "\n", "\n}\n", "\"", false},
    {"scss", kTrain, false, "", "", "$", ": ", ";", "\n", "\n", "", false},
    {"less", kTrain, false, "", "", "@", ": ", ";", "\n", "\n", "", false},
    {"nginx", kTrain, false, "server {\n", "  ", "", " ", ";", "\n", "\n}\n", "", false},
    {"tf", kTrain, false, "locals {\n", "  ", "", " = ", "", "\n", "\n}\n", "\"", false},
    {"yaml", kNew, false, "{title}:\n", "  ", "", ": ", "", "\n", "\n", "", false},
    {"toml", kNew, false, "[{title}]\n", "", "", " = ", "", "\n", "\n", "\"", false},
    {"csv", kNew, false, "name,value\n", "", "", ",", "", "\n", "\n", "", false},
    {"xml", kNew, false, "<{title}>\n", "  ", "<set name=\"", "\">", "</set>", "\n", "\n</{title}>\n", "", false},
    {"h", kNew, true, "#pragma once\n", "", "#define ", " ", "", "\n", "\n", "\"", false},
    {"lua", kNew, false, "return {\n", "  ", "", " = ", ",", "\n", "\n}\n", "\"", false},
};

constexpr NotesFormat kNotes[] = {
    {"txt", kTrain, "", "", "", ""},
    {"md", kTrain, "# {title}\n\n", "- ", "", ""},
    {"html", kTrain, "<ul>\n", "  <li>", "</li>", "</ul>\n"},
    {"log", kTrain, "", "info ", "", ""},
    {"py", kTrain, "", "# ", "", ""},
    {"sql", kTrain, "", "-- ", "", ""},
    {"ini", kTrain, "[{title}]\n", "; ", "", ""},
    {"todo", kTrain, "", "[ ] ", "", ""},
    {"wiki", kTrain, "== {title} ==\n", "# ", "", ""},
    {"diff", kTrain, "", "+ ", "", ""},
    {"bat", kTrain, "", "rem ", "", ""},
    {"js", kTrain, "", "// ", "", ""},
    {"f90", kTrain, "", "! ", "", ""},
    {"m", kTrain, "", "% ", "", ""},
    {"eml", kTrain, "", "> ", "", ""},
    {"list", kTrain, "", "=> ", "", ""},
    {"pod", kTrain, "=head1 {title}\n", "=item ", "", ""},
    {"roff", kTrain, ".TH {title}\n", ".IP ", "", ""},
    {"nfo", kTrain, "", ":: ", "", ""},
    {"dat", kTrain, "", "~ ", "", ""},
    {"rst", kNew, "", "* ", "", ""},
    {"adoc", kNew, "= {title}\n\n", ". ", "", ""},
    {"tex", kNew, "\\section{{title}}\n", "\\item ", "", ""},
    {"org", kNew, "", "** ", "", ""},
    {"xml", kNew, "<notes>\n", "  <note>", "</note>", "</notes>\n"},
};

constexpr RecordsFormat kRecords[] = {
    {"txt", kTrain, "", ": ", ""},
    {"ini", kTrain, "", " = ", ""},
    {"md", kTrain, "- ", ": ", ""},
    {"conf", kTrain, "", " ", ""},
    {"properties", kTrain, "", "=", ""},
    {"log", kTrain, "info ", " ", ""},
    {"dat", kTrain, "", ";", ""},
    {"lst", kTrain, "", " -> ", ""},
    {"map", kTrain, "", " => ", ""},
    {"rec", kTrain, "", "#", ""},
    {"kv", kTrain, "", ":=", ""},
    {"wiki", kTrain, "# ", " @ ", ""},
    {"todo", kTrain, "[ ] ", " x ", ""},
    {"list", kTrain, "", "/", ""},
    {"nfo", kTrain, ":: ", "~", ""},
    {"csv", kNew, "", ",", ""},
    {"tsv", kNew, "", "\t", ""},
    {"psv", kNew, "", "|", ""},
    {"yaml", kNew, "- ", ": ", ""},
};

constexpr CodeFormat kCode[] = {
    {"py", kTrain, "def {n}(x):\n    return x * {k}\n", "from {m} import {n}\n\nprint({n}({k}))\n"},
    {"js", kTrain, "function {n}(x) {\n  return x * {k};\n}\nmodule.exports = { {n} };\n",
     "const { {n} } = require(\"./{m}\");\nconsole.log({n}({k}));\n"},
    {"sh", kTrain, "{n}() {\n  echo \"$1 {k}\"\n}\n", ". ./{m}.sh\n{n} {k}\n"},
    {"sql", kTrain, "CREATE TABLE {n} (id INTEGER);\n", "SELECT id FROM {n} WHERE id < {k};\n"},
    {"html", kTrain, "<div id=\"{n}\">{k}</div>\n", "<a href=\"{m}.html#{n}\">{k}</a>\n"},
    {"md", kTrain, "## {n}\n\nTakes {k} minutes.\n", "See `{n}` in {m}.md, {k} pages.\n"},
    {"c", kTrain, "int {n}(int x) {\n  return x * {k};\n}\n", "/* {m} */\nint main(void) {\n  return {n}({k});\n}\n"},
    {"ts", kTrain, "export const {n} = (x: number) => x * {k};\n",
     "import { {n} } from \"./{m}\";\nconsole.log({n}({k}));\n"},
    {"rs", kTrain, "pub fn {n}(x: i64) -> i64 {\n    x * {k}\n}\n",
     "use crate::{m}::{n};\n\nfn main() {\n    dbg!({n}({k}));\n}\n"},
    {"php", kTrain, "<?php\nfunction {n}($x) {\n  return $x * {k};\n}\n",
     "<?php\nrequire \"{m}.php\";\necho {n}({k});\n"},
    {"jl", kTrain, "{n}(x) = x * {k}\n", "include(\"{m}.jl\")\nprintln({n}({k}))\n"},
    {"r", kTrain, "{n} <- function(x) x * {k}\n", "source(\"{m}.r\")\nprint({n}({k}))\n"},
    {"hs", kTrain, "{n} x = x * {k}\n", "-- {m}\nmain = print ({n} {k})\n"},
    {"mk", kTrain, "{n}:\n\techo {k}\n", "include {m}.mk\nall: {n}\n\techo {k}\n"},
    {"rb", kNew, "def {n}(x)\n  x * {k}\nend\n", "require_relative \"{m}\"\nputs {n}({k})\n"},
    {"lua", kNew, "function {n}(x)\n  return x * {k}\nend\n", "require \"{m}\"\nprint({n}({k}))\n"},
    {"go", kNew, "func {n}(x int) int {\n\treturn x * {k}\n}\n", "func main() {\n\tprintln({n}({k}))\n}\n"},
    {"css", kNew, ".{n} {\n  width: {k}px;\n}\n", "/* {m} */\n.{n} a {\n  height: {k}px;\n}\n"},
};

constexpr ScriptFormat kScripts[] = {
    {"py", kTrain, "python3",
     "x = {x}\nfor _ in range({n}):\n    x = (x * {a} + {b}) % {c}\nprint(\"{label}\", x)\n"},
    {"sh", kTrain, "sh",
     "x={x}\nfor i in $(seq {n}); do\n  x=$(( (x * {a} + {b}) % {c} ))\ndone\necho \"{label} $x\"\n"},
    {"bash", kTrain, "bash",
     "x={x}\nfor ((i = 0; i < {n}; i++)); do\n  ((x = (x * {a} + {b}) % {c}))\ndone\necho \"{label} $x\"\n"},
    {"dash", kTrain, "dash",
     "x={x}\ni=0\nwhile [ $i -lt {n} ]; do\n  x=$(( (x * {a} + {b}) % {c} ))\n  i=$((i + 1))\ndone\necho {label} $x\n"},
    {"pyw", kTrain, "python3 -B",
     "x, n = {x}, {n}\nwhile n:\n    x = (x * {a} + {b}) % {c}\n    n -= 1\nprint(\"{label}\", x)\n"},
    {"job", kTrain, "bash -e",
     "x={x}\nfor i in {1..{n}}; do x=$(( (x * {a} + {b}) % {c} )); done\nprintf '{label} %s\\n' $x\n"},
    {"step", kTrain, "sh -u",
     "f() { echo $(( ($1 * {a} + {b}) % {c} )); }\nx={x}\nfor i in $(seq {n}); do x=$(f $x); done\necho {label} $x\n"},
    {"pl", kNew, "perl",
     "my $x = {x};\n$x = ($x * {a} + {b}) % {c} for 1..{n};\nprint \"{label} $x\\n\";\n"},
    {"awk", kNew, "awk -f",
     "BEGIN {\n  x = {x}\n  for (i = 0; i < {n}; i++) x = (x * {a} + {b}) % {c}\n  print \"{label}\", x\n}\n"},
};
// clang-format on

std::string with_title(std::string_view text, std::string_view title) {
  std::string result(text);
  for (size_t at; (at = result.find("{title}")) != std::string::npos;) result.replace(at, 7, title);
  return result;
}

bool formats_is_number(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
}

}  // namespace

std::string SettingsFormat::key(std::string_view name) const {
  std::string text(name);
  if (large_keys) {
    for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return text;
}

std::string SettingsFormat::entry(std::string_view name, std::string_view value) const {
  const auto mark = formats_is_number(value) && !quote_numbers ? std::string_view() : quote;
  std::string text(before_key);
  return text.append(key(name)).append(between).append(mark).append(value).append(mark).append(after_value);
}

std::string SettingsFormat::render(std::string_view title, std::span<const Entry> entries) const {
  std::string text = with_title(open, title);
  for (size_t i = 0; i < entries.size(); ++i) {
    if (i > 0) text += joiner;
    text.append(indent).append(entry(entries[i].key, entries[i].value));
  }
  return text + with_title(close, title);
}

std::string NotesFormat::line(std::string_view text) const {
  std::string result(before);
  return result.append(text).append(after).append("\n");
}

std::string NotesFormat::render(std::string_view title, std::span<const std::string> lines) const {
  std::string text = with_title(open, title);
  for (const auto& each : lines) text += line(each);
  return text.append(close);
}

std::string RecordsFormat::render(std::span<const Entry> rows) const {
  std::string text;
  for (const auto& row : rows)
    text.append(before).append(row.key).append(between).append(row.value).append(after) += '\n';
  return text;
}

std::span<const SettingsFormat> settings_formats() { return kSettings; }
std::span<const NotesFormat> notes_formats() { return kNotes; }
std::span<const RecordsFormat> records_formats() { return kRecords; }
std::span<const CodeFormat> code_formats() { return kCode; }
std::span<const ScriptFormat> script_formats() { return kScripts; }

}  // namespace tandem::envs
