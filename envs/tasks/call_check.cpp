#include "envs/tasks/call_check.h"

#include <fmt/format.h>

#include "base/text.h"
#include "envs/tasks/verifier.h"

namespace tandem::envs {
namespace {

// What the programs share: literals in and out, and a standard output that only they write to.
constexpr std::string_view kFrame = R"(
import ast, os, random, sys
out = os.fdopen(os.dup(1), 'w')
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
random.seed(0)
sys.setrecursionlimit(10000)
def text_of(value):
    text = repr(value)
    ast.literal_eval(text)
    return text
def source(path):
    with open(path, encoding='utf-8') as file:
        return file.read()
)";

// The tests with the reference, writing down each call that they make of the function.
constexpr std::string_view kRecord = R"(
reference = {'__name__': 'reference'}
exec(compile(source('reference.py'), 'reference.py', 'exec'), reference)
names = dict(reference)  # a function that calls itself means itself
real, calls = names[FUNCTION], []
def recorded(*arguments, **named):
    calls.append(text_of((arguments, named)))
    return real(*arguments, **named)
names[FUNCTION] = recorded
exec(compile(source('test.py'), 'test.py', 'exec'), names)
out.write(text_of(calls))
out.flush()
)";

// The code under test, asked call by call. Whatever it does in this process, all that it can change is its own answers.
constexpr std::string_view kAnswer = R"(
import importlib.util
calls = ast.literal_eval(source('tandem_calls.txt'))
sys.path.insert(0, os.getcwd())
answers = []
try:
    spec = importlib.util.spec_from_file_location('under_test', MODULE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function = getattr(module, FUNCTION)
except BaseException as error:
    function = None
for call in calls:
    arguments, named = ast.literal_eval(call)
    try:
        answers.append(('value', text_of(function(*arguments, **named))))
    except BaseException as error:
        answers.append(('error', type(error).__name__))
out.write(repr(answers))
out.flush()
os._exit(0)
)";

// The tests again, with the answers in place of the function.
constexpr std::string_view kReplay = R"(
reference = {'__name__': 'reference'}
exec(compile(source('reference.py'), 'reference.py', 'exec'), reference)
names = dict(reference)  # a function that calls itself means itself
calls = ast.literal_eval(source('calls.txt'))
answers = ast.literal_eval(source('answers.txt'))
at = 0
class Refused(Exception):
    pass
def replayed(*arguments, **named):
    global at
    if at >= len(answers) or text_of((arguments, named)) != calls[at]:
        raise Refused('the tests called otherwise than with the reference')
    kind, text = answers[at]
    at += 1
    if kind == 'value':
        return ast.literal_eval(text)
    raise Refused(text)
names[FUNCTION] = replayed
try:
    exec(compile(source('test.py'), 'test.py', 'exec'), names)
    out.write('passed')
except BaseException as error:
    out.write('failed: ' + type(error).__name__ + ' ' + str(error)[:200])
out.flush()
)";

std::string program(const CallCheck& check, std::string_view body) {
  // The names are identifiers and a path that reading a task has checked; as JSON they are literals of Python too.
  return fmt::format("FUNCTION = {}\nMODULE = {}\n{}{}", dump_json(Json(check.function)), dump_json(Json(check.module)),
                     kFrame, body);
}

Result<ToolOutcome> run_one(Place place, const CallCheck& check, std::string_view body, const Runner& runner) {
  constexpr const char* kProgram = "tandem_program.py";
  std::erase_if(place.files, [&](const auto& file) { return file.first.starts_with(std::string(kProgram) + "/"); });
  place.files[kProgram] = program(check, body);
  // Isolated mode: neither the environment nor files of the workspace can stand in for the standard library.
  const CheckCommand command{.command = std::string("/usr/bin/python3 -I ") + kProgram, .seconds = check.seconds};
  return TRY(runner(place, {&command, 1})).at(0);
}

}  // namespace

Result<Term> run_calls(const CallCheck& check, const Files& left_behind, const Runner& runner) {
  if (!left_behind.contains(check.module)) return Term{.why = check.module + " is gone"};
  const Files tests = {{"reference.py", check.reference}, {"test.py", check.test}};
  const auto recorded = TRY(run_one({.files = tests}, check, kRecord, runner));
  if (recorded.exit_code != 0) {
    return fail(Status::invalid("the tests of " + check.function + " fail with its reference: " + recorded.output));
  }

  Place place{.files = left_behind};
  std::erase_if(place.files, [](const auto& file) { return file.first.starts_with("tandem_calls.txt/"); });
  place.files["tandem_calls.txt"] = recorded.output;
  const auto answered = TRY(run_one(place, check, kAnswer, runner));
  if (is_out_of_time(answered))
    return Term{.why = fmt::format("{} took longer than {} s", check.function, check.seconds)};
  if (answered.exit_code != 0) {
    return Term{.why = fmt::format("{} ended its process with {}", check.module, answered.exit_code)};
  }

  place.files = tests;
  place.files["calls.txt"] = recorded.output;
  place.files["answers.txt"] = answered.output;
  const auto replayed = TRY(run_one(place, check, kReplay, runner));
  if (replayed.exit_code == 0 && trim(replayed.output) == "passed") return Term{.value = 1};
  return Term{.why = std::string(trim(replayed.output))};
}

}  // namespace tandem::envs
