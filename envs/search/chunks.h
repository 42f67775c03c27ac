// A file cut into pieces that a sentence encoder can read one at a time, along what its lines show of its structure.
//
// No grammar is needed: blank lines, indentation, or braces where a file is not indented, closing lines and the
// comments above a definition say where one thing ends and the next begins. Things that fit together into a piece share
// one, a thing that does not fit is cut into what it is made of, and its pieces carry the lines that open it ("class
// Server:") as their scope. Headings cut documents.
//
// A pure function of name and text: the same text gives the same pieces, and an edit changes those around it alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::envs {

inline constexpr size_t kChunkBytes = 1000;   // of a piece, about: what an encoder for 256 tokens takes of code
inline constexpr uint32_t kChunkVersion = 1;  // one more whenever the same text would be cut in another way

struct Chunk {
  uint32_t first_line = 1, last_line = 1;  // counted from 1, inclusive
  std::string_view text;                   // of the file's text, which outlives it
  std::string scope;                       // the lines that open what it lies in, outermost first, one a line
};

// In the order of the text, none empty; blank lines between them belong to none. Texts of any bytes.
std::vector<Chunk> cut_into_chunks(std::string_view path, std::string_view text);

}  // namespace tandem::envs
