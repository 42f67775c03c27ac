#include "envs/tasks/humanevalpack.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/digest.h"
#include "base/json.h"
#include "base/text.h"

namespace tandem::envs {
namespace {

constexpr uint64_t kLargestFile = uint64_t{64} << 20;

// What is used of a line.
struct Row {
  std::string id, function, declaration, prompt, right, buggy, docstring, test, examples;
};

bool is_identifier(std::string_view text) {
  const auto fits = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  return !text.empty() && !std::isdigit(static_cast<unsigned char>(text[0])) &&
         std::all_of(text.begin(), text.end(), fits);
}

std::string without_assert_header(const std::string& test) {
  std::string kept;
  for (const auto line : split(test, '\n')) {
    const bool header = trim(line).starts_with("#include") && (line.find("assert.h") != std::string_view::npos ||
                                                               line.find("cassert") != std::string_view::npos);
    if (!header) kept.append(line).append("\n");
  }
  return kept;
}

std::string instruction(const Row& row, const std::string& file, bool examples) {
  return fmt::format("The function {} in {} has a bug. It should do this:\n\n{}\n\nMend it in {}.{}", row.function,
                     file, trim(row.docstring), file, examples ? " The examples file shows calls that must hold." : "");
}

// Headers beyond the standard library come from packages that may not be there.
std::vector<std::string> headers_of(const std::string& source) {
  std::vector<std::string> needs;
  for (const auto line : split(source, '\n')) {
    if (!trim(line).starts_with("#include")) continue;
    const size_t open = line.find('<'), close = line.find('>');
    if (open == std::string_view::npos || close == std::string_view::npos || close < open) continue;
    const auto header = line.substr(open + 1, close - open - 1);
    if (header.find('/') != std::string_view::npos) needs.push_back("/usr/include/" + std::string(trim(header)));
  }
  return needs;
}

void make_python(const Row& row, Task& task) {
  task.needs = {"python3"};
  task.files["solution.py"] = row.declaration + row.buggy;
  if (!trim(row.examples).empty()) {
    task.files["examples.py"] = "from solution import *\n\n" + row.examples + "print(\"ok\")\n";
  }
  const auto right = row.declaration + row.right;
  task.expectation.calls = {.module = "solution.py", .function = row.function, .reference = right, .test = row.test};
  task.solution.turns = {{{"write", {{"file_path", "solution.py"}, {"contents", right}}}}};
}

// The declaration with its last brace, which opens the body, as a semicolon: helpers stay as they are.
std::string prototype(const std::string& declaration) {
  auto text = declaration.substr(0, declaration.rfind('{'));
  return std::string(text.substr(0, text.find_last_not_of(" \t\r\n") + 1)) + ";\n";
}

// The data set's assert is the library's, whose failure code under test can replace; this one stays in the program that
// the tests are compiled to.
constexpr std::string_view kAssert =
    "#undef assert\n#define assert(...) do { if (!(__VA_ARGS__)) __builtin_trap(); } while (0)\n";

bool is_balanced(std::string_view source) {
  return std::count(source.begin(), source.end(), '{') == std::count(source.begin(), source.end(), '}');
}

// What stands before the body. The data set has a declaration that goes on into the body, where only the prompt ends
// before it.
std::string head_of(const Row& row) {
  if (is_balanced(row.declaration + row.right) || !is_balanced(row.prompt + row.right)) return row.declaration;
  return "#include<algorithm>\n#include<stdlib.h>\n" + row.prompt;
}

Status make_cpp(const Row& row, Task& task) {
  const auto test = without_assert_header(row.test);
  const size_t main_end = test.rfind('}');
  if (test.find("int main") == std::string::npos || main_end == std::string::npos) {
    return Status::invalid("\"test\" has no main function");
  }
  const auto head = head_of(row);
  if (head.find('{') == std::string::npos) return Status::invalid("\"declaration\" opens no body");
  const auto right = head + row.right;
  task.needs = headers_of(right);
  task.needs.insert(task.needs.begin(), "g++");
  task.files["solution.cpp"] = head + row.buggy;
  if (!trim(row.examples).empty()) task.files["examples.cpp"] = "#include \"solution.cpp\"\n" + row.examples;

  const auto word = "passed-" + digest_of(row.id + row.test).hex();
  CommandCheck check;
  check.files["tests.cpp"] = "#include <cstdio>\n" + prototype(head) + std::string(kAssert) + test.substr(0, main_end) +
                             "\n    std::puts(\"" + word + "\");\n}\n";
  // The tests come first, with helpers of their own where the code under test has the same; their text is gone before
  // anything of it runs.
  const bool openssl = right.find("<openssl/") != std::string::npos;
  check.commands = {
      {.command = "g++ -w -c solution.cpp -o solution.o && g++ -w -c tests.cpp -o tests.o && rm tests.cpp && "
                  "g++ -Wl,-z,muldefs tests.o solution.o" +
                  std::string(openssl ? " -lcrypto" : "") + " -o tests",
       .seconds = 30},
      {.command = "./tests", .output = word, .seconds = 10}};
  task.expectation.commands = std::move(check);
  task.solution.turns = {{{"write", {{"file_path", "solution.cpp"}, {"contents", right}}}}};
  return {};
}

Result<Row> row_of(const Json& json) {
  if (!json.is_object()) return fail(Status::invalid("is no JSON object"));
  Row row;
  const std::initializer_list<std::pair<const char*, std::string*>> fields = {{"task_id", &row.id},
                                                                              {"entry_point", &row.function},
                                                                              {"declaration", &row.declaration},
                                                                              {"canonical_solution", &row.right},
                                                                              {"buggy_solution", &row.buggy},
                                                                              {"docstring", &row.docstring},
                                                                              {"test", &row.test}};
  for (const auto& [name, target] : fields) {
    if (!json.contains(name)) return fail(Status::invalid(fmt::format("lacks \"{}\", which HumanEvalPack has", name)));
    if (!json.at(name).is_string()) return fail(Status::invalid(fmt::format("\"{}\" must be text", name)));
    *target = json.at(name).get<std::string>();
  }
  const auto take = [&](const char* name, std::string& target) {
    if (json.contains(name) && json.at(name).is_string()) target = json.at(name).get<std::string>();
  };
  take("example_test", row.examples);
  take("prompt", row.prompt);
  if (!is_identifier(row.function)) return fail(Status::invalid("\"entry_point\" is no name of a function"));
  return row;
}

Result<Task> task_of(std::string_view line) {
  const Row row = TRY(row_of(TRY(parse_json(line))));
  Task task;
  task.name = row.id;
  task.max_turns = 10;
  task.ends_on_change = false;
  const auto slash = row.id.find('/');
  const auto language = row.id.substr(0, slash);
  if (slash == std::string::npos || slash + 1 == row.id.size() || (language != "Python" && language != "CPP")) {
    return fail(Status::invalid(fmt::format("task_id \"{}\" is neither Python/N nor CPP/N", row.id)));
  }
  if (language == "Python") {
    task.spec.kind = "python";
    make_python(row, task);
  } else {
    task.spec.kind = "cpp";
    TRY(make_cpp(row, task));
  }
  task.instruction = instruction(row, task.files.rbegin()->first, task.files.size() > 1);
  return task;
}

}  // namespace

std::vector<Task> read_humanevalpack(const fs::path& file, Mistakes& mistakes) {
  std::vector<Task> tasks;
  const auto text = read_file(file, kLargestFile);
  if (!text) {
    mistakes.add(file.string(), 0, text.error().message());
    return tasks;
  }
  int number = 0;
  for (const auto line : split(*text, '\n')) {
    ++number;
    if (trim(line).empty()) continue;
    if (auto task = task_of(line))
      tasks.push_back(std::move(*task));
    else
      mistakes.add(file.string(), number, task.error().message());
  }
  return tasks;
}

}  // namespace tandem::envs
