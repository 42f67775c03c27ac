// The agent's tools: one table of names, descriptions, parameters and functions, the same in training and production.
//
// A tool works on the file system of the calling process, below `ToolContext::root`. The sandbox runs this library as
// its own first process, so that nothing outside ever opens a path that a model made. A refused or failed call is a
// result that the model can read and learn from, never an error of the program.
//
// Thread safety: run_tool may be called from several threads with contexts of their own; calls that write one file must
// not run at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "envs/tools/file_change.h"
#include "envs/tools/session.h"

namespace tandem::envs {

// Where tools work, and what bounds them. A value.
struct ToolContext {
  std::filesystem::path root;             // the workspace as this process sees it
  std::string shown_root = "/workspace";  // what models call it; absolute paths below it mean files below `root`
  std::vector<std::string> other_roots;   // other absolute paths of it: "/app"
  size_t output_limit = size_t{1} << 20;  // bytes of output kept, head and tail
  double time_limit_s = 120;              // a command that runs longer is ended with its whole process group
  bool has_network = true;                // false: a command that misses it is told so at the end of its output
  bool allow_background = true;           // whether run_terminal_cmd may leave processes behind
  std::vector<std::string> environment;   // "NAME=value" for commands, and nothing else; empty means a clean default
  std::vector<std::string> tools;         // what may be called; empty: tools(). Others do not exist for the model
  Session* session = nullptr;             // what lasts from call to call, read and changed; null: nothing does
};

struct ToolOutcome {
  bool ok = false;         // false: the tool refused, and `output` says why and what to do
  std::string output;      // printable UTF-8, what the model reads
  int exit_code = 0;       // of a command; 124 after a time limit, 128 + N after signal N; 0 for file tools
  bool truncated = false;  // `output` lacks its middle
  double seconds = 0;
  double core_seconds = 0;     // of processors, by the processes of a call in a sandbox; 0 where it is not known
  bool changed_files = false;  // whether files below the root are other than before
  // One for each file that a tool wrote. Missing: those by commands, and of files too large to read.
  std::vector<FileChange> changes = {};

  static ToolOutcome refused(std::string why);
  static ToolOutcome done(std::string output);
  static ToolOutcome edited(std::string output, std::vector<FileChange> changes);
};

// Calls of tools that only read may run at once; those that follow each other in one message do.
enum class ToolEffect : uint8_t { kReads, kChanges };

struct Tool {
  std::string_view name;
  std::string_view description;  // written for a model
  std::string_view parameters;   // JSON Schema of an object, as text
  ToolEffect effect;
  ToolOutcome (*run)(const ToolContext& context, const Json& arguments);
  // For a tool of several commands: the value of `command` that only reads. Empty: none.
  std::string_view reading_command = {};
};

// The one tool that is not there everywhere: it is answered beside the sandbox, by who has an encoder (envs/search).
inline constexpr std::string_view kSearchTool = "codebase_search";
enum class WithSearch : uint8_t { kNo, kYes };

// The tools that there are unless a list names others, in the order in which models are shown them; codebase_search is
// the last.
std::span<const Tool> tools(WithSearch search = WithSearch::kNo);
std::vector<std::string> tool_names(WithSearch search = WithSearch::kNo);
// These and behind them those of other agents' habits, which are there only where a list names them.
std::span<const Tool> every_tool();
// Any of them, offered or not.
const Tool* find_tool(std::string_view name);

// The tools that a list of names offers, in the order of every_tool(); an empty list offers tools(search). kInvalid for
// a name that is none, one that is there twice, and codebase_search without an encoder.
Result<std::vector<std::string>> choose_tools(std::span<const std::string> names, WithSearch search = WithSearch::kNo);

// The effect of a call with these (perhaps unchecked) arguments: some commands of a tool only read.
ToolEffect effect_of(const Tool& tool, const Json& arguments);

// The OpenAI `tools` array.
Json tool_schemas(WithSearch search = WithSearch::kNo);
Json tool_schemas(std::span<const std::string> names);

// Checks the arguments against the schema, runs the tool, bounds its output and makes it printable.
ToolOutcome run_tool(const ToolContext& context, std::string_view name, const Json& arguments);
// The same with another function behind the tool's name.
using ToolFunction = std::function<ToolOutcome(const ToolContext& context, const Json& arguments)>;
ToolOutcome run_tool(const ToolContext& context, std::string_view name, const Json& arguments, const ToolFunction& run);

// For sending outcomes between processes.
Json to_json(const ToolOutcome& outcome);
ToolOutcome outcome_from_json(const Json& json);

}  // namespace tandem::envs
