// run: run a script and report the number that it prints.
#include "envs/tasks/workspace/kind.h"

namespace tandem::envs {
namespace {

constexpr std::string_view kRun[] = {"run", "execute",   "start",   "launch",  "call",     "invoke",
                                     "try", "carry out", "fire up", "perform", "kick off", "process"};
constexpr std::string_view kSay[] = {"tell me the number it prints",
                                     "report the number",
                                     "say which number comes out",
                                     "give me the number",
                                     "answer with the number",
                                     "what number does it print?",
                                     "let me know the number at the end",
                                     "reply with the number it shows",
                                     "name the number in its output",
                                     "state the number that you see",
                                     "which number is printed?",
                                     "copy out the number",
                                     "I need the number from it",
                                     "send back the number"};
constexpr std::string_view kScript[] = {"the script",       "the program",   "the file",           "the code in",
                                        "the little tool",  "the job",       "the calculation in", "what is in",
                                        "the command file", "the routine in"};
constexpr std::string_view kRunEnding[] = {
    ".",        " -- only that.", " please.",   " now.",     " (just digits).", " when it is done.",
    " for me.", " and stop.",     ", no more.", ", thanks.", " today.",         ", nothing else."};
constexpr std::string_view kRunFrames[] = {"<run> {file} and <say><ending>",
                                           "<run> <script> {file} and <say><ending>",
                                           "<run> `{command}` and <say><ending>",
                                           "<open> <run> `{command}`, then <say><ending>",
                                           "<open> <run> <script> {file}, then <say><ending>",
                                           "with `{command}`, <run> <script> {file}; <say><ending>",
                                           "`{command}`: <run> it and <say><ending>",
                                           "{file} prints a number when you <run> it. <say><ending>",
                                           "<say> after you <run> `{command}`<ending>",
                                           "<say> once you <run> <script> {file}<ending>",
                                           "what comes out when you <run> {file}: <say><ending>",
                                           "<run> <script> {file} using `{command}`, and <say><ending>",
                                           "first <run> `{command}`. After that, <say><ending>",
                                           "in a shell, <run> `{command}`; <say><ending>",
                                           "{file}: <run> it, <say><ending>"};
// So that a command that is given is copied, not made up from the name of the file.
constexpr std::string_view kPrefixes[] = {"env ", "nice ", "timeout 9 ", "LC_ALL=C ", "command ", "stdbuf -oL "};
constexpr Grammar::Part kRunParts[] = {
    {"run", kRun}, {"say", kSay}, {"script", kScript}, {"open", kOpen}, {"ending", kRunEnding}};

}  // namespace

bool build_run(Draft& draft) {
  Task& task = draft.task;
  const auto& format = draft.format(script_formats());
  const auto path = draft.new_path(format.extension);
  const auto label = draft.words.draw(Words::kThing);
  int64_t x = draft.random.between(2, 50);
  const int64_t times = draft.random.between(3, 9), a = draft.random.between(3, 17), b = draft.random.between(1, 40),
                modulus = draft.random.between(101, 997);
  std::string source(format.source);
  const Slots slots = {{"{x}", std::to_string(x)}, {"{n}", std::to_string(times)},   {"{a}", std::to_string(a)},
                       {"{b}", std::to_string(b)}, {"{c}", std::to_string(modulus)}, {"{label}", label}};
  for (const auto& [slot, value] : slots) {
    for (size_t at; (at = source.find(slot)) != std::string::npos;) source.replace(at, slot.size(), value);
  }
  for (int64_t i = 0; i < times; ++i) x = (x * a + b) % modulus;
  task.files[path] = source;
  if (draft.random.chance(0.6)) add_notes_file(draft);

  auto command = std::string(format.command) + " " + path;
  const auto plain = command;
  if (draft.sides.practice && draft.random.chance(0.5)) command = std::string(draft.random.pick(kPrefixes)) + plain;
  draft.instruct({kRunFrames, kRunParts}, {{"file", path}, {"command", command}});
  if (task.wording.find("{command}") == std::string::npos) command = plain;
  task.expectation.files = task.files;
  task.expectation.answer = std::to_string(x);
  task.solution.turns = {{shell_call(command)}};
  task.solution.answer = std::to_string(x);
  return true;
}

}  // namespace tandem::envs
