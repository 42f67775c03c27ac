// The table of tools, and how a call is checked and run.
#include <algorithm>
#include <array>

#include "base/clock.h"
#include "base/text.h"
#include "envs/tools/arguments.h"
#include "envs/tools/functions.h"
#include "envs/tools/output.h"
#include "envs/tools/tool.h"

namespace tandem::envs {
namespace {

// Only where a list of tools names it and nobody answers it (envs/search/searching_backend.h).
ToolOutcome search_nowhere(const ToolContext&, const Json&) {
  return ToolOutcome::refused("there is no index to search here; use grep");
}

constexpr std::array kTools = {
    Tool{"read_file",
         "Reads a text file and returns its lines, each as LINE_NUMBER|CONTENT. Give offset and limit to read a part "
         "of a "
         "long file.",
         R"({"type":"object","properties":{
           "target_file":{"type":"string","description":"Path of the file, relative to the workspace."},
           "offset":{"type":"integer","minimum":1,"description":"First line to read, counted from 1."},
           "limit":{"type":"integer","minimum":1,"description":"How many lines to read."}},
           "required":["target_file"],"additionalProperties":false})",
         ToolEffect::kReads, tool_read_file},
    Tool{
        "search_replace",
        "Replaces text in a file. old_string must occur exactly once, copied as it stands in the file with its spaces, "
        "unless replace_all is true.",
        R"({"type":"object","properties":{
           "file_path":{"type":"string","description":"Path of the file to edit, relative to the workspace."},
           "old_string":{"type":"string","description":"The text to replace."},
           "new_string":{"type":"string","description":"The text to put in its place."},
           "replace_all":{"type":"boolean","description":"Replace every occurrence. False by default."}},
           "required":["file_path","old_string","new_string"],"additionalProperties":false})",
        ToolEffect::kChanges, tool_search_replace},
    Tool{"write",
         "Writes a whole file: creates it, with the folders it needs, or replaces what it held. To change a part of a "
         "file "
         "use search_replace.",
         R"({"type":"object","properties":{
           "file_path":{"type":"string","description":"Path of the file to write, relative to the workspace."},
           "contents":{"type":"string","description":"Everything the file shall hold."}},
           "required":["file_path","contents"],"additionalProperties":false})",
         ToolEffect::kChanges, tool_write},
    Tool{"grep",
         "Searches files for a regular expression. Prints PATH:LINE:TEXT for each match, or only paths or counts with "
         "output_mode.",
         R"({"type":"object","properties":{
           "pattern":{"type":"string","description":"The regular expression."},
           "path":{"type":"string","description":"File or folder to search. The whole workspace by default."},
           "glob":{"type":"string","description":"Only files whose path matches, such as *.py."},
           "output_mode":{"type":"string","enum":["content","files_with_matches","count"],
             "description":"What to print; content by default."},
           "-B":{"type":"integer","minimum":0,"description":"Lines to show before each match."},
           "-A":{"type":"integer","minimum":0,"description":"Lines to show after each match."},
           "-C":{"type":"integer","minimum":0,"description":"Lines to show around each match."},
           "-i":{"type":"boolean","description":"Ignore case."},
           "type":{"type":"string","description":"Only files of this type, such as py or js."},
           "head_limit":{"type":"integer","minimum":1,"description":"Print only the first lines of the result."},
           "multiline":{"type":"boolean","description":"Let a match span lines."}},
           "required":["pattern"],"additionalProperties":false})",
         ToolEffect::kReads, tool_grep},
    Tool{"list_dir", "Lists the files and folders of a folder; folders end in a slash.",
         R"({"type":"object","properties":{
           "target_directory":{"type":"string","description":"The folder, relative to the workspace; . for itself."}},
           "required":["target_directory"],"additionalProperties":false})",
         ToolEffect::kReads, tool_list_dir},
    Tool{"run_terminal_cmd",
         "Runs a shell command and returns its output and exit code. The working directory and exported variables are "
         "kept for the next command. There is no network and no input, and a command that takes too long is ended.",
         R"({"type":"object","properties":{
           "command":{"type":"string","description":"The command line, for bash."},
           "is_background":{"type":"boolean","description":"Start it and do not wait. False by default."}},
           "required":["command"],"additionalProperties":false})",
         ToolEffect::kChanges, tool_run_terminal_cmd},
    Tool{"delete_file", "Deletes one file. A symbolic link is deleted itself, not what it names.",
         R"({"type":"object","properties":{
           "target_file":{"type":"string","description":"Path of the file to delete, relative to the workspace."},
           "explanation":{"type":"string","description":"Why, in one sentence."}},
           "required":["target_file"],"additionalProperties":false})",
         ToolEffect::kChanges, tool_delete_file},
    Tool{"glob_file_search",
         "Finds files by name. Prints the paths that match, those changed last first, without ignored ones.",
         R"({"type":"object","properties":{
           "glob_pattern":{"type":"string",
             "description":"Such as *.py or src/**/test_*.{js,ts}. Matches at any depth, as if it began with **/."},
           "target_directory":{"type":"string","description":"Folder to look in. The whole workspace by default."}},
           "required":["glob_pattern"],"additionalProperties":false})",
         ToolEffect::kReads, tool_glob_file_search},
    Tool{
        "read_lints",
        "Runs the linters that are installed and prints what they find, as PATH:LINE:COLUMN: SEVERITY: MESSAGE (LINTER "
        "CODE). Problems may be older than your changes, unless only_new is true.",
        R"({"type":"object","properties":{
           "paths":{"type":"array","items":{"type":"string"},
             "description":"Files and folders to check. The whole workspace by default."},
           "only_new":{"type":"boolean",
             "description":"Leave out what was found in the last git commit already. Default false."}},
           "required":[],"additionalProperties":false})",
        ToolEffect::kReads, tool_read_lints},
    Tool{"todo_write", "Keeps a list of what is to be done, and prints it. Use it for work of several steps.",
         R"({"type":"object","properties":{
           "merge":{"type":"boolean",
             "description":"True: change the items whose id is given and add new ones. False: replace the whole list."},
           "todos":{"type":"array","minItems":1,"description":"The items.","items":{"type":"object","properties":{
             "id":{"type":"string","description":"A short name for the item, the same in every call."},
             "content":{"type":"string","description":"What is to be done, in one line."},
             "status":{"type":"string","enum":["pending","in_progress","completed","cancelled"],
               "description":"How far it is."}},
             "required":["id","content","status"],"additionalProperties":false}}},
           "required":["merge","todos"],"additionalProperties":false})",
         ToolEffect::kChanges, tool_todo_write},
    Tool{
        "apply_patch",
        "Changes several files at once, all of them or none. The input is a patch:\n"
        "*** Begin Patch\n"
        "*** Update File: a.py\n"
        "@@ def main():\n"
        "     x = 1\n"
        "-    y = 2\n"
        "+    y = 3\n"
        "*** Add File: b.txt\n"
        "+one line\n"
        "*** Delete File: c.txt\n"
        "*** End Patch\n"
        "Lines that begin with a space stay, - go, + come. Text after @@ is a line that stands before them. \"*** Move "
        "to: PATH\" after the heading of an update renames the file.",
        R"({"type":"object","properties":{
           "input":{"type":"string","description":"The whole patch, from *** Begin Patch to *** End Patch."}},
           "required":["input"],"additionalProperties":false})",
        ToolEffect::kChanges, tool_apply_patch},
    Tool{kSearchTool,
         "Finds code by meaning: ask a whole question, such as \"Where are sessions refreshed?\". Prints the pieces of "
         "code that answer it best, each as PATH:FIRST-LAST with its lines. For exact text use grep.",
         R"({"type":"object","properties":{
           "query":{"type":"string","description":"What you are looking for, as a question in words."},
           "explanation":{"type":"string","description":"Why, in one sentence."},
           "target_directories":{"type":"array","items":{"type":"string"},
             "description":"Folders or files to search. The whole workspace by default."}},
           "required":["query"],"additionalProperties":false})",
         ToolEffect::kReads, search_nowhere},
    Tool{"bash",
         "Runs a command line in bash and returns its output and exit code. The working directory and exported "
         "variables "
         "are kept for the next command. There is no network and no input, and a command that takes too long is ended.",
         R"({"type":"object","properties":{
           "command":{"type":"string","description":"The command line. Needed unless restart is true."},
           "restart":{"type":"boolean","description":"True: begin with a new shell, in the workspace."}},
           "required":[],"additionalProperties":false})",
         ToolEffect::kChanges, tool_bash},
    Tool{"str_replace_based_edit_tool",
         "Views, makes and edits text files.\n"
         "view: prints a file as LINE_NUMBER|CONTENT, the lines of view_range alone where it is given; of a folder the "
         "names in it and in its folders.\n"
         "create: writes a whole file, with the folders it needs, or replaces what it held.\n"
         "str_replace: replaces old_str, which must occur exactly once, copied as it stands in the file with its "
         "spaces.\n"
         "insert: puts insert_text behind the line insert_line; 0 is the beginning of the file.",
         R"({"type":"object","properties":{
           "command":{"type":"string","enum":["view","create","str_replace","insert"],"description":"What to do."},
           "path":{"type":"string","description":"File or folder, relative to the workspace or below /workspace."},
           "view_range":{"type":"array","minItems":2,"maxItems":2,"items":{"type":"integer"},
             "description":"Of view: first and last line, counted from 1; -1 as the last is the end of the file."},
           "file_text":{"type":"string","description":"Of create: everything the file shall hold."},
           "old_str":{"type":"string","description":"Of str_replace: the text to replace."},
           "new_str":{"type":"string","description":"Of str_replace: the text to put in its place; nothing by default."},
           "insert_line":{"type":"integer","minimum":0,"description":"Of insert: the line behind which."},
           "insert_text":{"type":"string","description":"Of insert: the lines to insert."}},
           "required":["command","path"],"additionalProperties":false})",
         ToolEffect::kChanges, tool_str_replace_based_edit_tool, "view"},
    Tool{"edit_file",
         "Edits a file by a sketch of its new text, in which a comment of the kind \"// ... existing code ...\" stands "
         "for lines that stay. Begin and end each part of the sketch with lines of the file that stay as they are, "
         "enough of them to be found once: the part replaces everything from its first line to its last. Lines for "
         "which nothing stands are gone, also at the end of the file. Without such a comment the sketch is the whole "
         "file, which may be a new one.",
         R"({"type":"object","properties":{
           "target_file":{"type":"string","description":"Path of the file, relative to the workspace."},
           "instructions":{"type":"string","description":"What the edit does, in one sentence."},
           "code_edit":{"type":"string","description":"The sketch."}},
           "required":["target_file","code_edit"],"additionalProperties":false})",
         ToolEffect::kChanges, tool_edit_file},
};

// The first of them are there unless a list says otherwise, then comes codebase_search, then what only lists name.
constexpr size_t kUsual = 11;
static_assert(kTools[kUsual].name == kSearchTool);

// The parsed schemas, in the order of the table; immutable once made.
const std::array<Json, kTools.size()>& schemas() {
  static const auto kSchemas = [] {
    std::array<Json, kTools.size()> parsed;
    for (size_t i = 0; i < kTools.size(); ++i) parsed[i] = Json::parse(kTools[i].parameters);
    return parsed;
  }();
  return kSchemas;
}

std::vector<std::string> offered_tools(const ToolContext& context) {
  return context.tools.empty() ? tool_names() : context.tools;
}

}  // namespace

ToolOutcome ToolOutcome::refused(std::string why) {
  ToolOutcome outcome;
  outcome.output = "Error: " + std::move(why);
  return outcome;
}

ToolOutcome ToolOutcome::done(std::string output) {
  ToolOutcome outcome;
  outcome.ok = true;
  outcome.output = std::move(output);
  return outcome;
}

ToolOutcome ToolOutcome::edited(std::string output, std::vector<FileChange> changes) {
  ToolOutcome outcome = done(std::move(output));
  outcome.changed_files = true;
  outcome.changes = std::move(changes);
  return outcome;
}

std::span<const Tool> tools(WithSearch search) {
  return std::span(kTools).first(kUsual + (search == WithSearch::kYes ? 1 : 0));
}

std::span<const Tool> every_tool() { return kTools; }

std::vector<std::string> tool_names(WithSearch search) {
  std::vector<std::string> names;
  for (const auto& tool : tools(search)) names.emplace_back(tool.name);
  return names;
}

const Tool* find_tool(std::string_view name) {
  for (const auto& tool : kTools) {
    if (tool.name == name) return &tool;
  }
  return nullptr;
}

Result<std::vector<std::string>> choose_tools(std::span<const std::string> names, WithSearch search) {
  if (names.empty()) return tool_names(search);
  std::vector<std::string_view> known;
  for (const auto& tool : kTools) {
    if (tool.name != kSearchTool || search == WithSearch::kYes) known.push_back(tool.name);
  }
  for (auto name = names.begin(); name != names.end(); ++name) {
    if (*name == kSearchTool && search == WithSearch::kNo)
      return fail(Status::invalid("codebase_search needs an encoder, and there is none here"));
    if (std::find(known.begin(), known.end(), *name) == known.end())
      return fail(Status::invalid("there is no tool \"" + *name + "\"" + did_you_mean(*name, known)));
    if (std::find(names.begin(), name, *name) != name)
      return fail(Status::invalid("the tool \"" + *name + "\" is named twice"));
  }
  std::vector<std::string> chosen;
  for (const auto tool : known) {
    if (std::find(names.begin(), names.end(), tool) != names.end()) chosen.emplace_back(tool);
  }
  return chosen;
}

ToolEffect effect_of(const Tool& tool, const Json& arguments) {
  const bool reads = !tool.reading_command.empty() && arguments.is_object() &&
                     arguments.value("command", Json()) == Json(tool.reading_command);
  return reads ? ToolEffect::kReads : tool.effect;
}

Json tool_schemas(std::span<const std::string> names) {
  Json array = Json::array();
  for (size_t i = 0; i < kTools.size(); ++i) {
    if (std::find(names.begin(), names.end(), kTools[i].name) == names.end()) continue;
    Json function = {{"name", kTools[i].name}, {"description", kTools[i].description}, {"parameters", schemas()[i]}};
    array.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return array;
}

Json tool_schemas(WithSearch search) { return tool_schemas(tool_names(search)); }

ToolOutcome run_tool(const ToolContext& context, std::string_view name, const Json& arguments) {
  return run_tool(context, name, arguments, nullptr);
}

ToolOutcome run_tool(const ToolContext& context, std::string_view name, const Json& arguments,
                     const ToolFunction& run) {
  const auto offered = offered_tools(context);
  const Tool* tool = find_tool(name);
  if (!tool || std::find(offered.begin(), offered.end(), name) == offered.end()) {
    const std::vector<std::string_view> names(offered.begin(), offered.end());
    const auto near = nearest(name, names);
    return ToolOutcome::refused(
        "there is no tool \"" + make_printable(name) + "\"" +
        (near.empty() ? "; the tools are " + join(offered, ", ") : "; did you mean \"" + near + "\"?"));
  }
  const auto& schema = schemas()[static_cast<size_t>(tool - kTools.data())];
  if (auto wrong = check_arguments(name, schema, arguments); !wrong.empty())
    return ToolOutcome::refused(make_printable(wrong));
  const Json fitting = with_integers(schema, arguments);
  const SystemClock clock;
  const Time start = clock.now();
  ToolOutcome outcome = run ? run(context, fitting) : tool->run(context, fitting);
  outcome.output = bound_output(make_printable(outcome.output), context.output_limit, outcome.truncated);
  outcome.seconds = to_seconds(clock.now() - start);
  return outcome;
}

Json to_json(const ToolOutcome& outcome) {
  Json json = {{"ok", outcome.ok},
               {"output", outcome.output},
               {"exit_code", outcome.exit_code},
               {"truncated", outcome.truncated},
               {"seconds", outcome.seconds},
               {"core_seconds", outcome.core_seconds},
               {"changed_files", outcome.changed_files}};
  for (const auto& change : outcome.changes) json["changes"].push_back(to_json(change));
  return json;
}

ToolOutcome outcome_from_json(const Json& json) {
  ToolOutcome outcome;
  outcome.ok = json.value("ok", false);
  outcome.output = json.value("output", std::string());
  outcome.exit_code = json.value("exit_code", 0);
  outcome.truncated = json.value("truncated", false);
  outcome.seconds = json.value("seconds", 0.0);
  outcome.core_seconds = std::max(0.0, json.value("core_seconds", 0.0));
  outcome.changed_files = json.value("changed_files", false);
  if (const auto changes = json.find("changes"); changes != json.end() && changes->is_array()) {
    for (const Json& each : *changes) {
      if (auto change = file_change_from_json(each)) outcome.changes.push_back(*change);
    }
  }
  return outcome;
}

}  // namespace tandem::envs
