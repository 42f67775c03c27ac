// scripts/gpu-check without a GPU: what it refuses, what it makes of programs that fail, and, in long runs, what it
// packs.
#include <fmt/format.h>

#include <cstdlib>

#include "tests/cli/run_fixture.h"
#include "tests/repetitions.h"

namespace tandem {
namespace {

class GpuCheckTest : public testing::Test {
 protected:
  GpuCheckTest() {
    std::string path = fs::temp_directory_path() / "gpu-check-XXXXXX";
    if (::mkdtemp(path.data()) != nullptr) folder_ = path;
  }
  ~GpuCheckTest() override {
    std::error_code error;
    fs::remove_all(folder_, error);
  }

  int run(const Arguments& arguments, std::chrono::seconds limit = 60s) {
    Arguments all = {"/usr/bin/env", "python3", fs::path(TANDEM_SOURCE_DIR) / "scripts/gpu-check"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    Process process(all, folder_ / "output");
    return process.wait(limit);
  }
  std::string output() const { return text(folder_ / "output"); }

  // An archive whose programs are shell scripts: tandem says its version, test programs report what they are told to.
  fs::path archive_of(const std::string& kernels_report, const std::string& change = "true") {
    const fs::path pack = folder_ / "made/gpu-check";
    fs::create_directories(pack / "bin");
    fs::create_directories(pack / "lib");
    const auto program = [&](const std::string& name, const std::string& body) {
      EXPECT_TRUE(write_file(pack / "bin" / name, "#!/bin/sh\n" + body + "\n"));
      fs::permissions(pack / "bin" / name, fs::perms::owner_all);
    };
    const auto reporting = [](const std::string& report) {
      return fmt::format(
          "for a in \"$@\"; do case $a in --gtest_output=json:*) echo '{}' >\"${{a#*json:}}\" ;; esac; done", report);
    };
    program("tandem", "echo tandem");
    program("test_kernels", reporting(kernels_report) + "\nexit 0");
    for (const char* name : {"test_collectives", "test_model", "test_trainer"}) program(name, reporting(kPassed));
    std::string files;
    for (const std::string name : {"tandem", "test_kernels", "test_collectives", "test_model", "test_trainer"}) {
      files += fmt::format("'bin/{0}': sha256(pack / 'bin/{0}'), ", name);
    }
    const std::string make = fmt::format(
        "import hashlib, json, pathlib, tarfile\n"
        "pack = pathlib.Path({:?})\n"
        "sha256 = lambda path: hashlib.sha256(path.read_bytes()).hexdigest()\n"
        "(pack / 'manifest.json').write_text(json.dumps({{'commit': 'c0ffee', 'glibc': '2.36', 'files': {{{}}}}}))\n"
        "{}\n"
        "with tarfile.open(pack.parent / 'made.tar.xz', 'w:xz', preset=0) as tar: tar.add(pack, 'gpu-check')\n",
        pack.string(), files, change == "true" ? "" : change);
    EXPECT_TRUE(write_file(folder_ / "make.py", make));
    Process process({"/usr/bin/env", "python3", folder_ / "make.py"}, folder_ / "make.output");
    EXPECT_EQ(process.wait(60s), 0) << text(folder_ / "make.output");
    return pack.parent_path() / "made.tar.xz";
  }

  static constexpr const char* kPassed =
      R"({"testsuites": [{"name": "S", "testsuite": [{"name": "good", "result": "COMPLETED"}, {"name": "away", "result": "SKIPPED"}]}]})";
  static constexpr const char* kFailed =
      R"({"testsuites": [{"name": "S", "testsuite": [{"name": "bad", "result": "COMPLETED", "failures": [{"failure": "bits differ"}]}]}]})";

  fs::path folder_;
};

TEST_F(GpuCheckTest, says_what_is_missing_where_there_is_no_gpu) {
  if (fs::exists("/dev/nvidiactl")) GTEST_SKIP() << "there is a driver here";
  EXPECT_EQ(run({}), 3);
  EXPECT_EQ(output(), "error: there is no NVIDIA driver here: libcuda.so.1 cannot be loaded\n");
}

TEST_F(GpuCheckTest, options_that_mean_nothing_are_named) {
  EXPECT_EQ(run({"--help"}), 0);
  EXPECT_NE(output().find("--pack"), std::string::npos);
  EXPECT_EQ(run({"--pak"}), 2);
  EXPECT_NE(output().find("--pak"), std::string::npos) << output();
  EXPECT_EQ(run({"--steps", "-1"}), 2);
  EXPECT_EQ(run({"--pack", "--out", "x.json"}), 2);
  EXPECT_EQ(run({"--without-gpu", "--model", folder_}), 2);
  EXPECT_EQ(output(), fmt::format("gpu-check: {}: holds no model.safetensors\n  --help says more\n", folder_.string()));
}

TEST_F(GpuCheckTest, an_archive_that_is_not_there_is_damaged_or_holds_more_is_refused) {
  EXPECT_EQ(run({"--without-gpu", "--from", folder_ / "no.tar.xz"}), 3);
  EXPECT_NE(output().find("no.tar.xz: no such file"), std::string::npos) << output();
  ASSERT_TRUE(write_file(folder_ / "text.tar.xz", "text"));
  EXPECT_EQ(run({"--without-gpu", "--from", folder_ / "text.tar.xz"}), 3);
  EXPECT_NE(output().find("is no archive of --pack"), std::string::npos) << output();
  EXPECT_EQ(run({"--without-gpu", "--steps", "0", "--from",
                 archive_of(kPassed, "(pack / 'bin/test_kernels').write_text('other')")}),
            3);
  EXPECT_NE(output().find("bin/test_kernels: is missing, or not what was packed"), std::string::npos) << output();
  EXPECT_EQ(run({"--without-gpu", "--steps", "0", "--from",
                 archive_of(kPassed, "(pack / 'bin/link').symlink_to('/etc/passwd')")}),
            3);
  EXPECT_NE(output().find("'gpu-check/bin/link' does not belong into it"), std::string::npos) << output();
}

TEST_F(GpuCheckTest, the_result_tells_what_passed_and_what_was_skipped) {
  ASSERT_EQ(run({"--without-gpu", "--steps", "0", "--out", folder_ / "r.json", "--from", archive_of(kPassed)}), 0)
      << output();
  const Json result = json(folder_ / "r.json");
  EXPECT_EQ(result["ok"], true);
  EXPECT_EQ(result["commit"], "c0ffee");
  EXPECT_TRUE(result["gpu"].is_null());
  EXPECT_FALSE(result.contains("benchmarks")) << "no figure without a GPU";
  ASSERT_EQ(result["tests"].size(), 4u);
  EXPECT_EQ(result["tests"][0]["filter"], "CudaHost.*:CudaLibrary.*");
  EXPECT_EQ(result["tests"][0]["passed"], 1);
  EXPECT_EQ(result["tests"][0]["skipped"][0], "S.away");
}

TEST_F(GpuCheckTest, a_test_that_fails_and_a_loop_that_does_not_end_well_fail_the_check) {
  ASSERT_EQ(run({"--without-gpu", "--steps", "0", "--out", folder_ / "r.json", "--from", archive_of(kFailed)}), 1);
  const Json result = json(folder_ / "r.json");
  EXPECT_EQ(result["ok"], false);
  EXPECT_EQ(result["tests"][0]["failed"][0]["test"], "S.bad");
  EXPECT_EQ(result["tests"][0]["failed"][0]["why"], "bits differ");
  ASSERT_EQ(run({"--without-gpu", "--steps", "1", "--out", folder_ / "r.json", "--from", archive_of(kPassed)}), 1);
  const Json loops = json(folder_ / "r.json")["loops"];
  ASSERT_EQ(loops.size(), 2u);  // by both sets of kernels
  EXPECT_EQ(loops[0]["ok"], false);
  EXPECT_EQ(loops[0]["computed_on"], "emulated:0");
  EXPECT_EQ(loops[1]["computed_on"], "emulated:0:tensor");
  EXPECT_NE(loops[0]["error"].get<std::string>().find("summary.json"), std::string::npos) << loops;
}

// Packing takes half a minute of compressing, the tests and the loop as long again.
TEST_F(GpuCheckTest, what_is_packed_runs_from_its_own_libraries) {
  if (repetitions(0, 1) == 0) GTEST_SKIP() << "with scripts/test --long";
  const fs::path build = fs::path(TANDEM_SOURCE_DIR) / "build/release";
  if (fs::path(TANDEM_BINARY) != build / "bin/tandem" || !fs::exists(build / "bin/libtandem_cuda.so")) {
    GTEST_SKIP() << "what is packed is build/release, with libtandem_cuda.so";
  }
  ASSERT_EQ(run({"--pack", folder_ / "real.tar.xz"}, 600s), 0) << output();
  ASSERT_EQ(
      run({"--without-gpu", "--steps", "1", "--out", folder_ / "r.json", "--from", folder_ / "real.tar.xz"}, 600s), 0)
      << output() << text(folder_ / "r.json");
  const Json result = json(folder_ / "r.json");
  EXPECT_GT(result["tests"][0]["passed"].get<int>(), 100);
  EXPECT_EQ(result["loops"][0]["logprob"]["max_abs_diff"], 0.0);
  Process unpack({"/usr/bin/env", "tar", "xf", folder_ / "real.tar.xz", "-C", folder_}, folder_ / "tar.output");
  ASSERT_EQ(unpack.wait(60s), 0);
  const fs::path pack = folder_ / "gpu-check";
  Process listed({"/usr/bin/env", "LD_LIBRARY_PATH=" + (pack / "lib").string(), "ldd", pack / "bin/tandem"},
                 folder_ / "ldd.output");
  ASSERT_EQ(listed.wait(60s), 0);
  const std::string libraries = text(folder_ / "ldd.output");
  for (const char* name : {"libfmt.so", "libzmq.so", "libcapnp", "libstdc++.so"}) {
    const size_t at = libraries.find(name);
    ASSERT_NE(at, std::string::npos) << libraries;
    EXPECT_NE(libraries.find(pack.string(), at), std::string::npos);
    EXPECT_LT(libraries.find(pack.string(), at), libraries.find('\n', at)) << name << " is the system's";
  }
}

}  // namespace
}  // namespace tandem
