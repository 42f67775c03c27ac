// Episodes of a run as lines of a data set of messages, for tools of others and for `tandem sft`.
//
// An episode is retold (rollout/agent/retelling.h): what cannot be told exactly is an error of that episode, never a
// line that says something else. Its opening is made of its task again, by the run's task set or the workspace kinds;
// so an episode of an environment of somebody else's, or with tools of MCP servers, cannot be told.
//
// Thread safety: none; one writer, one user.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"

namespace tandem::archive {

enum class DataFormat : uint8_t {
  kOpenAi,  // {"messages", "tools", ..}: arguments of calls are texts, as OpenAI's API has them
  kAtif,    // the Agent Trajectory Interchange Format, 1.7
};

// "openai", "atif". kInvalid suggests the nearest; of "parquet" it says how a data set of lines becomes one.
Result<DataFormat> data_format_named(std::string_view name);

class DataSetWriter {
 public:
  // kInvalid where the run's model has no chat template that is understood, or its task set is not there any more.
  static Result<DataSetWriter> open(const fs::path& run_dir, DataFormat format);
  DataSetWriter(DataSetWriter&&) noexcept;
  DataSetWriter& operator=(DataSetWriter&&) noexcept;
  ~DataSetWriter();

  // The line of an episode, or one for each segment where its conversation was summed up, with "segment" from 1 and
  // "segments". `described` is the object of dashboard::describe() with its tokens.
  Result<std::vector<Json>> lines_of(const Json& described);

 private:
  struct State;
  explicit DataSetWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tandem::archive
