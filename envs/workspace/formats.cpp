#include "envs/workspace/formats.h"

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
    {"rst", kNew, "", "* ", "", ""},
    {"adoc", kNew, "= {title}\n\n", ". ", "", ""},
    {"tex", kNew, "\\section{{title}}\n", "\\item ", "", ""},
    {"org", kNew, "", "** ", "", ""},
    {"xml", kNew, "<notes>\n", "  <note>", "</note>", "</notes>\n"},
};

constexpr RecordsFormat kRecords[] = {
    {"txt", kTrain, "", ": ", "", ": "},
    {"ini", kTrain, "", " = ", "", " = "},
    {"md", kTrain, "- ", ": ", "", ": "},
    {"conf", kTrain, "", " ", "", " "},
    {"properties", kTrain, "", "=", "", "="},
    {"log", kTrain, "info ", " ", "", " "},
    {"csv", kNew, "", ",", "", ","},
    {"tsv", kNew, "", "\t", "", "\\t"},
    {"psv", kNew, "", "|", "", "|"},
    {"yaml", kNew, "- ", ": ", "", ": "},
};

constexpr CodeFormat kCode[] = {
    {"py", kTrain, "def {n}(x):\n    return x * {k}\n", "from {m} import {n}\n\nprint({n}({k}))\n"},
    {"js", kTrain, "function {n}(x) {\n  return x * {k};\n}\nmodule.exports = { {n} };\n",
     "const { {n} } = require(\"./{m}\");\nconsole.log({n}({k}));\n"},
    {"sh", kTrain, "{n}() {\n  echo \"$1 {k}\"\n}\n", ". ./{m}.sh\n{n} {k}\n"},
    {"sql", kTrain, "CREATE TABLE {n} (id INTEGER);\n", "SELECT id FROM {n} WHERE id < {k};\n"},
    {"html", kTrain, "<div id=\"{n}\">{k}</div>\n", "<a href=\"{m}.html#{n}\">{k}</a>\n"},
    {"md", kTrain, "## {n}\n\nTakes {k} minutes.\n", "See `{n}` in {m}.md, {k} pages.\n"},
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

bool is_number(std::string_view text) {
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
  const auto mark = is_number(value) && !quote_numbers ? std::string_view() : quote;
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
