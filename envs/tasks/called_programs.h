// Which programs a script calls, as far as its text says it: words where a shell begins a command, what stands behind
// programs that start others, and the commands of Python's subprocess.
//
// Pure functions. No shell: what only a run would tell (a name in a file, in an array) is not known.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tandem::envs {

// Of a text for bash: "jq" and "sort" of `x=$(jq . f | sort)`, "uvx" of `timeout 5 uvx pytest`, "pytest" of
// `python3 -m pytest`. Each as it stands there, without quotes, variables unread.
std::vector<std::string> called_by_shell(std::string_view text);

// Of a program in Python: the first words of texts that are handed to what starts programs.
std::vector<std::string> called_by_python(std::string_view text);

// Whether `word`, in whose `text` it is called, may stand for `program`: the same, or what its variables may make it
// ("python$v" by `for v in 3.12 3.13`). Of a path the last part counts where `program` has none.
bool may_be(std::string_view word, std::string_view text, std::string_view program);

}  // namespace tandem::envs
