// bug: mend a one-line bug whose failing test is in the folder; judged by calls that the test does not make.
#include "envs/tasks/workspace/kind.h"

namespace tandem::envs {
namespace {

struct Mutation {
  std::string_view right, wrong;
  size_t shown;  // the case that the visible test has; it fails under this mutation
};
struct Case {
  std::string_view arguments, result;
};
struct Function {
  std::string_view name;
  std::string_view source;
  Mutation mutations[3];
  Case cases[5];
};

// clang-format off
constexpr Function kFunctions[] = {
    {"count_above", "def count_above(items, limit):\n    total = 0\n    for item in items:\n        if item > limit:\n            total += 1\n    return total\n",
     {{"item > limit", "item < limit", 0}, {"total += 1", "total += 2", 0}, {"total = 0", "total = 1", 1}},
     {{"[1, 5, 9, 12], 4", "3"}, {"[], 1", "0"}, {"[4, 4, 5], 4", "1"}, {"[-3, 0, 2], -1", "2"}, {"[7], 9", "0"}}},
    {"largest_gap", "def largest_gap(items):\n    best = 0\n    for a, b in zip(items, items[1:]):\n        best = max(best, abs(b - a))\n    return best\n",
     {{"b - a", "b + a", 0}, {"max(", "min(", 0}, {"items[1:]", "items[2:]", 1}},
     {{"[1, 4, 9]", "5"}, {"[10, 3, 4]", "7"}, {"[2]", "0"}, {"[5, 5, 6]", "1"}, {"[-4, 4]", "8"}}},
    {"is_sorted", "def is_sorted(items):\n    for a, b in zip(items, items[1:]):\n        if a > b:\n            return False\n    return True\n",
     {{"a > b", "a < b", 0}, {"return False", "return True", 1}, {"a > b", "a >= b", 2}},
     {{"[1, 2, 3]", "True"}, {"[3, 1]", "False"}, {"[2, 2]", "True"}, {"[1, 3, 2]", "False"}, {"[]", "True"}}},
    {"shout", "def shout(text):\n    return text.strip().upper() + \"!\"\n",
     {{".upper()", ".lower()", 0}, {"\"!\"", "\"?\"", 0}, {".strip()", "", 1}},
     {{"\"hi\"", "'HI!'"}, {"\" go \"", "'GO!'"}, {"\"a b\"", "'A B!'"}, {"\"\"", "'!'"}, {"\"Ok\"", "'OK!'"}}},
    {"average", "def average(items):\n    if not items:\n        return 0\n    return sum(items) / len(items)\n",
     {{"/ len", "* len", 0}, {"return 0", "return 1", 1}, {"sum(items)", "max(items)", 0}},
     {{"[2, 4]", "3.0"}, {"[]", "0"}, {"[5]", "5.0"}, {"[1, 2, 6]", "3.0"}, {"[-2, 2]", "0.0"}}},
    {"last_word", "def last_word(text):\n    words = text.split()\n    return words[-1] if words else \"\"\n",
     {{"words[-1]", "words[0]", 0}, {"text.split()", "text.split(\",\")", 0}, {"else \"\"", "else None", 1}},
     {{"\"one two\"", "'two'"}, {"\"\"", "''"}, {"\"a b c\"", "'c'"}, {"\"solo\"", "'solo'"}, {"\" x y \"", "'y'"}}},
    {"clamp", "def clamp(value, low, high):\n    if value < low:\n        return low\n    if value > high:\n        return high\n    return value\n",
     {{"return low", "return high", 0}, {"value > high", "value >= low", 1}, {"return value", "return low", 1}},
     {{"1, 3, 9", "3"}, {"5, 3, 9", "5"}, {"12, 3, 9", "9"}, {"3, 3, 9", "3"}, {"-4, -2, 2", "-2"}}},
    {"repeat_each", "def repeat_each(text, times):\n    result = \"\"\n    for letter in text:\n        result += letter * times\n    return result\n",
     {{"letter * times", "letter", 0}, {"result = \"\"", "result = \" \"", 0}, {"result += letter", "result = letter", 0}},
     {{"\"ab\", 2", "'aabb'"}, {"\"\", 3", "''"}, {"\"xyz\", 1", "'xyz'"}, {"\"q\", 4", "'qqqq'"}, {"\"ab\", 0", "''"}}},
    {"sum_even", "def sum_even(items):\n    return sum(item for item in items if item % 2 == 0)\n",
     {{"== 0", "== 1", 0}, {"% 2", "% 3", 0}, {"sum(item for", "max(item for", 0}},
     {{"[1, 2, 4]", "6"}, {"[3, 5]", "0"}, {"[6]", "6"}, {"[10, 11, 12]", "22"}, {"[0, -2]", "-2"}}},
    {"common_items", "def common_items(left, right):\n    return sorted(set(left) & set(right))\n",
     {{"& set", "| set", 0}, {"sorted(", "list(", 1}, {"set(left) &", "set(left) -", 0}},
     {{"[1, 2], [2, 3]", "[2]"}, {"[\"c\", \"b\", \"a\", \"d\"], [\"d\", \"a\", \"b\", \"c\"]", "['a', 'b', 'c', 'd']"}, {"[], [1]", "[]"}, {"[4, 4, 5], [5, 4]", "[4, 5]"}, {"[1], [2]", "[]"}}},
    {"factorial", "def factorial(n):\n    result = 1\n    for i in range(2, n + 1):\n        result *= i\n    return result\n",
     {{"result = 1", "result = 0", 0}, {"n + 1", "n", 0}, {"*= i", "+= i", 0}},
     {{"5", "120"}, {"0", "1"}, {"1", "1"}, {"3", "6"}, {"6", "720"}}},
    {"initials", "def initials(name):\n    return \"\".join(part[0].upper() for part in name.split())\n",
     {{"part[0]", "part[-1]", 0}, {".upper()", ".lower()", 0}, {"\"\".join", "\".\".join", 0}},
     {{"\"ada lovelace\"", "'AL'"}, {"\"x\"", "'X'"}, {"\"a b c\"", "'ABC'"}, {"\"\"", "''"}, {"\"tim van dam\"", "'TVD'"}}},
    {"drop_short", "def drop_short(words, size):\n    return [word for word in words if len(word) >= size]\n",
     {{">= size", "<= size", 0}, {">= size", "> size", 0}, {"len(word)", "len(words)", 0}},
     {{"[\"a\", \"abc\"], 3", "['abc']"}, {"[], 2", "[]"}, {"[\"ab\", \"cd\"], 2", "['ab', 'cd']"}, {"[\"x\"], 5", "[]"}, {"[\"hello\", \"yo\"], 4", "['hello']"}}},
    {"pairs_total", "def pairs_total(prices, counts):\n    total = 0\n    for price, count in zip(prices, counts):\n        total += price * count\n    return total\n",
     {{"price * count", "price + count", 0}, {"total += price", "total -= price", 0}, {"return total", "return price", 0}},
     {{"[2, 3], [4, 5]", "23"}, {"[1], [7]", "7"}, {"[10, 1], [0, 9]", "9"}, {"[5, 5], [1, 1]", "10"}, {"[3], [3]", "9"}}},
    {"find_index", "def find_index(items, wanted):\n    for i, item in enumerate(items):\n        if item == wanted:\n            return i\n    return -1\n",
     {{"== wanted", "!= wanted", 0}, {"return i", "return item", 0}, {"return -1", "return 0", 1}},
     {{"[4, 8, 6], 6", "2"}, {"[1, 2], 5", "-1"}, {"[9], 9", "0"}, {"[], 1", "-1"}, {"[3, 3], 3", "0"}}},
    {"days_to_hours", "def days_to_hours(days, extra):\n    return days * 24 + extra\n",
     {{"* 24", "* 12", 0}, {"+ extra", "- extra", 0}, {"days * 24", "days + 24", 0}},
     {{"2, 3", "51"}, {"0, 5", "5"}, {"1, 1", "25"}, {"10, 4", "244"}, {"3, 2", "74"}}},
    {"reverse_words", "def reverse_words(text):\n    return \" \".join(reversed(text.split()))\n",
     {{"reversed(", "sorted(", 0}, {"\" \".join", "\"\".join", 0}, {"text.split()", "text", 0}},
     {{"\"b c a\"", "'a c b'"}, {"\"x\"", "'x'"}, {"\"one two\"", "'two one'"}, {"\"\"", "''"}, {"\"d c b a\"", "'a b c d'"}}},
    {"between", "def between(value, low, high):\n    return low <= value and value <= high\n",
     {{" and ", " or ", 0}, {"low <= value", "low >= value", 1}, {"value <= high", "value < high", 2}},
     {{"12, 1, 9", "False"}, {"5, 1, 9", "True"}, {"9, 1, 9", "True"}, {"0, 1, 9", "False"}, {"1, 1, 9", "True"}}},
};
// clang-format on

constexpr std::string_view kFix[] = {"fix",     "repair",     "mend",
                                     "correct", "solve",      "find and fix",
                                     "debug",   "remedy",     "track down and fix",
                                     "remove",  "get rid of", "hunt down and fix"};
constexpr std::string_view kBug[] = {"the bug",          "the mistake",    "the error",  "the fault",
                                     "what is wrong",    "the wrong line", "the defect", "the problem",
                                     "the one bad line", "the slip"};
constexpr std::string_view kFails[] = {
    "fails",      "does not pass", "is red",           "breaks",    "reports an error", "stops with an error",
    "is failing", "complains",     "no longer passes", "goes wrong"};
constexpr std::string_view kBugFrames[] = {"{test} <fails>; <fix> <bug> in {file}<tail>",
                                           "<fix> <bug> in {file}: {test} <fails><tail>",
                                           "<open> <fix> <bug> in {file}, since {test} <fails><tail>",
                                           "the test {test} <fails>. <fix> <bug> in {file}<tail>",
                                           "{file} has a bug and {test} <fails>; <fix> <bug><tail>",
                                           "in {file}, <fix> <bug> that {test} shows<tail>",
                                           "{test} <fails> because of {file}; <fix> <bug> there<tail>",
                                           "<open> <fix> <bug> of {function} in {file}<tail>",
                                           "<fix> <bug> of {function} in {file}; {test} <fails><tail>",
                                           "{function} is wrong and {test} <fails>: <fix> <bug> in {file}<tail>",
                                           "one line of {file} is wrong, so {test} <fails>; <fix> <bug><tail>",
                                           "see why {test} <fails>, and <fix> <bug> in {file}<tail>",
                                           "make {test} pass: <fix> <bug> in {file}<tail>",
                                           "{file}: <fix> <bug>, {test} <fails><tail>"};
constexpr Grammar::Part kBugParts[] = {
    {"fix", kFix}, {"bug", kBug}, {"fails", kFails}, {"open", kOpen}, {"tail", kTail}};

std::string driver(const std::string& module, const Function& function) {
  std::string text =
      "import io, sys\n"
      "real, sys.stdout = sys.stdout, io.StringIO()\n"
      "sys.path.insert(0, '.')\n"
      "lines = []\n"
      "def attempt(call):\n"
      "    try:\n"
      "        lines.append(repr(call()))\n"
      "    except BaseException as error:\n"
      "        lines.append(type(error).__name__)\n";
  text += "def work(*arguments):\n    import " + module + "\n    return " + module + "." + std::string(function.name) +
          "(*arguments)\n";
  for (const auto& each : function.cases) text += "attempt(lambda: work(" + std::string(each.arguments) + "))\n";
  return text + "real.write('\\n'.join(lines) + '\\n')\n";
}

}  // namespace

bool build_bug(Draft& draft) {
  Task& task = draft.task;
  std::vector<const Function*> functions;
  for (const auto& function : kFunctions) {
    if (held_out(function.name) == draft.sides.new_names) functions.push_back(&function);
  }
  const Function& function = *draft.random.pick(functions);
  const Mutation& mutation = draft.random.pick(function.mutations);
  const std::string name(function.name),
      module = draft.words.draw(Words::kProgram) + "_" + draft.words.draw(Words::kStem);
  task.vocabulary = {name};
  std::string source(function.source);
  if (count_in(source, mutation.right) != 1) return false;
  source.replace(source.find(mutation.right), mutation.right.size(), mutation.wrong);
  const auto path = module + ".py", test_path = "test_" + module + ".py";
  const auto call = name + "(" + std::string(function.cases[mutation.shown].arguments) + ")";
  task.files[path] = source;
  task.files[test_path] = "from " + module + " import " + name + "\n\nresult = " + call +
                          "\nassert result == " + std::string(function.cases[mutation.shown].result) +
                          ", result\nprint(\"ok\")\n";

  draft.instruct({kBugFrames, kBugParts}, {{"test", test_path}, {"file", path}, {"function", name}});
  HiddenTest test;
  test.driver = driver(module, function);
  for (const auto& each : function.cases) test.expected.emplace_back(each.result);
  task.expectation.hidden_test = std::move(test);

  // The whole line, so that the text to replace occurs once whatever the mutation left.
  const std::string right_source(function.source);
  const size_t begin = right_source.rfind('\n', right_source.find(mutation.right)) + 1;
  const size_t end = right_source.find('\n', begin);
  const auto right_line = right_source.substr(begin, end - begin);
  const auto wrong_line = source.substr(begin, source.find('\n', begin) - begin);
  if (count_in(source, wrong_line) != 1) return false;
  task.solution.turns = {{read_call(path)}, {replace_call(path, wrong_line, right_line)}};
  return true;
}

}  // namespace tandem::envs
