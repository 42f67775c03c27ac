// How a Dockerfile is read: its values, lines and shells, as Docker reads them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "envs/tasks/dockerfile_parts.h"
#include "envs/tasks/dockerfile_text.h"
#include "tests/envs/recipe_fixture.h"

namespace tandem::envs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Dockerfile : public Recipe {};

TEST_F(Dockerfile, options_of_SHELL_count) {
  const std::string fails = "RUN false | true && echo went on > f || echo stopped > f\n";
  EXPECT_EQ(run(kInApp + "SHELL [\"/bin/bash\", \"-o\", \"pipefail\", \"-c\"]\n" + fails, "cat f"), "stopped\n");
  EXPECT_EQ(
      run("FROM alpine:3.20\nWORKDIR /app\nSHELL [\"/bin/ash\", \"-eo\", \"pipefail\", \"-c\"]\n" + fails, "cat f"),
      "stopped\n");
  EXPECT_EQ(run(kInApp + "SHELL [\"/bin/bash\", \"-c\"]\n" + fails, "cat f"), "went on\n");
  EXPECT_EQ(run(kInApp + "SHELL [\"/bin/bash\", \"-o\", \"pipefail\", \"-c\"]\nSHELL [\"/bin/sh\", \"-c\"]\n" + fails,
                "cat f"),
            "went on\n");
  EXPECT_THAT(run(kInApp + "SHELL [\"/bin/bash\", \"-euo\", \"pipefail\", \"-c\"]\nRUN echo $UNSET; true\n", "true"),
              HasSubstr("UNSET: unbound variable"));
  EXPECT_THAT(run(kInApp + "SHELL [\"/bin/sh\", \"-ec\"]\nRUN echo a; false; echo b > f\n", "cat f"),
              HasSubstr("setup of t failed"));
  // Neither words in brackets, nor scripts and commands with a shell of their own, run in that of SHELL.
  const std::string shell = "SHELL [\"/bin/bash\", \"-eo\", \"pipefail\", \"-c\"]\n";
  EXPECT_EQ(run(kInApp + shell +
                    "RUN [\"bash\", \"-c\", \"false | true; echo 1 > f\"]\nRUN <<E\n#!/bin/bash\nfalse\necho 2 >> "
                    "f\nE\nRUN bash -c 'false; echo 3 >> f'\n",
                "cat f"),
            "1\n2\n3\n");
  EXPECT_EQ(run(kInApp + shell + "ARG A=\"it's\"\nENV B=\"$A b\"\nRUN <<E\necho \"$A $B\" > f\nE\n", "cat f"),
            "it's it's b\n");
  // The sh of Alpine knows pipefail.
  EXPECT_EQ(run("FROM alpine:3\nWORKDIR /app\nSHELL [\"/bin/sh\", \"-o\", \"pipefail\", \"-c\"]\n" + fails, "cat f"),
            "stopped\n");
  EXPECT_THAT(run(kInApp + "SHELL [\"/bin/no-such-zsh\", \"-o\", \"pipefail\", \"-c\"]\n", "true"),
              HasSubstr("Dockerfile:3: SHELL: /bin/no-such-zsh is not on this machine"));
}

TEST_F(Dockerfile, values_of_ENV_are_not_run_by_a_shell) {
  EXPECT_EQ(run(kInApp + "ENV S=\"$(touch /app/x)\" P=cost$$5 N=\"$#\" T=`touch${U}` Q=\"a\\`b\" D=$ E=$.x F=$12y\n",
                "ls; echo \"$S|$P|$N|$T|$Q|$D|$E|$F\""),
            "$(touch /app/x)|cost5||`touch`|a\\`b|$|$.x|y\n");
  EXPECT_EQ(run(kInApp + "ENV A=1\nENV B=${A}x C=$A\"y\" D=\"${N:-$(a)`b`}\" E=$HOME\n", "echo \"$B|$C|$D|$E\""),
            "1x|1y|$(a)`b`|/tmp/home\n");
}

TEST_F(Dockerfile, values_of_env_are_read_as_docker_reads_them) {
  EXPECT_EQ(
      run("FROM x\nWORKDIR /app\nENV A=0\nENV A=1 B=\"two words\" C=three\\ w D=a\"b c\"'d e' E='$A' F=\\$A G=\"say "
          "\\\"$A\\\"\"\nENV H five "
          "six\n",
          "echo \"$A|$B|$C|$D|$E|$F|$G|$H\""),
      "1|two words|three w|ab cd e|$A|$A|say \"0\"|five six\n");
}

TEST_F(Dockerfile, variables_are_those_of_their_place_in_the_file) {
  EXPECT_EQ(run("ARG V=1\nARG W=2\nFROM x\nARG W\nWORKDIR /app\nENV A=1\nRUN echo \"$A,${B-},${V-},$W\" > f\nENV A=2 "
                "B=$A\nRUN echo $A,$B >> f\n",
                "cat f; echo $A,$B"),
            "1,,,2\n2,1\n2,1\n");
}

TEST_F(Dockerfile, a_value_of_env_may_name_an_argument_and_goes_before_one_of_its_name) {
  EXPECT_EQ(run("FROM x\nARG V=1.2\nARG H=/app S='a$b \"c\"'\nENV A=$V\nENV H=${H} D=$H/data\n"
                "ENV V=$V E=${N:+set} P=${Q:-$A}/${V} S2=$S\nARG A=no\nWORKDIR $H\n"
                "RUN echo \"$A|$H|$D|$V|$E|$P|$S2\" > f\n",
                "cat f; echo \"$A|$H|$D|$V|$E|$P|$S2\""),
            "1.2|/app|/app/data|1.2||1.2/1.2|a$b \"c\"\n1.2|/app|/app/data|1.2||1.2/1.2|a$b \"c\"\n");
  EXPECT_THAT(run("FROM x\nWORKDIR /app\nENV A=\"${B:?must be set}\"\n", "true"),
              HasSubstr("Dockerfile:3: ENV: B is not set: must be set"));
}

TEST_F(Dockerfile, echo_reads_letters_behind_a_backslash_where_the_image_has_dash) {
  const std::string lines = "\nWORKDIR /app\nRUN echo 'a\\nb' > f && echo \"c\\td\" >> f\n";
  EXPECT_EQ(run("FROM python:3.12-slim" + lines, "cat f"), "a\nb\nc\td\n");
  EXPECT_EQ(run("FROM alpine:3" + lines, "cat f"), "a\\nb\nc\\td\n");
  EXPECT_EQ(run("FROM debian\nSHELL [\"/bin/bash\", \"-c\"]" + lines, "cat f"), "a\\nb\nc\\td\n");
  EXPECT_EQ(run("FROM debian\nWORKDIR /app\nRUN bash -c \"echo 'a\\nb' > f\"\n", "cat f"), "a\\nb\n");
}

TEST_F(Dockerfile, the_old_form_of_ENV_takes_quotes_off) {
  EXPECT_EQ(run(kInApp + "ENV X \"a  b\" c=d\nENV Y '$X'\nENV Z $X \\$X\n", "echo \"$X|$Y|$Z\""),
            "a  b c=d|$X|a  b c=d $X\n");
}

TEST_F(Dockerfile, a_backslash_of_ENV_takes_the_next_letter_as_it_is) {
  EXPECT_EQ(run(kInApp + "ENV V=1\nENV A=\\\\$V B=\\$V C=\"\\\\$V\" D='\\$V' E=\"a\\b\" F=a\\b\n",
                "printf '%s|' \"$A\" \"$B\" \"$C\" \"$D\" \"$E\" \"$F\""),
            "\\1|$V|\\1|\\$V|a\\b|ab|\n");
  EXPECT_EQ(run("# escape=`\n" + kInApp + "ENV A=C:\\dir\\x B=`$A C=\"\\$A\"\n", "printf '%s|' \"$A\" \"$B\" \"$C\""),
            "C:\\dir\\x|$A|\\|\n");
}

TEST_F(Dockerfile, what_docker_refuses_in_ENV_and_ARG_is_refused_by_line) {
  const std::pair<const char*, const char*> cases[] = {
      {"ENV A=\"x", "Dockerfile:3: ENV: a quote (\") has no end"},
      {"ENV A 'x", "Dockerfile:3: ENV: a quote (') has no end"},
      {"ARG A=\"x", "Dockerfile:3: ARG: a quote (\") has no end"},
      {"ENV A=b C", "Dockerfile:3: ENV: C has no \"=\""},
      {"ENV A", "Dockerfile:3: ENV: A has no value"},
      {"ENV", "Dockerfile:3: ENV: names no variable"},
      {"ARG", "Dockerfile:3: ARG: names no variable"},
  };
  for (const auto& [line, why] : cases) EXPECT_THAT(run(kInApp + line + "\n", "true"), HasSubstr(why)) << line;
}

TEST_F(Dockerfile, lines_are_joined_without_a_space) {
  EXPECT_EQ(run(kInApp + "RUN printf 'ab\\\ncd' > f\nENV P=/app/a:\\\n# c\n\n/app/b\nRUN printf 'x\\\n  y' >> f\n",
                "cat f; echo \" $P\""),
            "abcdx  y /app/a:/app/b\n");
}

TEST_F(Dockerfile, a_text_in_place_is_given_to_the_program_that_is_named) {
  EXPECT_EQ(
      run(kInApp + "RUN <<EOT cat > p.txt\necho a\nEOT\nRUN <<EOT bash\necho b > q.txt\nEOT\n", "cat p.txt q.txt"),
      "echo a\nb\n");
  EXPECT_THAT(
      run(kInApp + "RUN <<EOT python3\nimport urllib.request as r\nr.urlopen('https://a.example/b')\nEOT\n", ""),
      HasSubstr("Dockerfile:3: RUN: "));
}

TEST_F(Dockerfile, arguments_of_the_platform_are_those_of_this_machine) {
  const auto mine = machine_architecture();
  EXPECT_EQ(
      run("ARG TARGETARCH\n" + kInApp +
              "RUN echo [$TARGETARCH] > f\nARG TARGETARCH TARGETOS TARGETPLATFORM TARGETVARIANT\nARG BUILDARCH=no\n"
              "ENV A=$BUILDARCH:$TARGETPLATFORM\nRUN echo $TARGETOS $TARGETARCH [$TARGETVARIANT] >> f\n",
          "cat f; echo $A [$TARGETOS]"),
      "[]\nlinux " + mine + " []\nno:linux/" + mine + " []\n");
}

TEST(DockerfileRun, a_package_of_this_machines_architecture_is_the_plain_one) {
  const auto mine = machine_architecture();
  EXPECT_THAT(docker_run("apt-get install -y gcc:" + mine + " g++:native jq:any=1.2 make:s390x").packages,
              ElementsAre("gcc", "g++", "jq", "make:s390x"));
}

}  // namespace
}  // namespace tandem::envs
