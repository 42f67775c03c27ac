#include "cli/agent/agent_view.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json_line.h"
#include "base/text.h"
#include "envs/tools/output.h"

namespace tandem::cli {
namespace {

using envs::make_printable;
using rollout::AgentEnd;

constexpr size_t kAgentViewDiffShown = size_t{64} << 10;  // bytes, for people
constexpr size_t kDiffWritten = size_t{1} << 20;          // for scripts
constexpr size_t kLineWidth = 110, kLongestPath = 4096;

// At most `width` bytes of whole characters, on one line.
std::string shortened(std::string_view text, size_t width) {
  std::string line = make_printable(text);
  std::ranges::replace(line, '\n', ' ');
  if (line.size() <= width) return line;
  size_t end = width;
  while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xC0) == 0x80) --end;
  return line.substr(0, end) + "...";
}

// Nobody may read any more; the work goes on all the same.
void put_out(std::FILE* output, const std::string& text) {
  (void)!std::fwrite(text.data(), 1, text.size(), output);
  std::fflush(output);
}

std::string tokens_in_words(const rollout::TokenUse& use) {
  if (!use.prompt && !use.completion) return "";
  return fmt::format(", {} + {} tokens", use.prompt ? std::to_string(*use.prompt) : "?",
                     use.completion ? std::to_string(*use.completion) : "?");
}

class PeopleView final : public AgentView {
 public:
  PeopleView(std::FILE* output, bool terminal) : output_(output), terminal_(terminal) {}

  void begins(const AgentBeginning& b) override {
    say("{} works on {}{} ({} {})\n", b.model, b.is_copy ? "a copy of " : "", make_printable(b.folder), b.files,
        b.files == 1 ? "file" : "files");
    if (!b.note.empty()) say("note: {}\n", make_printable(b.note));
  }
  void turn_begins(int turn) override {
    say("\n{}turn {}{}\n", bold(), turn, plain());
    at_line_start_ = true;
  }
  void text(std::string_view piece) override {
    const auto shown = make_printable(piece);
    say("{}", shown);
    if (!shown.empty()) at_line_start_ = shown.back() == '\n';
  }
  void trouble(const std::string& note) override {
    end_line();
    say("  ! {}\n", make_printable(note));
  }
  void turn_taken(int, const rollout::AgentRound& round) override {
    end_line();
    const auto& turn = round.turn;
    say("{}  {}{}{}\n", faint(), format_seconds(round.ended - round.began), tokens_in_words(turn.use), plain());
    if (!turn.cut_by.empty()) say("  ! the message was cut by {}\n", turn.cut_by);
  }
  void call_ended(int, size_t index, const rollout::AgentTurn& of, const envs::ToolOutcome& outcome) override {
    const auto& parsed = of.calls[index];
    say("  > {}\n",
        parsed.error.empty() ? line_of(parsed.call, kLineWidth) : std::string("a call that cannot be read"));
    say("    {}{}{}\n", faint(), line_of(outcome, kLineWidth), plain());
  }

  void stopped(const rollout::AgentRecord& record, std::span<const envs::Change> changes) override {
    if (!rollout::is_whole(record.end)) say("\n{}\n", end_in_words(record));
    if (changes.empty()) return say("\nNo file was changed.\n");
    say("\n");
    const auto diff = envs::diff_of(changes, kAgentViewDiffShown);
    for (const auto line : split(diff, '\n')) {
      if (line.data() == diff.data() + diff.size()) break;  // what follows the last line end
      say("{}{}{}\n", colour_of(line), line, terminal_ ? plain() : "");
    }
    say("\n");
    for (const auto& change : changes) {
      say("  {:<10} {}{}\n", envs::kind_of(change), shortened(change.path, kLongestPath),
          change.refused.empty() ? "" : fmt::format("   stays in the sandbox: {}", change.refused));
    }
  }

  void ends(const AgentSummary& summary) override {
    const auto& record = *summary.record;
    size_t written = 0, wanted = 0;
    for (size_t i = 0; i < summary.changes.size(); ++i) {
      wanted += summary.changes[i].refused.empty();
      if (i >= summary.written.size()) continue;
      const auto& outcome = summary.written[i];
      written += outcome.outcome == envs::WriteOutcome::kWritten;
      if (outcome.outcome == envs::WriteOutcome::kConflict || outcome.outcome == envs::WriteOutcome::kFailed) {
        say("  ! {} was left as it is: {}\n", shortened(summary.changes[i].path, kLongestPath), outcome.why);
      }
    }
    if (summary.changes.empty()) return;
    if (summary.written.empty()) {
      say("\nNothing was written back.\n");
      if (wanted == 0 || rollout::is_whole(record.end)) return;
      say("What is there may be half of something; --yes{} writes it all the same.\n",
          summary.is_dry ? " in place of --dry-run" : "");
      if (record.end != AgentEnd::kCircles && record.end != AgentEnd::kTurns) return;
      return say("A model that learned on tasks which end with the first change needs --end-on-change.\n");
    }
    say("\nWritten back: {} of {}. `tandem agent --undo` takes it back.\n", written, wanted);
  }

 private:
  template <typename... Arguments>
  void say(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    put_out(output_, fmt::format(format, std::forward<Arguments>(arguments)...));
  }
  void end_line() {
    if (!at_line_start_) say("\n");
    at_line_start_ = true;
  }
  const char* bold() const { return terminal_ ? "\x1b[1m" : ""; }
  const char* faint() const { return terminal_ ? "\x1b[2m" : ""; }
  const char* plain() const { return terminal_ ? "\x1b[0m" : ""; }
  const char* colour_of(std::string_view line) const {
    if (!terminal_ || line.starts_with("---") || line.starts_with("+++")) return "";
    if (line.starts_with('+')) return "\x1b[32m";
    if (line.starts_with('-')) return "\x1b[31m";
    return line.starts_with("@@") ? "\x1b[36m" : "";
  }

  std::FILE* output_;
  bool terminal_;
  bool at_line_start_ = true;
};

class ScriptView final : public AgentView {
 public:
  explicit ScriptView(std::FILE* output) : output_(output) {}

  void begins(const AgentBeginning& b) override {
    put({{"event", "begin"},
         {"model", b.model},
         {"workspace", b.folder},
         {"files", b.files},
         {"copied", b.is_copy},
         {"note", b.note}});
  }
  void turn_begins(int) override {}
  void text(std::string_view) override {}
  void trouble(const std::string& note) override { put({{"event", "trouble"}, {"message", note}}); }
  void turn_taken(int turn, const rollout::AgentRound& round) override {
    const auto count = [](const std::optional<uint64_t>& tokens) { return tokens ? Json(*tokens) : Json(); };
    put({{"event", "turn"},
         {"turn", turn},
         {"text", round.turn.text},
         {"calls", round.turn.calls.size()},
         {"cut_by", round.turn.cut_by.empty() ? Json() : Json(round.turn.cut_by)},
         {"prompt_tokens", count(round.turn.use.prompt)},
         {"completion_tokens", count(round.turn.use.completion)},
         {"seconds", round.ended - round.began}});
    for (size_t i = 0; i < round.turn.calls.size(); ++i) {
      const auto& parsed = round.turn.calls[i];
      put({{"event", "call"},
           {"turn", turn},
           {"id", round.turn.call_ids[i]},
           {"name", parsed.call.name},
           {"arguments", parsed.call.arguments},
           {"error", parsed.error.empty() ? Json() : Json(parsed.error)}});
    }
  }
  void call_ended(int turn, size_t index, const rollout::AgentTurn& of, const envs::ToolOutcome& outcome) override {
    put({{"event", "result"},
         {"turn", turn},
         {"id", of.call_ids[index]},
         {"ok", outcome.ok},
         {"output", outcome.output},
         {"exit_code", outcome.exit_code},
         {"truncated", outcome.truncated},
         {"seconds", outcome.seconds}});
  }
  void stopped(const rollout::AgentRecord&, std::span<const envs::Change> changes) override {
    diff_ = envs::diff_of(changes, kDiffWritten);
  }
  void ends(const AgentSummary& summary) override {
    const auto& record = *summary.record;
    Json files = Json::array();
    for (size_t i = 0; i < summary.changes.size(); ++i) {
      const auto& change = summary.changes[i];
      Json file = {{"path", change.path}, {"change", envs::kind_of(change)}};
      const bool tried = i < summary.written.size();
      file["outcome"] = tried ? Json(envs::to_string(summary.written[i].outcome)) : Json();
      const auto& why = tried ? summary.written[i].why : change.refused;
      file["why"] = why.empty() ? Json() : Json(why);
      files.push_back(std::move(file));
    }
    const bool answered = record.end == AgentEnd::kAnswered && !record.rounds.empty();
    put({{"event", "end"},
         {"end", rollout::to_string(record.end)},
         {"answer", answered ? Json(record.rounds.back().turn.text) : Json()},
         {"error", record.why.ok() ? Json() : Json(record.why.message())},
         {"turns", record.rounds.size()},
         {"seconds", record.ended - record.began},
         {"changes", std::move(files)},
         {"diff", diff_},
         {"exit", summary.exit_code}});
  }

 private:
  void put(const Json& event) { put_out(output_, dump_json_line(event) + "\n"); }
  std::FILE* output_;
  std::string diff_;
};

}  // namespace

std::unique_ptr<AgentView> view_for_people(std::FILE* output, bool terminal) {
  return std::make_unique<PeopleView>(output, terminal);
}
std::unique_ptr<AgentView> view_for_scripts(std::FILE* output) { return std::make_unique<ScriptView>(output); }

std::string line_of(const envs::Call& call, size_t width) {
  std::vector<std::string> parts;
  for (const auto& [key, value] : call.arguments.items())
    parts.push_back(fmt::format("{}: {}", key, shortened(dump_json(value), width / 2)));
  return shortened(fmt::format("{}({})", call.name, join(parts, ", ")), width);
}

std::string line_of(const envs::ToolOutcome& outcome, size_t width) {
  const auto text = trim(outcome.output);
  const auto lines = std::ranges::count(text, '\n');
  auto line = shortened(text.substr(0, text.find('\n')), width);
  if (text.empty()) line = "(nothing)";
  if (lines > 0) line += fmt::format(" (and {} more {})", lines, lines == 1 ? "line" : "lines");
  return outcome.ok ? line : "refused: " + line;
}

std::string end_in_words(const rollout::AgentRecord& record) {
  switch (record.end) {
    case AgentEnd::kAnswered:
      return "The agent has answered.";
    case AgentEnd::kChanged:
      return "The agent has changed files.";
    case AgentEnd::kTruncated:
      return fmt::format("The agent did not come to an end: its message was cut by {}.",
                         record.rounds.empty() ? "a limit" : record.rounds.back().turn.cut_by);
    case AgentEnd::kTurns:
      return fmt::format("The agent did not come to an end: its {} over (--max-turns).",
                         record.rounds.size() == 1 ? "one turn is" : fmt::format("{} turns are", record.rounds.size()));
    case AgentEnd::kTime:
      return "The agent did not come to an end: its time is over (--minutes).";
    case AgentEnd::kCircles:
      return "The agent did not come to an end: it makes the same calls over and over.";
    case AgentEnd::kInterrupted:
      return "Interrupted.";
    case AgentEnd::kFailed:
      return fmt::format("The agent failed: {}", make_printable(record.why.to_string()));
  }
  return "";
}

}  // namespace tandem::cli
