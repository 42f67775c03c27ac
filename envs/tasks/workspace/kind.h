// A kind of workspace task. A new kind is one file with a `build` function, declared below, and one line in the table
// of kinds.cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "envs/tasks/task.h"
#include "envs/tasks/workspace/formats.h"
#include "envs/tasks/workspace/parts.h"

namespace tandem::envs {

// A task in the making, with all that its parts are drawn from.
struct Draft {
  Task& task;
  Random& random;
  Sides sides;
  Vocabulary& words;

  // Composes a wording of the right side and fills it as the instruction.
  void instruct(const Grammar& grammar, const Slots& slots);
  template <typename Format>
  const Format& format(std::span<const Format> all) {
    return draw_format(all, sides.new_names, random, task.formats);
  }
  // Adds a file that is not there yet, sometimes in a folder, and returns its path.
  std::string new_path(std::string_view extension);
};

// Fills in the draft; false where what was drawn is ambiguous, and the next draw is tried.
using BuildTask = bool (*)(Draft& draft);

bool build_lookup(Draft& draft);
bool build_set(Draft& draft);
bool build_replace(Draft& draft);
bool build_rename(Draft& draft);
bool build_append(Draft& draft);
bool build_create(Draft& draft);
bool build_run(Draft& draft);
bool build_count(Draft& draft);
bool build_sum(Draft& draft);
bool build_bug(Draft& draft);
bool build_find(Draft& draft);
bool build_echo(Draft& draft);

// A settings file with `count` entries, put into the draft.
struct SettingsFile {
  std::string path;
  const SettingsFormat* format;
  std::string title;
  std::vector<Entry> entries;
  std::string content() const { return format->render(title, entries); }
};
SettingsFile add_settings_file(Draft& draft, size_t count);
// A file of notes that has nothing to do with the instruction.
void add_notes_file(Draft& draft);

Call read_call(std::string path);
Call replace_call(std::string path, std::string old_text, std::string new_text, bool all = false);
Call shell_call(std::string command);
Call grep_call(std::string pattern, std::string path);

size_t count_in(std::string_view text, std::string_view part);

// Parts that several grammars use.
inline constexpr std::string_view kIn[] = {
    "in",       "inside",  "within",    "of",      "from the file", "in the file", "belonging to", "that sits in",
    "found in", "kept in", "stored in", "held by", "as part of",    "over in",     "living in",    "that is in"};
inline constexpr std::string_view kOpen[] = {
    "please",     "could you",  "kindly",  "would you",           "I want you to", "your job is to",
    "next,",      "the task: ", "can you", "it is time to",       "go ahead and",  "we need you to",
    "you should", "help me",    "now",     "I would like you to", "quickly",       "your turn:"};
inline constexpr std::string_view kTail[] = {".",
                                             ", and change nothing else.",
                                             " and leave the rest as it is.",
                                             "; everything else stays.",
                                             " without touching other lines.",
                                             ", please.",
                                             " now.",
                                             ", then stop.",
                                             " and do no more than that.",
                                             ". Keep all other text.",
                                             ". Nothing else should differ.",
                                             " for me.",
                                             ", as agreed.",
                                             " before the release.",
                                             ". That is all.",
                                             " today."};
inline constexpr std::string_view kReport[] = {".",
                                               " and answer with it.",
                                               ", nothing else.",
                                               " and tell me.",
                                               "; answer with that alone.",
                                               ". Just the result, please.",
                                               " and report back.",
                                               ". Reply with that only.",
                                               " and let me know.",
                                               ". Give a bare answer.",
                                               ", in one word.",
                                               " and say what you found.",
                                               ". No explanation is needed.",
                                               " and state it."};

}  // namespace tandem::envs
