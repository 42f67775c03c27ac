// Which programs a script calls, as far as its text says it: words where a shell begins a command, what stands behind
// programs that start others, and texts of Python that a shell would read as commands.
//
// Pure functions. No shell: what only a run would tell (a name in a file, in an array) is not known.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::envs {

// Names of functions that a text for bash defines, and `run`, which bats does.
std::set<std::string> functions_of(std::string_view text);

// Programs that a text for bash calls: "jq" and "sort" of `x=$(jq . f | sort)`, "uvx" of `timeout 5 uvx pytest`,
// "pytest" of `python3 -m pytest`, and all arguments of `functions`, which may call them. Each as it stands there,
// without quotes, variables unread.
std::vector<std::string> called_by_shell(std::string_view text, const std::set<std::string>& functions = {});

// For a Python program: the first words of all its string literals, as if they were shell commands.
std::vector<std::string> called_by_python(std::string_view text);

// Whether `word`, in whose `text` it is called, may stand for `program`: the same, or what its variables may make it
// ("python$v" by `for v in 3.12 3.13`). Of a path the last part counts where `program` has none.
bool may_be(std::string_view word, std::string_view text, std::string_view program);

}  // namespace tandem::envs
