// What of Dockerfiles a sandbox can follow, and sets of tasks of which some cannot be.
#include "envs/tasks/dockerfile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "envs/episodes/validate.h"
#include "envs/tasks/container.h"
#include "envs/tasks/dockerfile_text.h"
#include "envs/tasks/dockerignore.h"
#include "envs/tasks/needs.h"
#include "envs/tasks/network_use.h"
#include "envs/tasks/python_packages.h"
#include "envs/tasks/task_set.h"
#include "envs/tasks/toml_reader.h"
#include "tests/envs/recipe_fixture.h"

namespace tandem::envs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(DockerfileText, instructions_have_their_texts_and_lines) {
  const auto found = docker_instructions(
      "FROM a\n# c\nRUN <<EOF\nset -e\n# kept\necho 1\nEOF\nCOPY <<'X' <<Y /d/\na $b\nX\nc\nY\nRUN a && \\\n  # gone\n "
      " b\n");
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found[1].line, 3);
  EXPECT_EQ(found[1].texts[0].content, "set -e\n# kept\necho 1\n");
  EXPECT_EQ(found[2].line, 8);
  EXPECT_TRUE(found[2].texts[0].is_literal);
  EXPECT_EQ(found[2].texts[1].content, "c\n");
  EXPECT_EQ(found[3].line, 13);
  EXPECT_EQ(found[3].rest, "a &&   b");
}

TEST(DockerfileRun, nothing_beside_what_is_taken_as_done_is_dropped) {
  EXPECT_EQ(docker_run("rm -rf /app/secret /var/lib/apt/lists/* /tmp/*").command, "rm -rf /app/secret");
  EXPECT_EQ(docker_run("apt-get update && rm -rf /var/lib/apt/lists/*").command, "");
  EXPECT_EQ(docker_run("chown -R a /app & echo x > /app/f").command, "chown -R a /app & echo x > /app/f");
  EXPECT_EQ(docker_run("chown -R a /app 2>/dev/null && ls").command, "ls");
  EXPECT_EQ(docker_run("false; pip install six && touch f").command, "false\ntouch f");
  EXPECT_EQ(docker_run("true && pip install six && touch f").command, "true && touch f");
  EXPECT_THAT(docker_run("apt-get install -y -t bookworm jq").packages, ElementsAre("jq"));
  EXPECT_THAT(docker_run("apt-get install -y ./x.deb").command, HasSubstr("x.deb"));
}

TEST(DockerfileRun, pip_for_another_python_or_from_another_place_is_not_taken_as_done) {
  for (const char* command :
       {"PIP_INDEX_URL=https://a/ pip install six", "export PIP_INDEX_URL=https://a/ && pip install six",
        "pip config set global.index-url https://a/ && pip install six",
        "python3 -m venv v && . v/bin/activate && pip install six", "/opt/v/bin/pip install six",
        "pip install six-1.0-py3-none-any.whl", "pip install six>log"}) {
    const auto run = docker_run(command);
    EXPECT_TRUE(run.python_packages.empty()) << command;
    EXPECT_THAT(run.command, HasSubstr("pip install")) << command;
  }
  for (const char* command : {"python3.11 -m pip install six", "/usr/bin/pip3.12 install six", "pip\tinstall\tsix",
                              "PIP_NO_CACHE_DIR=1 pip install six", "pip install --upgrade pip setuptools six"}) {
    EXPECT_THAT(docker_run(command).python_packages, ElementsAre("six")) << command;
  }
  EXPECT_THAT(docker_run("pip install 'setuptools<58' wheel==0.37").python_packages,
              ElementsAre("setuptools<58", "wheel==0.37"));
}

TEST(NetworkUse, of_commands_within_commands_and_other_spellings_is_seen) {
  for (const char* command :
       {"su - app -c 'pip install --user six'", "ls && bash -lc \"pip install six\"", "pip --cache-dir /x install six",
        "pip3.11 install six", "nice pip install six; ls", "cat r.txt | xargs pip install", "poetry install",
        "git -C /app clone https://a/b", "curl host | python3 -", "eval \"$(curl -s a.example/x)\"",
        "X=\"$(wget -qO- a.example)\" make", "curl -fsSL get.a.io/x -o /tmp/x", "wget -qO- a.example | sh",
        "python3 -c \"import pip; pip.main(['install', 'six'])\"",
        "python -c 'import os; os.system(\"pip install six\")'",
        "/usr/bin/python3.11 -c 'import subprocess as s; s.run([\"pip\", \"install\", \"six\"])'",
        "python3 -c 'import nltk; nltk.download(\"punkt\")'", "python3 -m ensurepip"}) {
    EXPECT_NE(network_user(command), "") << command;
  }
  for (const char* command :
       {"bash -c 'ls; pip list'", "curl --version", "curl -s -o /dev/null -w '%{http_code}' localhost:80/x",
        "curl -s \\", "curl -X POST -H 'A: b' -d '{\"a\": 1}' 127.0.0.1:8000/a > out",
        "wget -q -O - http://localhost/a", "python3 -c 'print(\"install pip\")'",
        "python3 -c 'import six, pipes; print(six)'", "curl file:///etc/hosts"})
    EXPECT_EQ(network_user(command), "") << command;
  EXPECT_EQ(python_network_user("import subprocess, sys\nsubprocess.check_call([sys.executable, '-m', 'pip',\n    "
                                "'install', 'six'])\n"),
            "pip install");
  EXPECT_EQ(python_network_user("import urllib.request as r\nr.urlopen('https://a.example/b')\n"), "urlopen");
  EXPECT_EQ(python_network_user("import urllib.request as r\nr.urlopen('http://localhost:80/b')\n"), "");
}

TEST(DockerfileText, words_and_variables_are_read_as_docker_reads_them) {
  EXPECT_THAT(*docker_words("a \"b c\" d\\ e 'f'"), ElementsAre("a", "b c", "d e", "f"));
  EXPECT_THAT(*docker_words("[\"a\", \"b c\"]"), ElementsAre("a", "b c"));
  EXPECT_FALSE(docker_words("[\"a\", 1]").has_value());
}

TEST(DockerfileText, packages_are_told_from_what_is_to_be_run) {
  const auto run = docker_run(
      "set -eux; apt-get update && apt-get install -y --no-install-recommends git=1.2 jq && mkdir "
      "-p /app/x && rm -rf /var/lib/apt/lists/*");
  EXPECT_THAT(run.packages, ElementsAre("git", "jq"));
  EXPECT_EQ(run.command, "set -eux\nmkdir -p /app/x");
  const auto shell = docker_run("bash -lc \"apt-get update && apt-get install -y curl\"");
  EXPECT_THAT(shell.packages, ElementsAre("curl"));
  EXPECT_EQ(shell.command, "");
  EXPECT_EQ(docker_run("/bin/bash -o pipefail -ec 'echo a | cat'").command, "set -o pipefail\nset -e\necho a | cat");
  EXPECT_EQ(docker_run("useradd -m me && mkdir -p /app && chown -R me:me /app").command, "mkdir -p /app");
  const auto compound = docker_run("if true; then apt-get install -y x; fi");
  EXPECT_TRUE(compound.packages.empty());
  EXPECT_EQ(compound.command, "if true; then apt-get install -y x; fi");
}

TEST(DockerfileText, packages_of_python_and_names_of_programs_are_told_from_what_is_to_be_run) {
  const auto run = docker_run(
      "apt-get update && apt-get install -y python3-pip && ln -sf /usr/bin/python3 /usr/bin/python && pip3 install "
      "--no-cache-dir --break-system-packages pytest==8.4.1 'uvicorn[standard]>=0.30' && pip install -U pip wheel && "
      "echo done");
  EXPECT_THAT(run.packages, ElementsAre("python3-pip"));
  EXPECT_THAT(run.python_packages, ElementsAre("pytest==8.4.1", "uvicorn[standard]>=0.30"));
  EXPECT_THAT(run.names, ElementsAre(testing::Pair("python", "/usr/bin/python3")));
  EXPECT_EQ(run.command, "echo done");
  using Packages = std::vector<std::string>;
  EXPECT_EQ(python_packages_of("python3 -m pip install --timeout 60 six"), Packages{"six"});
  EXPECT_EQ(python_packages_of("uv pip install --system numpy~=2.0,<2.3"), Packages{"numpy~=2.0,<2.3"});
  for (const char* other :
       {"pip install -r requirements.txt", "pip install .", "pip install git+https://x/y", "pip install ./a.whl",
        "pip install --index-url https://x y", "pip install -e .", "pip download six", "pip install x@https://y",
        "npm install pip", "pip install 'x; python_version<\"3\"'"})
    EXPECT_FALSE(python_packages_of(other).has_value()) << other;
  for (const char* other : {"ln -s a /usr/bin/b", "ln -s /usr/bin/a /app/b", "ln -s /usr/bin/a /usr/bin/b c"})
    EXPECT_TRUE(docker_run(other).names.empty()) << other;
}

TEST(PythonPackages, are_known_by_any_spelling_of_their_names) {
  EXPECT_FALSE(python_package_is_there("no-such-package-as-this==1.0"));
  const bool has_pip = fs::exists("/usr/lib/python3/dist-packages/pip");
  EXPECT_EQ(python_package_is_there("pip"), has_pip);
  EXPECT_EQ(python_package_is_there("PIP>=1"), has_pip);
}

TEST(DockerfileText, folders_of_the_root_are_found_by_their_names) {
  EXPECT_THAT(named_folders("cp /data/in.csv \"/output\" && ls /usr/bin /tests a/b http://x/y >/srv/log. See /root."),
              ElementsAre("/data", "/output", "/root", "/srv"));
}

TEST(MachineVariables, are_what_the_task_says_in_their_place) {
  EXPECT_EQ(without_machine_variable("plain"), "plain");
  EXPECT_EQ(without_machine_variable("${A:-x y}"), "x y");
  EXPECT_EQ(without_machine_variable("${A}"), std::nullopt);
  EXPECT_EQ(without_machine_variable("${A}b"), "${A}b") << "as Harbor has it";
}

TEST(MachineVariables, defaults_of_shells_are_read) {
  EXPECT_EQ(without_machine_variable("${A-x}"), "x");
  EXPECT_EQ(without_machine_variable("${A:-}"), "");
  EXPECT_EQ(without_machine_variable("${A:+x}"), "") << "it is not set";
  EXPECT_EQ(without_machine_variable("${A:?must be}"), std::nullopt);
}

TEST(DockerfileText, lines_go_on_as_docker_has_them) {
  const auto rest_of = [](std::string_view text) {
    const auto found = docker_instructions(text);
    std::vector<std::string> rests;
    for (const auto& each : found) rests.push_back(each.name + " " + each.rest);
    return rests;
  };
  EXPECT_THAT(rest_of("RUN a \\\n\n  # c\n && b\nCMD c\n"), ElementsAre("RUN a  && b", "CMD c"));
  EXPECT_THAT(rest_of("RUN a \\ \n b\nCMD c\n"), ElementsAre("RUN a  b", "CMD c"));
  EXPECT_THAT(rest_of("# escape=`\nRUN a `\n b\\\nCMD c\n"), ElementsAre("RUN a  b\\", "CMD c"));
  EXPECT_THAT(rest_of("\xEF\xBB\xBF"
                      "FROM a\r\nRUN b \\"),
              ElementsAre("FROM a", "RUN b"));
  const auto texts = docker_instructions("COPY <<-A <<B /x/\n\t1\n\tA\n 2\n B\nB\n").front().texts;
  EXPECT_EQ(texts[0].content, "1\n");
  EXPECT_EQ(texts[1].content, " 2\n B\n") << "a space stands in front of that end";
}

TEST(DockerIgnore, leaves_out_what_docker_leaves_out) {
  const DockerIgnore ignore(
      "# c\n*.log\n!keep.log\n**/node_modules/**\nsecret/\n/rooted\nsub/*.tmp\n**/*.pyc\ndeep/**/x\na{b}\n");
  for (const char* path : {"a.log", "node_modules/m.js", "p/q/node_modules/m.js", "secret/s", "rooted", "sub/a.tmp",
                           "p/q/c.pyc", "deep/x", "deep/a/b/x", "a{b}"})
    EXPECT_TRUE(ignore.leaves_out(path)) << path;
  for (const char* path : {"keep.log", "p/a.log", "p/secret/s", "p/rooted", "sub/d/a.tmp", "ab"})
    EXPECT_FALSE(ignore.leaves_out(path)) << path;
}

TEST_F(Recipe, what_people_write_is_followed) {
  scratch_.put("t/environment/data/a.csv", "a\n");
  scratch_.put("t/environment/data/b.csv", "b\n");
  scratch_.put("t/environment/run.sh", "echo ran\n");
  EXPECT_EQ(
      run("ARG BASE=debian\nFROM $BASE\nARG NAME=it\nENV WHERE=/data\nWORKDIR /app\nUSER root\nVOLUME /var/lib/x\n"
          "ENTRYPOINT [\"/bin/sh\"]\nHEALTHCHECK CMD true\nSTOPSIGNAL 9\nEXPOSE 80\nSHELL [\"/bin/bash\", \"-c\"]\n"
          "COPY --chown=a:b data/*.csv $WHERE/\nCOPY --chmod=755 [\"run.sh\", \"/opt/tool/run.sh\"]\n"
          "RUN mkdir -p /tests /output && echo $NAME > /output/name\nRUN <<EOF\ncd /output\necho 2 > two\nEOF\n"
          "RUN cat <<'X' > here.txt\nwhat $it is\nX\nCOPY <<Y /app/placed.txt\nof ${NAME}\nY\n"
          "RUN --mount=type=cache,target=/c bash -lc \"echo login > login.txt\"\n",
          "cat /data/*.csv; /opt/tool/run.sh; cat /output/* here.txt placed.txt login.txt; ls -d /var/lib/x "
          "2>/dev/null || ls -d /var; pwd"),
      "a\nb\nran\nit\n2\nwhat $it is\nof it\nlogin\n/var/lib/x\n/app\n");
}

TEST_F(Recipe, a_workdir_within_workspace_is_where_commands_begin) {
  scratch_.put("t/environment/a.txt", "a\n");
  EXPECT_EQ(
      run("FROM x\nWORKDIR /workspace/project\nCOPY a.txt .\nCOPY a.txt /workspace/other/b.txt\nRUN echo c > c.txt\n",
          "pwd; cat a.txt c.txt; find /workspace -type f | sort"),
      "/workspace/project\na\nc\n/workspace/other/b.txt\n/workspace/project/a.txt\n/workspace/project/c.txt\n");
}

TEST_F(Recipe, a_name_for_a_program_of_the_system_is_found_by_the_model_and_by_the_tests) {
  scratch_.put("t/tests/test.sh", "interpreter -c 'print(1)' > /logs/verifier/reward.txt\n");
  const std::string dockerfile = "FROM x\nWORKDIR /app\nRUN ln -s /usr/bin/python3 /usr/bin/interpreter\n";
  EXPECT_EQ(run(dockerfile, "interpreter -c 'print(2)'"), "2\n");
  const auto verdict = validate(*task_of(dockerfile), *backend_, 1);
  EXPECT_THAT(verdict.findings, testing::Not(testing::Contains(HasSubstr("gets no grade"))));
}

TEST_F(Recipe, a_python_of_its_own_is_refused_by_name) {
  for (const char* lines :
       {"RUN python3 -m venv /app/v", "ENV PATH=/app/venv/bin:$PATH",
        "ENV VIRTUAL_ENV=/opt/py\nENV PATH=$VIRTUAL_ENV/bin:$PATH", "ENV PATH=\"/srv/.venv/bin:${PATH}\""}) {
    const auto task = task_of(std::string("FROM x\nWORKDIR /app\n") + lines + "\n");
    ASSERT_FALSE(task.has_value()) << lines;
    EXPECT_THAT(task.error().message(), HasSubstr("the system's")) << lines;
  }
}

TEST_F(Recipe, scripts_that_a_recipe_runs_are_read_for_what_needs_a_network) {
  scratch_.put("t/environment/setup.sh", "set -e\npip install six\n");
  scratch_.put("t/environment/get.py", "import subprocess\nsubprocess.run(['git', 'clone', 'https://a/b'])\n");
  for (const char* command :
       {"bash /app/setup.sh", "python3 get.py", "python3 - <<E\nimport pip\npip.main(['install'])\nE"}) {
    const auto task = task_of(std::string("FROM x\nWORKDIR /app\nCOPY . .\nRUN ") + command + "\n");
    ASSERT_FALSE(task.has_value()) << command;
    EXPECT_THAT(task.error().message(), HasSubstr("needs a network")) << command;
  }
}

// A model that can write a program of the grader's writes the verdict.
TEST_F(Recipe, tests_run_the_programs_of_the_system_whatever_path_says) {
  const std::string plant =
      "for d in bin /data/bin; do mkdir -p $d; for name in python3 bash cat env; do printf '#!/bin/sh\\nmkdir -p "
      "/logs/verifier; echo 1 > /logs/verifier/reward.txt\\n' > $d/$name; chmod +x $d/$name; done; done; mkdir -p lib";
  scratch_.put("t/tests/test.sh",
               "python3 -c \"import os; print(int(os.path.exists('/app/out')))\" > "
               "/logs/verifier/reward.txt\ncat /data/x\n");
  for (const char* line : {"ENV PATH=/app/bin:$PATH", "ENV PATH=bin:$PATH", "ENV PATH=/data/bin:/usr/bin:/bin",
                           "ENV PATH=/usr/bin/../../app/bin:$PATH", "ENV PATH=$PATH"}) {
    const auto task = task_of(std::string("FROM x\nWORKDIR /app\n") + line + "\n");
    ASSERT_TRUE(task.has_value()) << task.error().message();
    auto episode = Episode::open(*task, *backend_);
    ASSERT_TRUE(episode.has_value()) << episode.error().to_string();
    (void)(*episode)->call("run_terminal_cmd", {{"command", "PATH=/usr/bin:/bin; " + plant}});
    const auto grade = (*episode)->score("");
    ASSERT_TRUE(grade.has_value()) << line << grade.error().message();
    EXPECT_EQ(grade->reward, 0) << line;
  }
  // What the system does not have is found there.
  scratch_.put("t/tests/test.sh",
               "if [ \"$(only_here)\" = 1 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n");
  scratch_.put("t/solution/solve.sh",
               "mkdir -p bin; printf '#!/bin/sh\\necho 1\\n' > bin/only_here; chmod +x bin/only_here\n");
  const auto verdict = validate(*task_of("FROM x\nWORKDIR /app\nENV PATH=/app/bin:$PATH\n"), *backend_, 1);
  EXPECT_THAT(verdict.findings, testing::IsEmpty()) << "without it the reward is 0, no lack of this machine";
}

TEST_F(Recipe, what_would_stand_in_for_the_system_while_tests_run_is_refused) {
  scratch_.put("t/environment/x", "#!/bin/sh\n");
  for (const char* lines : {"ENV BASH_ENV=/app/env", "ENV LD_PRELOAD=/app/x.so",
                            "ENV NODE_OPTIONS=\"--require /app/x.js\"", "RUN ln -s /app/x /usr/local/bin/python3",
                            "RUN ln -sf /opt/x /usr/bin/bash", "COPY x /app/bin/cat\nENV PATH=/app/bin:$PATH"}) {
    const auto task = task_of(std::string("FROM x\nWORKDIR /app\n") + lines + "\n");
    EXPECT_FALSE(task.has_value()) << lines;
  }
  for (const char* lines :
       {"ENV ENV=production", "RUN ln -s /app/x /usr/local/bin/a_tool_of_ours",
        "ENV NODE_OPTIONS=--max-old-space-size=512", "COPY x /app/bin/ours\nENV PATH=/app/bin:$PATH"}) {
    const auto task = task_of(std::string("FROM x\nWORKDIR /app\n") + lines + "\n");
    EXPECT_TRUE(task.has_value()) << task.error().message();
  }
}

TEST_F(Recipe, a_test_that_puts_the_workspace_before_the_system_is_named) {
  scratch_.put("t/tests/test.sh",
               "export PATH=/app/tools:$PATH\ncp /app/out /logs/verifier/reward.txt || echo 0 > "
               "/logs/verifier/reward.txt\n");
  const auto verdict = validate(*task_of("FROM x\nWORKDIR /app\n"), *backend_, 1);
  EXPECT_THAT(verdict.findings, testing::Contains(HasSubstr("the cheat plants_programs scores 1")));
}

TEST_F(Recipe, a_solution_and_the_folders_of_volumes_are_found_in_a_folder_of_workspace) {
  scratch_.put("t/tests/test.sh",
               "test -d /srv/y/z && cat /workspace/p/out > /logs/verifier/reward.txt || echo 0 > "
               "/logs/verifier/reward.txt\n");
  scratch_.put("t/solution/solve.sh", "echo 1 > out\n");
  const auto verdict = validate(*task_of("FROM x\nWORKDIR /workspace/p\nVOLUME [\"/srv/y/z\"]\n"), *backend_, 1);
  EXPECT_THAT(verdict.findings, testing::IsEmpty());
}

TEST_F(Recipe, archives_are_unpacked_and_folders_may_stand_in_quotes) {
  scratch_.put("pack/inner/f.txt", "of the archive\n");
  fs::create_directories(scratch_.path / "t/environment");
  ASSERT_EQ(system(("tar -C " + (scratch_.path / "pack").string() + " -czf " +
                    (scratch_.path / "t/environment/x.tar.gz").string() + " inner")
                       .c_str()),
            0);
  EXPECT_EQ(run("FROM x\nWORKDIR \"/app/a b\"\nADD x.tar.gz ./d\nCOPY x.tar.gz c.tar.gz\n",
                "pwd; cat d/inner/f.txt; ls d; ls"),
            "/app/a b\nof the archive\ninner\nc.tar.gz\nd\n");
}

TEST_F(Recipe, a_sandbox_has_the_disk_that_the_task_asks_for_within_bounds) {
  const auto megabytes = [&](const std::string& asked) {
    scratch_.put("t/task.toml", "version = \"1.0\"\n[environment]\nstorage_mb = " + asked + "\n");
    return run("FROM x\nWORKDIR /app\n", "df -m --output=size /workspace | tail -1 | tr -d ' '");
  };
  EXPECT_EQ(megabytes("600"), "600\n");
  EXPECT_EQ(megabytes("1"), "256\n");
  EXPECT_EQ(megabytes("10240"), "2048\n");
  EXPECT_THAT(megabytes("0"), HasSubstr("task.toml:3: environment.storage_mb must be a number of MiB"));
  scratch_.put("own.yaml", "instruction: x\ndisk_mb: 100\ncheck: {answer: y}\n");
  EXPECT_THAT(only_task(scratch_.path / "own.yaml").error().message(), HasSubstr("disk_mb"));
  scratch_.put("own.yaml", "instruction: x\nneeds: ['python --index-url=http://x']\ncheck: {answer: y}\n");
  EXPECT_THAT(only_task(scratch_.path / "own.yaml").error().message(), HasSubstr("names no package"));
  scratch_.put("own.yaml", "instruction: x\ndisk_mb: 512\ncheck: {answer: y}\n");
  EXPECT_EQ(only_task(scratch_.path / "own.yaml")->disk_mb, 512);
}

TEST_F(Recipe, packages_of_python_are_needs) {
  const auto task = task_of("FROM x\nWORKDIR /app\nRUN pip install no-such-package-as-this==1.0\n");
  ASSERT_TRUE(task.has_value()) << task.error().message();
  EXPECT_THAT(task->needs, ElementsAre("python no-such-package-as-this==1.0"));
  EXPECT_THAT(python_needs(*task), ElementsAre("no-such-package-as-this==1.0"));
  const Status lacking = check_needs(*task, false);
  EXPECT_EQ(lacking.code(), Code::kUnfit);
  EXPECT_THAT(lacking.to_string(), HasSubstr("env.packages.pypi"));
  EXPECT_TRUE(check_needs(*task, true));
}

TEST_F(Recipe, pip_in_a_text_for_a_shell_or_with_another_index_is_refused_by_name) {
  const auto text = task_of("FROM x\nWORKDIR /app\nRUN bash <<EOF\npip install six\necho hi > hi\nEOF\n");
  ASSERT_FALSE(text.has_value());
  EXPECT_THAT(text.error().message(), HasSubstr("Dockerfile:3: RUN: `pip install` needs a network"));
  EXPECT_THAT(text.error().message(), HasSubstr("a plain `pip install NAME...`"));
  const auto index = task_of("FROM x\nWORKDIR /app\nENV PIP_INDEX_URL=https://a/\nRUN pip install six\n");
  ASSERT_FALSE(index.has_value());
  EXPECT_THAT(index.error().message(), HasSubstr("where PIP_INDEX_URL says"));
}

TEST_F(Recipe, what_lies_beside_the_workspace_goes_along_to_the_tests) {
  scratch_.put("t/environment/seed.txt", "seed\n");
  scratch_.put("t/tests/test.sh",
               "if [ \"$(cat /data/seed.txt) $(cat /data/made.txt)\" = \"seed made\" ]; then echo 1; else echo 0; fi > "
               "/logs/verifier/reward.txt\n");
  scratch_.put("t/solution/solve.sh", "echo made > /data/made.txt\n");
  const auto task = task_of("FROM x\nWORKDIR /app\nCOPY seed.txt /data/\n");
  ASSERT_TRUE(task.has_value()) << task.error().message();
  const auto v = validate(*task, *backend_, 1);
  EXPECT_EQ(v.verdict, Verdict::kPassed) << testing::PrintToString(v.findings);
}

TEST_F(Recipe, folders_that_only_scripts_name_are_there) {
  scratch_.put("t/tests/test.sh",
               "test -s /results/r && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt\n");
  scratch_.put("t/solution/solve.sh", "mkdir -p /results && echo x > /results/r\n");
  const auto task = task_of("FROM x\nWORKDIR /app\n");
  ASSERT_TRUE(task.has_value());
  EXPECT_EQ(validate(*task, *backend_, 1).verdict, Verdict::kPassed);
}

TEST_F(Recipe, neither_solution_nor_tests_of_a_context_are_shown) {
  scratch_.put("t/environment/solution/solve.sh", "the solution\n");
  scratch_.put("t/environment/tests/test_all.py", "the tests\n");
  scratch_.put("t/environment/src/tests/test_own.py", "visible\n");
  scratch_.put("t/environment/skipped.log", "x\n");
  scratch_.put("t/environment/.dockerignore", "# no logs\n*.log\n");
  EXPECT_EQ(run("FROM x\nWORKDIR /app\nCOPY . .\n", "find /app -type f"), "/app/src/tests/test_own.py\n");
  EXPECT_THAT(run("FROM x\nWORKDIR /app\nCOPY tests/ /app/\n", "ls"),
              HasSubstr("COPY: tests/ would show tests to the model"));
  const auto context = read_build_context(scratch_.path / "t/environment");
  ASSERT_TRUE(context.has_value());
  EXPECT_FALSE(context->files.contains("solution/solve.sh"));
  EXPECT_FALSE(context->files.contains("tests/test_all.py"));
  EXPECT_TRUE(context->files.contains("src/tests/test_own.py"));
}

TEST_F(Recipe, a_service_by_itself_with_limits_is_a_sandbox) {
  scratch_.put(
      "t/environment/docker-compose.yaml",
      "services:\n  main:\n    build: .\n    deploy:\n      resources:\n        limits: {cpus: \"1\", memory: 2G}\n"
      "    mem_limit: 2g\n    environment:\n      MODE: ${MODE:-fast}\n      KEY: ${KEY}\n    command: sleep "
      "infinity\n");
  scratch_.put("t/task.toml", "version = \"1.0\"\n[environment.env]\nA = \"${A:-b}\"\nTOKEN = \"${TOKEN}\"\n");
  EXPECT_EQ(run("FROM x\nWORKDIR /app\n", "echo $MODE [$KEY] $A [$TOKEN]"), "fast [] b []\n");
}

TEST_F(Recipe, tasks_that_cannot_be_followed_are_left_out_by_name) {
  ASSERT_TRUE(task_of("FROM x\nWORKDIR /app\n").has_value());
  scratch_.put("bad/task.toml", "version = \"1.0\"\n");
  scratch_.put("bad/instruction.md", "x\n");
  scratch_.put("bad/tests/test.sh", "x\n");
  scratch_.put("bad/environment/Dockerfile", "FROM x\nRUN pip install -r y\n");
  const auto set = TaskSet::read(scratch_.path);
  ASSERT_TRUE(set.has_value()) << set.error().message();
  ASSERT_EQ(set->tasks().size(), 1u);
  EXPECT_EQ(set->tasks()[0].name, "t");
  ASSERT_EQ(set->skipped().size(), 1u);
  EXPECT_EQ(set->skipped()[0].name, "bad");
  EXPECT_THAT(set->skipped()[0].why, ElementsAre(HasSubstr("Dockerfile:2: RUN: `pip install` needs a network")));
  // Where nothing is left, that is an error; so are mistakes in one's own files.
  EXPECT_THAT(TaskSet::read(scratch_.path / "bad").error().message(), HasSubstr("needs a network"));
  scratch_.put("own.yaml", "instructon: x\n");
  EXPECT_THAT(TaskSet::read(scratch_.path).error().message(), HasSubstr("unknown key instructon"));
}

}  // namespace
}  // namespace tandem::envs
