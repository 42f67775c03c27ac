// The functions of Python files that could be taken out: where their bodies lie, and what is said of them.
//
// The files are parsed by Python's own `ast`, in a sandbox, and nothing of them is run.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "envs/sandbox/sandbox.h"

namespace tandem::envs {

struct PythonFunction {
  std::string path;           // "text/words.py"
  std::string name;           // "Counter.add": a function of the module or of its classes
  std::string signature;      // with its decorators: "def add(self, word: str, times: int=1) -> None"
  std::string docstring;      // without its indentation; empty where there is none
  size_t begin = 0, end = 0;  // the lines of the body behind the docstring, in bytes of the file
  std::string indent;         // of the body
};

// Whether a path is one of tests: below a folder "test" or "tests", test_*.py, *_test.py, conftest.py.
bool is_test_path(std::string_view path);

// In the order of paths and lines. Left out are tests, functions that share their name, that have no body to lose (an
// ellipsis, `pass`, NotImplementedError) or share a line of it with something else, and files that Python cannot parse.
// kUnfit without python3.
Result<std::vector<PythonFunction>> find_functions(const Files& files, SandboxBackend& backend);

// The file with an exception in the place of the function's body.
std::string without_body(std::string_view source, const PythonFunction& function);

}  // namespace tandem::envs
