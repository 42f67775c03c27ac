// The table of kernels/README.md is made here from the sources, so that it says what is there.
//
// After a change: TANDEM_UPDATE=1 build/release/bin/test_kernels --gtest_filter='KernelsReadme.*' writes it anew.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <regex>
#include <set>

#include "base/file.h"
#include "kernels/stream.h"

namespace tandem::kernels {
namespace {

const fs::path kSource = TANDEM_SOURCE_DIR;
constexpr std::string_view kBegin = "<!-- operations: made by tests/kernels/readme_test.cpp -->\n";
constexpr std::string_view kEnd = "<!-- end of operations -->\n";

std::string text(const fs::path& path) { return *read_file(kSource / path); }

// What lies from the bracket at `open` to the one that closes it.
std::string bracketed(const std::string& source, size_t open) {
  const char opening = source[open], closing = opening == '{' ? '}' : ')';
  int depth = 0;
  for (size_t i = open; i < source.size(); ++i) {
    depth += (source[i] == opening) - (source[i] == closing);
    if (depth == 0) return source.substr(open, i - open + 1);
  }
  return {};
}

std::vector<std::string> matches(const std::string& source, const std::string& pattern) {
  std::vector<std::string> found;
  const std::regex regex(pattern);
  for (std::sregex_iterator it(source.begin(), source.end(), regex), end; it != end; ++it) found.push_back((*it)[1]);
  return found;
}

struct Operation {
  std::string name, header;
  std::set<std::string> dtypes;  // of the arrays that it reads and writes
  bool fp32_too = false;         // a second function of the name takes fp32 where the first takes bf16
};

// All functions of kernels/*.h that take a Stream and give a Status or a Result.
std::vector<Operation> operations() {
  std::vector<fs::path> headers;
  for (const auto& entry : fs::directory_iterator(kSource / "kernels")) {
    if (entry.path().extension() == ".h") headers.push_back(entry.path());
  }
  std::sort(headers.begin(), headers.end());
  const std::regex declaration("\n(?:Status|Result<\\w+>) (\\w+)\\(Stream&");
  std::vector<Operation> found;
  for (const fs::path& header : headers) {
    const std::string source = *read_file(header);
    for (std::sregex_iterator it(source.begin(), source.end(), declaration), end; it != end; ++it) {
      std::string arguments = bracketed(source, it->position(1) + it->length(1));
      // A struct is its own, or a template's for one number format.
      const bool fp32 = std::regex_search(arguments, std::regex("const Basic\\w+<float>&"));
      const std::string element = fp32 ? "float*" : "bf16*";
      for (const std::string& type : matches(arguments, "const ([A-Z]\\w+)(?:<float>)?&")) {
        for (const std::string& name : {type, "Basic" + type}) {
          const size_t at = source.find("struct " + name + " {");
          if (at == std::string::npos) continue;
          const std::string fields = bracketed(source, source.find('{', at));
          arguments += std::regex_replace(fields, std::regex("\\bT\\*"), element);
        }
      }
      Operation operation{(*it)[1], header.filename().string(), {}, false};
      for (const std::string& dtype : matches(arguments, "\\b(bf16|float|e4m3|e8m0|int32_t)(?:\\*| *>)")) {
        operation.dtypes.insert(dtype == "float" ? "fp32" : dtype == "int32_t" ? "int32" : dtype);
      }
      if (!found.empty() && found.back().name == operation.name) {
        found.back().fp32_too = found.back().dtypes.contains("bf16") && !operation.dtypes.contains("bf16");
        found.back().dtypes.merge(operation.dtypes);
      } else {
        found.push_back(operation);
      }
    }
  }
  return found;
}

// The bodies of the tests that run with each instruction set.
std::vector<std::string> tests_of_each_set() {
  std::vector<std::string> bodies;
  for (const auto& entry : fs::directory_iterator(kSource / "tests/kernels")) {
    if (!entry.path().string().ends_with("_test.cpp")) continue;
    const std::string source = *read_file(entry.path());
    // Sequence::attend and other helpers stand before the tests and count with them.
    if (source.find("FOR_EACH_ISA(") != std::string::npos) bodies.push_back(source);
  }
  return bodies;
}

// What a GPU does with it: weights are read there as they lie, so nothing is packed.
std::string on_gpus(const Operation& operation, const std::string& listed) {
  const auto has = [&](const std::string& name) { return listed.find("X(" + name + ", ") != std::string::npos; };
  if (operation.name.starts_with("pack")) return "needs none";
  if (!has(operation.name)) return "no";
  return operation.fp32_too && !has(operation.name + "_float") ? "bf16 alone" : "plain";
}

std::string table() {
  const std::string on_gpu_listed = text("kernels/cuda/operations.h");
  const std::string listed = text("kernels/cpu/all_operations.inl");
  const auto tests = tests_of_each_set();
  std::vector<std::string> sets;
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAmxBf16}) {
    const std::string name(to_string(isa));
    EXPECT_NE(text("kernels/cpu/" + name + ".cpp").find("all_operations.inl"), std::string::npos) << name;
    sets.push_back(name);
  }
  std::string out =
      fmt::format("| operation | header | arrays of | {} | tested with each set | cuda |\n|---|---|---|{}---|---|\n",
                  fmt::join(sets, " | "), "---|---|---|---|");
  for (const Operation& operation : operations()) {
    const bool own = listed.find(fmt::format(".{0} = {0},", operation.name)) != std::string::npos ||
                     listed.find(fmt::format(".{0} = {0}<T>,", operation.name)) != std::string::npos;
    const std::regex call("[( *]" + operation.name + "\\((?:cpu|one|three|stream|single)\\b");
    const bool tested =
        std::any_of(tests.begin(), tests.end(), [&](const std::string& body) { return std::regex_search(body, call); });
    const std::string cell = own ? "own" : "portable";
    out += fmt::format("| `{}` | `{}` | {} | {} | {} | {} |\n", operation.name, operation.header,
                       fmt::join(operation.dtypes, ", "), fmt::join(std::vector<std::string>(sets.size(), cell), " | "),
                       tested ? "yes" : "no", on_gpus(operation, on_gpu_listed));
  }
  return out;
}

TEST(KernelsReadme, has_the_table_of_the_operations_that_there_are) {
  const std::string readme = text("kernels/README.md");
  const size_t begin = readme.find(kBegin), end = readme.find(kEnd);
  ASSERT_NE(begin, std::string::npos);
  ASSERT_NE(end, std::string::npos);
  const size_t first = begin + kBegin.size();
  const std::string expected = table();
  ASSERT_GT(std::count(expected.begin(), expected.end(), '\n'), 20) << expected;
  if (std::getenv("TANDEM_UPDATE")) {
    ASSERT_TRUE(write_file(kSource / "kernels/README.md", readme.substr(0, first) + expected + readme.substr(end)));
    return;
  }
  EXPECT_EQ(readme.substr(first, end - first), expected);
}

}  // namespace
}  // namespace tandem::kernels
