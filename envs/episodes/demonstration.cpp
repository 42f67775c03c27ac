#include "envs/episodes/demonstration.h"

#include <iterator>

#include "base/text.h"
#include "envs/episodes/episode.h"
#include "envs/sandbox/host_backend.h"

namespace tandem::envs {
namespace {

std::vector<std::string> paths_of(const Task& task) {
  std::vector<std::string> paths;
  for (const auto& [path, content] : task.files) paths.push_back(path);
  return paths;
}

// Words of the instruction that could be an argument.
std::vector<std::string> words_of(const Task& task) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : task.instruction + " ") {
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '_') {
      word += c;
    } else {
      if (word.size() > 2) words.push_back(word);
      word.clear();
    }
  }
  return words;
}

// The call with one argument wrong in a way a learner gets it wrong: another file, a lost letter, another word.
Call corrupted(Call call, const Task& task, Random& random) {
  const auto index = static_cast<long>(random.below(call.arguments.size()));
  auto argument = std::next(call.arguments.begin(), index);
  if (!argument.value().is_string()) return call;
  const auto old = argument.value().get<std::string>();
  const bool path = argument.key() == "target_file" || argument.key() == "file_path" || argument.key() == "path";
  std::string wrong = old;
  if (path && task.files.size() > 1) {
    while (wrong == old) wrong = random.pick(paths_of(task));
  } else if (old.size() > 3 && random.chance(0.5)) {
    wrong.erase(random.below(wrong.size()), 1);
  } else {
    auto words = split(old, ' ');
    const size_t place = random.below(words.size());
    const auto word = random.pick(words_of(task));
    words[place] = word;
    std::vector<std::string> parts(words.begin(), words.end());
    wrong = join(parts, " ");
  }
  argument.value() = wrong;
  return call;
}

}  // namespace

Call random_call(const Task& task, Random& random) {
  const auto paths = paths_of(task);
  const auto words = words_of(task);
  if (paths.empty() || words.empty()) return {"list_dir", {{"target_directory", "."}}};
  const auto path = random.pick(paths);
  const auto word = random.pick(words);
  switch (random.below(6)) {
    case 0:
      return {"read_file", {{"target_file", path}}};
    case 1:
      return {"grep", {{"pattern", word}, {"path", path}}};
    case 2:
      return {"list_dir", {{"target_directory", "."}}};
    case 3:
      return {"search_replace", {{"file_path", path}, {"old_string", word}, {"new_string", random.pick(words)}}};
    case 4:
      return {"write", {{"file_path", path}, {"contents", word + "\n"}}};
    default:
      return {"run_terminal_cmd", {{"command", "cat " + path}}};
  }
}

Result<Transcript> demonstrate(const Task& task, Random& random, const Noise& noise) {
  HostBackend backend;
  return demonstrate(task, random, noise, backend);
}

Result<Transcript> demonstrate(const Task& task, Random& random, const Noise& noise, SandboxBackend& backend) {
  Transcript transcript;
  transcript.task = task;
  if (random.chance(noise.dictated)) {
    const auto& calls = task.solution.turns.back();
    std::string& user = transcript.task.instruction;
    user.clear();
    for (const auto& call : calls) {
      user += "Call " + call.name + " with";
      const char* separator = " ";
      for (const auto& [name, value] : call.arguments.items()) {
        user += separator + name + " " + (value.is_string() ? "\"" + value.get<std::string>() + "\"" : value.dump());
        separator = ", ";
      }
      user += ".";
    }
    transcript.turns.push_back({.calls = calls});
    transcript.dictated = true;
    return transcript;
  }

  auto episode = TRY(Episode::open(task, backend));
  std::string answer;
  size_t next = 0;
  for (int turn = 0; turn < task.max_turns; ++turn) {
    if (next == task.solution.turns.size()) {
      answer = task.solution.answer;
      transcript.turns.push_back({.answer = answer});
      break;
    }
    auto calls = task.solution.turns[next];
    if (random.chance(noise.random_tool)) {
      calls = {random_call(task, random)};
    } else if (random.chance(noise.corrupt_argument)) {
      auto& call = calls[random.below(calls.size())];
      call = corrupted(call, task, random);
    }
    // A wrong call is not a step of the plan: where turns are left, the right one follows it.
    if (calls == task.solution.turns[next]) ++next;
    std::vector<ParsedCall> parsed;
    for (const auto& call : calls) parsed.push_back({.call = call});
    transcript.turns.push_back({.calls = std::move(calls)});
    auto outcomes = TRY(episode->turn(parsed));
    if (episode->over() || turn + 1 == task.max_turns) break;
    transcript.turns.back().outcomes = std::move(outcomes);
  }
  transcript.grade = TRY(episode->score(answer));
  return transcript;
}

}  // namespace tandem::envs
