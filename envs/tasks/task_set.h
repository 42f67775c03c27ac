// A set of user-written tasks, fully read and checked before use.
//
// A folder of files is a set; so is one file. Which tasks are held out is a rule over their names alone, so that a task
// stays on its side whatever is added beside it. Immutable once read; may be used from several threads.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "envs/tasks/built_image.h"
#include "envs/tasks/task.h"

namespace tandem::envs {

// A task of somebody else's form that nothing here can follow.
struct SkippedTask {
  std::string name;
  std::vector<std::string> why;  // places and reasons
  bool has_recipe = false;       // a Dockerfile, of which an image can be built
};

struct TaskSetOptions {
  double heldout_share = 0;              // about this share of the tasks is held out, by the hash of their names
  std::vector<std::string> kinds;        // only tasks of these; empty: all
  Recipes recipes = Recipes::kFollowed;  // what is made of Dockerfiles
  bool tells_skipped = true;             // a warning in the log for what is left out
  // Why a task of somebody else's form is left out although it can be followed; empty: it is not. Null: none is.
  std::function<std::string(const Task&)> leave_out = {};
};

class TaskSet {
 public:
  // `path` is a task file (.yaml), JSON Lines of HumanEvalPack or SWE-bench (.jsonl), a task of Harbor or
  // Terminal-Bench (a folder with task.toml or task.yaml), or a folder of any of these at any depth. A task's name is
  // its path in the set without the ending; its kind is what it says, else the first folder of its name, else the set's
  // own name. Tasks of Harbor, Terminal-Bench and SWE-bench that cannot be followed are left out (skipped()). kInvalid
  // holds every mistake in every other file, a line each, or those of all tasks where none is left; kNotFound where
  // there is nothing, or no task.
  static Result<TaskSet> read(const fs::path& path, const TaskSetOptions& options = {});

  std::span<const Task> tasks() const { return tasks_; }  // by name
  std::span<const SkippedTask> skipped() const { return skipped_; }
  std::vector<std::string> kinds() const;  // by name
  size_t count(const std::string& kind, Split split) const;

  // The task with number `seed` among those of its kind and split, in the order of their names.
  Result<Task> task(const TaskSpec& spec) const;
  const Task* find(std::string_view name) const;

  // Of Recipes::kBuilt: the folder with the Dockerfile that an image is built of, by the image's name.
  const std::map<std::string, fs::path>& recipes_of_images() const { return recipes_of_images_; }

 private:
  std::vector<Task> tasks_;
  std::vector<SkippedTask> skipped_;
  std::map<std::string, fs::path> recipes_of_images_;
  std::map<std::pair<std::string, Split>, std::vector<size_t>> places_;
};

// Changes when anything does that a model meets or a grade depends on.
std::string digest_of_task(const Task& task);

}  // namespace tandem::envs
