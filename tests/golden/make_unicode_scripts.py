"""Writes model/unicode_scripts.cpp: which script each character has for the pre-tokenizer UnicodeScripts.

    python tests/golden/make_unicode_scripts.py

Asks HF tokenizers about each character: two belong to one script where it does not cut between them. Needs the
`tokenizers` package.
"""
import pathlib

from tokenizers import pre_tokenizers

HEAD = """#include "model/unicode_scripts.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace tandem::model {
namespace {

// By tests/golden/make_unicode_scripts.py. A character has the script of the last entry that is not behind it; 0: any.
constexpr std::pair<char32_t, uint8_t> kScripts[] = {
    // clang-format off
"""
TAIL = """    // clang-format on
};

}  // namespace

uint8_t script_of(char32_t character) {
  const auto* next = std::upper_bound(std::begin(kScripts), std::end(kScripts), character,
                                      [](char32_t value, const auto& entry) { return value < entry.first; });
  return std::prev(next)->second;
}

}  // namespace tandem::model
"""


def main():
    scripts = pre_tokenizers.UnicodeScripts()
    cut = lambda a, b: len(scripts.pre_tokenize_str(a + b)) > 1
    known, runs = [], []
    for code in range(0x110000):
        if 0xD800 <= code <= 0xDFFF:
            continue
        character = chr(code)
        # Two of different scripts, neither of which is cut from it: it has none.
        if not cut("a", character) and not cut("я", character):
            number = 0
        elif runs and runs[-1][1] and not cut(known[runs[-1][1] - 1], character):
            number = runs[-1][1]
        else:
            number = next((i + 1 for i, other in enumerate(known) if not cut(other, character)), 0)
            if number == 0:
                known.append(character)
                number = len(known)
        if not runs or runs[-1][1] != number:
            runs.append((code, number))
    text, line = HEAD, "    "
    for code, number in runs:
        entry = f"{{{code:#x}, {number}}}, "
        if len(line) + len(entry) > 119:
            text += line.rstrip() + "\n"
            line = "    "
        line += entry
    (pathlib.Path(__file__).parents[2] / "model/unicode_scripts.cpp").write_text(text + line.rstrip() + "\n" + TAIL)


if __name__ == "__main__":
    main()
