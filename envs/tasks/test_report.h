// Parses output of pytest and unittest into names of tests and their results.
//
// Read are pytest's summary (-rA) and its verbose lines (-v), and unittest's verbose lines (-v). A name is as its
// runner writes it: "tests/test_a.py::test_b[1]", "test_b (tests.test_a.TestA)". Pure functions; bounded by their
// input.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace tandem::envs {

enum class TestEnd : uint8_t { kPassed, kSkipped, kFailed };  // an expected failure is a pass

// A test that was reported more than once has its worst result. Names with spaces are there up to the first one, too:
// so the data sets write them that were made with a simpler reader.
using TestReport = std::map<std::string, TestEnd, std::less<>>;

TestReport read_test_report(std::string_view output);

// Adds a test by the names that it has in a report.
void add_to(TestReport& report, std::string_view name, TestEnd end);

// The one form of a name that runners of several versions write in several ways.
std::string test_name(std::string_view written);

// The share of these tests that passed, or of all reported ones where none are named; 0 where there are none.
double share_that_passed(const TestReport& report, std::span<const std::string> wanted);

// Why these tests have not all passed, in words; empty where they have. None named: all that were reported, at least
// one.
std::string why_not_passed(const TestReport& report, std::span<const std::string> wanted);

}  // namespace tandem::envs
