// An agent at work, as people and scripts see it.
//
// People get the model's words as they come and a line for each call; on a terminal with colours. Scripts get one JSON
// object a line. Everything that a model or its files said is made printable first.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "envs/changes/change.h"
#include "envs/changes/write_back.h"
#include "rollout/agent/agent_session.h"

namespace tandem::cli {

struct AgentSummary {
  const rollout::AgentRecord* record = nullptr;
  std::span<const envs::Change> changes;
  std::span<const envs::WrittenChange> written;  // as many as the changes, or none where nothing was written back
  int exit_code = 0;
  bool is_dry = false;  // nothing was to be written back
};

struct AgentBeginning {
  std::string model, folder;
  size_t files = 0;
  bool is_copy = false;
  std::string note;  // empty: nothing is to be said of it
};

class AgentView : public rollout::AgentListener {
 public:
  virtual void begins(const AgentBeginning& beginning) = 0;
  // Before anybody is asked whether to write the changes back.
  virtual void stopped(const rollout::AgentRecord& record, std::span<const envs::Change> changes) = 0;
  virtual void ends(const AgentSummary& summary) = 0;
};

// `output` outlives the view.
std::unique_ptr<AgentView> view_for_people(std::FILE* output, bool terminal);
std::unique_ptr<AgentView> view_for_scripts(std::FILE* output);

// "read_file(target_file: "a.txt")" on one line.
std::string line_of(const envs::Call& call, size_t width);
// The first line of what came of a call, and how many follow.
std::string line_of(const envs::ToolOutcome& outcome, size_t width);

// In a sentence, why the agent came to its end.
std::string end_in_words(const rollout::AgentRecord& record);

}  // namespace tandem::cli
