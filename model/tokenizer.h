// Text to token ids and back, as HF `tokenizers` does it from the same tokenizer.json.
//
// Read: byte-level BPE, character BPE with byte fallback, WordPiece and Unigram, with their normalisers,
// pre-tokenizers, added tokens, template post-processors and decoders. What would change an id and is not implemented
// is refused by name when the file is read. `truncation` and `padding` are passed over, as transformers does: they are
// the caller's.
//
// Thread safety: const methods from any thread. A StreamDecoder belongs to one thread and must not outlive its
// Tokenizer.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/file.h"
#include "model/added_tokens.h"
#include "model/bpe.h"
#include "model/normalizer.h"
#include "model/pre_tokenizer.h"
#include "model/token.h"
#include "model/unigram.h"
#include "model/word_piece.h"

namespace tandem::model {

// Tokens that the post-processor adds, such as a begin token. Special tokens that are written in the text are
// recognised anyway.
enum class AddSpecial : uint8_t { kNo, kYes };

struct Encoded {
  std::vector<TokenId> ids;
  std::vector<size_t> ends;  // by token: the byte of the text that it ends before; where a normaliser changed the text,
                             // the nearest one within the characters that were changed together
};

class Tokenizer {
 public:
  // DIR/tokenizer.json, or the file itself.
  static Result<Tokenizer> load(const fs::path& directory_or_file);
  static Result<Tokenizer> from_json(std::string_view text);

  // Bytes that are not UTF-8 count as U+FFFD. Fails only where a regular expression of the file backtracks without end,
  // or where one that is to be replaced matches nothing.
  Result<std::vector<TokenId>> encode(std::string_view text, AddSpecial add_special = AddSpecial::kNo) const;

  // The ids of a text with what the post-processor adds around them, and how many it adds.
  std::vector<TokenId> with_special(std::span<const TokenId> ids) const;
  size_t special_count() const { return before_.size() + after_.size(); }

  // The ids without what the post-processor adds, and where each token ends. `text` must be UTF-8. What overlaps one of
  // the places `plain`, in order, is no special token, whatever it says.
  using Places = AddedTokenFinder::Places;
  Result<Encoded> encode_with_ends(std::string_view text, Places plain = {}) const;

  // The special tokens as they stand in a text, none empty.
  std::vector<std::string> special_texts() const;

  // Special tokens are kept; ids that no token has are left out; bytes that are not UTF-8 become U+FFFD.
  std::string decode(std::span<const TokenId> ids) const;

  // The bytes that a token adds to a text; empty for an unknown id.
  std::string_view bytes_of(TokenId id) const;

  // The id of a token by its text as tokenizer.json writes it ("<|im_end|>").
  std::optional<TokenId> find(std::string_view token) const;
  // As tokenizer.json writes it; empty for an unknown id.
  std::string_view name_of(TokenId id) const;
  bool is_special(TokenId id) const;

  // One more than the largest id.
  int size() const { return static_cast<int>(names_.size()); }

 private:
  friend class TokenizerReader;
  friend class StreamDecoder;
  using Model = std::variant<Bpe, WordPiece, Unigram>;
  explicit Tokenizer(Model model) : model_(std::move(model)) {}
  // `begin`: of `text` in the whole; `out.ends` is filled only where `with_ends`.
  Status encode_part(std::string_view text, size_t begin, bool with_ends, RegexScratch& scratch, Encoded& out) const;
  // `at_start`: it begins where the whole text does.
  Status encode_normalized(std::string_view text, bool at_start, bool with_ends, RegexScratch& scratch,
                           Encoded& out) const;
  Result<Encoded> encode_all(std::string_view text, bool with_ends, Places plain) const;
  Status encode_plain_part(std::string_view text, size_t begin, Places plain, RegexScratch& scratch,
                           Encoded& out) const;

  Model model_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  AddedTokenFinder raw_tokens_;         // looked for in the text as it came
  AddedTokenFinder normalized_tokens_;  // looked for in the normalised text
  std::vector<std::string> names_;      // by id
  std::vector<std::string> bytes_;      // by id: what it decodes to
  std::vector<std::string> opening_;    // by id: what it decodes to as the first token; empty where that is the same
  std::vector<bool> special_;           // by id
  std::map<std::string, TokenId, std::less<>> ids_;
  std::vector<TokenId> before_;  // added by the post-processor
  std::vector<TokenId> after_;
  bool strip_leading_space_ = false;  // of a decoded text
  std::vector<bool> byte_tokens_;     // by id, where single bytes have tokens of their own (byte fallback); else empty
};

// Text of tokens as they come, in whole characters: what push and finish return, put together, is decode of all ids.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

  // Returns the text that is certain by now. Held back are the bytes of an unfinished character, at most three; with
  // byte fallback a row of byte tokens, since it is text only where all of it is UTF-8.
  std::string push(TokenId id);
  // The rest; an unfinished character becomes U+FFFD.
  std::string finish();

 private:
  std::string take_byte_row();
  std::string without_leading_space(std::string text);
  const Tokenizer* tokenizer_;
  std::string pending_;
  bool begun_ = false;
};

}  // namespace tandem::model
