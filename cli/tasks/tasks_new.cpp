// `tandem tasks new`.
#include <fmt/format.h>

#include <array>

#include "base/file.h"
#include "cli/command.h"
#include "cli/tasks/tasks_commands.h"

namespace tandem::cli {
namespace {

struct TemplateFile {
  const char* path;
  const char* text;
};

// A task a form of check, and one more of the commonest, so that a run has tasks on both sides.
constexpr std::array<TemplateFile, 6> kTemplate = {{
    {"README.md",
     R"(# Tasks

One YAML file a task; the folder that a file lies in is its kind, under which a run counts it. Change these, copy them, remove
what you do not need. Links, pictures and scripts may lie beside them; only .yaml and .jsonl files are read as tasks.

- `settings/` is checked by the content that files must have at the end (`files_after`).
- `answers/` is checked by the value that the model answers with (`answer`).
- `code/` is checked by commands in a fresh sandbox (`commands`), with files that the model never sees (`check: files`).
- `cheat.sh` does what a task should not let pass. Try one of your own on each task: the reward must be 0.

    tandem tasks validate .                              # solutions score 1, doing nothing and the usual cheats 0
    tandem tasks try . code/mend_total < cheat.sh        # reward 0
    tandem tasks show . settings/raise_limit             # what a model meets
)"},
    {"settings/raise_limit.yaml",
     R"(# What the model is asked to do. It sees this and the names of the files.
instruction: In server.ini, set max_connections to 200. Leave everything else as it is.
files:
  server.ini: |
    [server]
    port = 8080
    max_connections = 50
# What must hold at the end: these files with exactly this content, whatever lies beside them.
check:
  files_after:
    server.ini: |
      [server]
      port = 8080
      max_connections = 200
# One way to do it. `tandem tasks validate` plays it; no model sees it.
solution:
  commands:
    - sed -i 's/^max_connections = .*/max_connections = 200/' server.ini
)"},
    {"settings/change_port.yaml",
     R"(instruction: The server in app/config.env should listen on port 9090.
files:
  app/config.env: |
    HOST=0.0.0.0
    PORT=3000
    LOG=info
check:
  files_after:
    app/config.env: |
      HOST=0.0.0.0
      PORT=9090
      LOG=info
solution:
  commands:
    - sed -i 's/^PORT=.*/PORT=9090/' app/config.env
)"},
    {"answers/count_errors.yaml",
     R"(# The last message of the model must name this value, and no other.
instruction: How many lines of app.log are errors? Answer with the number alone.
files:
  app.log: |
    10:00 info  started
    10:02 error disk is slow
    10:03 info  request
    10:05 error disk is full
    10:06 error stopped
check:
  answer: "3"
solution:
  answer: "3"
)"},
    {"code/mend_total.yaml",
     R"(# The check runs in a fresh sandbox with the model's files. `output` is compared outside of it, where no code of the model
# sees it: a test that only ends with 0 would let pass code that ends the process early.
instruction: |
  `total` in shop.py should add up price times amount of all items. It forgets the amount. Mend it.
needs: [python3]
files:
  shop.py: |
    def total(items):
        return sum(price for price, amount in items)
check:
  files:
    test_shop.py: |
      import sys
      sys.path.insert(0, ".")
      from shop import total

      for items in [[], [(2, 3)], [(1, 4), (5, 2)]]:
          print(total(items))
  commands:
    - run: python3 -I test_shop.py
      output: |
        0
        6
        14
solution:
  files:
    shop.py: |
      def total(items):
          return sum(price * amount for price, amount in items)
)"},
    {"cheat.sh",
     R"(# A policy that looks for the easy way: it ends the process before anything is tested. See README.md.
echo 'import os; os._exit(0)' > shop.py
)"},
}};

}  // namespace

Result<int> new_tasks(const std::string& folder) {
  std::error_code error;
  if (fs::exists(folder, error) && (!fs::is_directory(folder, error) || !fs::is_empty(folder, error)))
    return fail(
        Status::invalid(folder + " is there already, and not empty").hint("name a folder that is new or empty"));
  for (const auto& [path, text] : kTemplate) {
    const fs::path file = fs::path(folder) / path;
    TRY(make_directories(file.parent_path()));
    TRY(write_file(file, text));
    fmt::print("{}\n", file.string());
  }
  fmt::print(
      "\n4 tasks, each with instruction, files, check and solution. Change them into yours, then:\n"
      "  tandem tasks validate {}\n",
      folder);
  return kDone;
}

}  // namespace tandem::cli
