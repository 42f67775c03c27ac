#include "envs/tasks/python_functions.h"

#include <fmt/format.h>

#include "base/json.h"
#include "base/text.h"
#include "envs/tools/process.h"

namespace tandem::envs {
namespace {

constexpr double kParseSeconds = 60;
constexpr size_t kPythonFunctionsMostOutput = size_t{32} << 20;

// Prints a line of JSON for each function, and the number of them at the end. Columns of `ast` are bytes of UTF-8.
constexpr std::string_view kParser = R"(
import ast, inspect, json, os, warnings

warnings.simplefilter("ignore")
found = 0


def is_empty(node):
    if isinstance(node, ast.Raise):
        raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        return isinstance(raised, ast.Name) and raised.id == "NotImplementedError"
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def first_line(node):
    return min([node.lineno] + [each.lineno for each in getattr(node, "decorator_list", [])])


def describe(path, name, node, source, lines):
    documented = ast.get_docstring(node, clean=False) is not None
    body = node.body[1:] if documented else node.body
    if not body or all(is_empty(each) for each in body):
        return None
    first, last = first_line(body[0]), body[-1].end_lineno
    before = node.body[0].end_lineno if documented else first - 1
    own = lines[first - 1]
    indent = own[: len(own) - len(own.lstrip(b" \t"))]
    # The statement must be the first on its line, and not on that of the docstring or the signature.
    if first <= before or first <= node.lineno or body[0].col_offset > len(indent) + 1:
        return None
    begin = sum(len(each) + 1 for each in lines[:before])
    end = sum(len(each) + 1 for each in lines[:last]) - 1
    if source[:end].endswith(b"\r"):
        end -= 1
    changed = source[:begin] + indent + b"raise NotImplementedError" + source[end:]
    try:
        ast.parse(changed)
    except (SyntaxError, ValueError):
        return None
    bare = type(node)(**{field: getattr(node, field, None) for field in node._fields})
    bare.body, bare.lineno, bare.col_offset = [ast.Expr(ast.Constant(...))], 0, 0
    signature = ast.unparse(bare).rstrip(" .\n").rstrip(":")
    return dict(path=path, name=name, signature=signature, docstring=ast.get_docstring(node) or "", begin=begin,
                end=end, indent=indent.decode())


def functions(node, prefix):
    for each in node.body:
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield prefix + each.name, each
        elif isinstance(each, ast.ClassDef):
            yield from functions(each, prefix + each.name + ".")


paths = []
for folder, _, names in os.walk("."):
    paths += [os.path.relpath(os.path.join(folder, name)) for name in names if name.endswith(".py")]
for path in sorted(paths):
    try:
        with open(path, "rb") as file:
            source = file.read()
        source.decode("utf-8")
        tree = ast.parse(source)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        continue
    if b"\f" in source or b"\r" in source.replace(b"\r\n", b"") or source.startswith(b"\xef\xbb\xbf"):
        continue  # where lines end is another matter there
    lines = source.split(b"\n")
    every = list(functions(tree, ""))
    names = [name for name, _ in every]
    for name, node in every:
        described = describe(path, name, node, source, lines) if names.count(name) == 1 else None
        if described:
            found += 1
            print(json.dumps(described))
print(found)
)";

Result<PythonFunction> function_of(const Json& json, const Files& files) {
  try {
    PythonFunction function{.path = json.at("path").get<std::string>(),
                            .name = json.at("name").get<std::string>(),
                            .signature = json.at("signature").get<std::string>(),
                            .docstring = json.at("docstring").get<std::string>(),
                            .begin = json.at("begin").get<size_t>(),
                            .end = json.at("end").get<size_t>(),
                            .indent = json.at("indent").get<std::string>()};
    const auto file = files.find(function.path);
    if (file != files.end() && function.begin < function.end && function.end <= file->second.size()) return function;
  } catch (const Json::exception&) {
  }
  return fail(Status::internal("the parser of Python files says what cannot be"));
}

}  // namespace

bool is_test_path(std::string_view path) {
  const auto parts = split(path, '/');
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    if (parts[i] == "test" || parts[i] == "tests") return true;
  }
  const auto name = parts.back();
  return name == "conftest.py" || name.ends_with("_test.py") || (name.starts_with("test_") && name.ends_with(".py"));
}

Result<std::vector<PythonFunction>> find_functions(const Files& files, SandboxBackend& backend) {
  if (find_program("python3").empty()) return fail(Status::unfit("there is no program python3 on this machine"));
  SandboxSpec spec;
  spec.call_time_limit_s = kParseSeconds;
  spec.output_limit = kPythonFunctionsMostOutput;
  auto sandbox = TRY(backend.create(spec));
  Files sources;
  for (const auto& [path, content] : files) {
    if (path.ends_with(".py") && !is_test_path(path)) sources[path] = content;
  }
  TRY(sandbox->put(sources));
  const auto outcome =
      TRY(sandbox->call("run_terminal_cmd",
                        {{"command", fmt::format("/usr/bin/python3 -I - <<'TANDEM_END'\n{}\nTANDEM_END\n", kParser)}}));
  const auto lines = split(trim(outcome.output), '\n');
  if (outcome.exit_code != 0 || lines.back() != std::to_string(lines.size() - 1))
    return fail(Status::invalid("the Python files could not be parsed: " + outcome.output.substr(0, 1000)));
  std::vector<PythonFunction> functions;
  for (size_t i = 0; i + 1 < lines.size(); ++i) functions.push_back(TRY(function_of(TRY(parse_json(lines[i])), files)));
  return functions;
}

std::string without_body(std::string_view source, const PythonFunction& function) {
  return std::string(source.substr(0, function.begin)) + function.indent + "raise NotImplementedError" +
         std::string(source.substr(function.end));
}

}  // namespace tandem::envs
