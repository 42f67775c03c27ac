#!/usr/bin/env bash
# scripts/check-layers is content with the tree as it is, and sees in a copy of it what is planted there.
#   tests/layers_test.sh SOURCE
set -euo pipefail
cd "$1"
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

scripts/check-layers

folders=$(sed -n 's/^\([a-z_]*\)[:/].*/\1/p' cmake/layers.txt | sort -u)
mkdir "$copy/cmake" "$copy/docs"
cp -r $folders "$copy"
cp cmake/layers.txt "$copy/cmake"
cp docs/files.md "$copy/docs"
cp ARCHITECTURE.md "$copy"

# expect PLANT WORDS: after the command PLANT, run in the copy, there is one finding, which has the words; then all is as before.
expect() {
  local found
  (cd "$copy" && eval "$1")
  if found=$(scripts/check-layers "$copy" 2>&1); then
    echo "not seen: $1" >&2
    exit 1
  fi
  if [[ $(wc -l <<<"$found") != 1 || $found != *"$2"* ]]; then
    printf 'after: %s\nexpected one line with: %s\nfound:\n%s\n' "$1" "$2" "$found" >&2
    exit 1
  fi
  rm -rf "$copy/tests"
  cp -r envs "$copy"
  cp cmake/layers.txt "$copy/cmake"
  cp docs/files.md "$copy/docs"
  cp ARCHITECTURE.md "$copy"
}

expect "echo '#include \"envs/sandbox/sandbox.h\"' >>envs/tools/glob.cpp" \
  "envs/tools/glob.cpp:$(($(wc -l <envs/tools/glob.cpp) + 1)): includes \"envs/sandbox/sandbox.h\" of envs/sandbox, which lies above"
expect "echo '#include \"envs/search/words.h\"' >>envs/server/server.cpp" "and envs/server may not include envs/search"
expect "echo '#include \"files.h\"' >>envs/sandbox/layers.h" "in no folder of cmake/layers.txt"
expect "echo '#include \"envs/sandbox/sandbox.h\"' >>envs/sandbox/files.h" "closes a circle of headers"
expect "echo '#include \"model/panels.h\"' >>envs/search/words.cpp" "which is private to model"
expect "echo 'const char* kPort = \"tcp://127.0.0.1:1\";' >>envs/server/server.cpp" "writes tcp:// itself"
expect "echo 'auto a = format(\"at ipc://{}\", b);' >>envs/server/server.cpp" "writes ipc:// itself"
expect "echo 'Result<A> f() { return A{.a = text(), .b = {1, TRY(number())}}; }' >>envs/server/server.cpp" "TRY behind another value in braces"
expect "mkdir -p tests && echo 'const fs::path folder = fs::path(testing::TempDir()) / \"mine\";' >tests/a_test.cpp" "tests/a_test.cpp:1: a folder of a fixed name"
expect "sed -i 1s/^/anything\\\\n/ docs/files.md" "docs/files.md:1: is not as the sources"
expect "sed -i '/^| .envs.tools/s/.base./\`base\` \`wire\`/' ARCHITECTURE.md" "run scripts/check-layers --write"
expect "sed -i 's/^envs.network: base/envs\\/network: base wires/' cmake/layers.txt" "wires does not stand above envs/network"
echo "every planted fault was seen"
