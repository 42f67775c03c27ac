#include "envs/tasks/workspace/kinds.h"

#include <array>

#include "base/text.h"
#include "envs/tasks/workspace/kind.h"

namespace tandem::envs {
namespace {

struct Kind {
  std::string_view name;
  BuildTask build;
};

constexpr std::array kKinds = {
    Kind{"lookup", build_lookup}, Kind{"set", build_set},       Kind{"replace", build_replace},
    Kind{"rename", build_rename}, Kind{"append", build_append}, Kind{"create", build_create},
    Kind{"run", build_run},       Kind{"count", build_count},   Kind{"sum", build_sum},
    Kind{"bug", build_bug},       Kind{"find", build_find},     Kind{"echo", build_echo},
};
constexpr size_t kUsual = kKinds.size() - 2;  // find and echo, the last, are asked for by name

constexpr auto kKindNames = [] {
  std::array<std::string_view, kKinds.size()> names;
  for (size_t i = 0; i < kKinds.size(); ++i) names[i] = kKinds[i].name;
  return names;
}();

}  // namespace

std::span<const std::string_view> task_kinds() { return std::span(kKindNames).first(kUsual); }
std::span<const std::string_view> every_kind() { return kKindNames; }

Result<Task> make_task(const TaskSpec& spec) {
  for (const auto& kind : kKinds) {
    if (kind.name != spec.kind) continue;
    const uint64_t seed = derive_seed(derive_seed(spec.seed, spec.kind), to_string(spec.split));
    for (uint64_t attempt = 0; attempt < 100; ++attempt) {
      Random random(derive_seed(seed, {attempt}));
      const Sides sides = sides_of(spec.split);
      Vocabulary vocabulary(random, sides);
      Task task;
      task.spec = spec;
      Draft draft{task, random, sides, vocabulary};
      if (!kind.build(draft)) continue;
      for (const auto& word : vocabulary.used()) task.vocabulary.push_back(word);
      return task;
    }
    return fail(Status::internal("no unambiguous task was drawn for " + spec.id()));
  }
  return fail(Status::not_found("there is no task kind \"" + spec.kind + "\"" + did_you_mean(spec.kind, kKindNames)));
}

void Draft::instruct(const Grammar& grammar, const Slots& slots) {
  task.wording = compose(grammar, random, sides.new_wordings);
  task.instruction = fill(task.wording, slots);
}

std::string Draft::new_path(std::string_view extension) {
  for (;;) {
    auto path = words.file_stem() + "." + std::string(extension);
    if (random.chance(0.2)) path = words.draw(Words::kThing) + "/" + path;
    if (!task.files.contains(path)) return path;
  }
}

SettingsFile add_settings_file(Draft& draft, size_t count) {
  SettingsFile file;
  file.format = &draft.format(settings_formats());
  file.path = draft.new_path(file.format->extension);
  file.title = draft.words.draw(Words::kProgram);
  while (file.entries.size() < count) {
    Entry entry{draft.words.setting(), draft.words.value_for_setting()};
    bool fresh = true;
    for (const auto& old : file.entries) fresh = fresh && old.key != entry.key && old.value != entry.value;
    if (fresh) file.entries.push_back(std::move(entry));
  }
  draft.task.files[file.path] = file.content();
  return file;
}

void add_notes_file(Draft& draft) {
  const auto& format = draft.format(notes_formats());
  const auto path = draft.new_path(format.extension);
  std::vector<std::string> lines;
  const size_t count = 2 + draft.random.below(2);
  while (lines.size() < count) {
    lines.push_back(draft.words.person() + " moves to " + draft.words.draw(Words::kPlace));
  }
  draft.task.files[path] = format.render(draft.words.draw(Words::kProgram), lines);
}

Call read_call(std::string path) { return {"read_file", {{"target_file", std::move(path)}}}; }
Call replace_call(std::string path, std::string old_text, std::string new_text, bool all) {
  Call call{"search_replace",
            {{"file_path", std::move(path)}, {"old_string", std::move(old_text)}, {"new_string", std::move(new_text)}}};
  if (all) call.arguments["replace_all"] = true;
  return call;
}
Call shell_call(std::string command) { return {"run_terminal_cmd", {{"command", std::move(command)}}}; }
Call grep_call(std::string pattern, std::string path) {
  Call call{"grep", {{"pattern", std::move(pattern)}}};
  if (!path.empty()) call.arguments["path"] = std::move(path);
  return call;
}

size_t count_in(std::string_view text, std::string_view part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

}  // namespace tandem::envs
