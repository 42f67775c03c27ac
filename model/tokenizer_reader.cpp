// tokenizer.json into a Tokenizer. Everything that the file says is looked at: a part that is unknown is refused by
// name.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "base/utf8.h"
#include "model/byte_alphabet.h"
#include "model/token_decoder.h"
#include "model/tokenizer.h"

namespace tandem::model {
namespace {

constexpr uint64_t kLargestFile = 512 << 20;
constexpr int64_t kLargestId = (1 << 24) - 1;

const Json kNull;

const Json& part(const Json& json, const char* key) {
  const auto found = json.is_object() ? json.find(key) : json.end();
  return found == json.end() ? kNull : *found;
}

Result<std::string> text(const Json& json, const char* key) {
  const Json& value = part(json, key);
  if (!value.is_string()) return fail(Status::invalid(fmt::format("{} is not a string", key)));
  return value.get<std::string>();
}

Result<TokenId> token_id(const Json& value) {
  if (!value.is_number_integer() || value.get<int64_t>() < 0 || value.get<int64_t>() > kLargestId) {
    return fail(Status::invalid(fmt::format("id {} is not a number from 0 to {}", value.dump(), kLargestId)));
  }
  return static_cast<TokenId>(value.get<int64_t>());
}

}  // namespace

class TokenizerReader {
 public:
  explicit TokenizerReader(const Json& json) : json_(json) {}

  Result<Tokenizer> read() {
    if (!json_.is_object()) return fail(Status::invalid("is not an object"));
    auto pre_tokenizer = TRY(PreTokenizer::from_json(part(json_, "pre_tokenizer")));
    auto normalizer = TRY(Normalizer::from_json(part(json_, "normalizer")));
    byte_level_ = pre_tokenizer.byte_level();
    TRY(check_start(pre_tokenizer, normalizer));
    const TokenDecoder decoder = TRY(TokenDecoder::from_json(part(json_, "decoder")));
    auto model = read_model(part(json_, "model"));
    if (!model) return fail(std::move(model).error().at("model"));
    Tokenizer tokenizer(std::move(*model));
    tokenizer.pre_tokenizer_ = std::move(pre_tokenizer);
    tokenizer.normalizer_ = std::move(normalizer);
    tokenizer.strip_leading_space_ = decoder.strips_leading_space();
    TRY(read_added(part(json_, "added_tokens"), tokenizer));
    TRY(read_post_processor(part(json_, "post_processor"), tokenizer));
    for (size_t id = 0; id < names_.size(); ++id) {
      const auto normalized = normalized_contents_.find(static_cast<TokenId>(id));
      const std::string& name = normalized == normalized_contents_.end() ? names_[id] : normalized->second;
      tokenizer.bytes_.push_back(decoder.text_of(name));
      if (auto opening = decoder.opening_of(name)) tokenizer.opening_.push_back(std::move(*opening));
      if (decoder.byte_fallback()) tokenizer.byte_tokens_.push_back(decoder.is_byte(names_[id]));
      if (!names_[id].empty()) tokenizer.ids_[names_[id]] = static_cast<TokenId>(id);
    }
    tokenizer.names_ = std::move(names_);
    tokenizer.special_.resize(tokenizer.names_.size());
    return tokenizer;
  }

 private:
  // Which piece counts as the first depends, in HF, on where its first character came from.
  static Status check_start(const PreTokenizer& pre_tokenizer, const Normalizer& normalizer) {
    const auto& metaspace = pre_tokenizer.metaspace();
    if (!metaspace || metaspace->prepend != Metaspace::Prepend::kFirst || normalizer.empty()) return {};
    if (normalizer.keeps_start() && !pre_tokenizer.cuts_before_metaspace()) return {};
    return Status::invalid(
        "pre_tokenizer: Metaspace with prepend_scheme first is not supported behind a normalizer that may remove how a "
        "text begins, or behind a normalizer and another step");
  }

  void set_name(TokenId id, std::string name) {
    if (static_cast<size_t>(id) >= names_.size()) names_.resize(id + 1);
    names_[id] = std::move(name);
  }

  Result<Tokenizer::Model> read_model(const Json& model) {
    const Json& type = part(model, "type");
    if (type == "WordPiece") return TRY(read_word_piece(model));
    if (type == "WordLevel") return TRY(read_word_level(model));
    if (type == "Unigram") {
      if (byte_level_) return fail(Status::invalid("Unigram behind ByteLevel is not supported"));
      auto unigram = TRY(Unigram::from_json(model));
      names_ = unigram.tokens();
      return unigram;
    }
    if (type != "BPE" && !(type.is_null() && model.contains("merges"))) {
      return fail(Status::invalid(
          fmt::format("type {} is not supported; BPE, WordPiece, WordLevel and Unigram are", type.dump())));
    }
    return TRY(read_bpe(model));
  }

  // Fills `names_`.
  Status read_vocabulary(const Json& model) {
    const Json& vocabulary = part(model, "vocab");
    if (!vocabulary.is_object() || vocabulary.empty()) return Status::invalid("vocab is not an object with tokens");
    for (const auto& [name, value] : vocabulary.items()) {
      const TokenId id = TRY(token_id(value));
      if (static_cast<size_t>(id) < names_.size() && !names_[id].empty()) {
        return Status::invalid(fmt::format("vocab: {} and {} both have the id {}", names_[id], name, id));
      }
      set_name(id, name);
    }
    return {};
  }

  Result<WordPiece> read_word_piece(const Json& model) {
    if (byte_level_) return fail(Status::invalid("WordPiece behind ByteLevel is not supported"));
    TRY(read_vocabulary(model));
    WordPiece::Options options;
    const auto string_or = [&](const char* key, const char* otherwise) -> Result<std::string> {
      return part(model, key).is_null() ? std::string(otherwise) : TRY(text(model, key));
    };
    options.prefix = TRY(string_or("continuing_subword_prefix", "##"));
    options.unknown = TRY(unknown_token(TRY(string_or("unk_token", "[UNK]"))));
    const Json& most = part(model, "max_input_chars_per_word");
    if (!most.is_null()) {
      if (!most.is_number_unsigned()) {
        return fail(Status::invalid(fmt::format("max_input_chars_per_word is {}, not a whole number", most.dump())));
      }
      options.max_characters = most.get<size_t>();
    }
    return WordPiece(names_, std::move(options));
  }

  Result<WordPiece> read_word_level(const Json& model) {
    if (byte_level_) return fail(Status::invalid("WordLevel behind ByteLevel is not supported"));
    TRY(read_vocabulary(model));
    const TokenId unknown = TRY(unknown_token(TRY(text(model, "unk_token"))));
    return WordPiece(names_, {.unknown = unknown, .whole_words = true});
  }

  Result<TokenId> unknown_token(const std::string& name) const {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end()) return fail(Status::invalid(fmt::format("unk_token {} is not in vocab", name)));
    return static_cast<TokenId>(found - names_.begin());
  }

  Result<Bpe> read_bpe(const Json& model) {
    const Json& dropout = part(model, "dropout");
    if (!dropout.is_null() && dropout != 0) return fail(Status::invalid("dropout would make ids random"));
    for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      if (!part(model, affix).is_null() && part(model, affix) != "") {
        return fail(Status::invalid(fmt::format("{} is not supported", affix)));
      }
    }
    TRY(read_vocabulary(model));
    const Json& vocabulary = part(model, "vocab");
    std::vector<std::string> tokens(names_.size());
    const auto id_of = [&](const std::string& name) -> TokenId {
      const auto found = vocabulary.find(name);
      return found == vocabulary.end() ? -1 : found->template get<TokenId>();
    };
    for (size_t id = 0; id < names_.size(); ++id) {
      // Names outside the alphabet of bytes are reached by no merge; they are added tokens.
      tokens[id] = byte_level_ ? alphabet_.bytes_of(names_[id]).value_or("") : names_[id];
    }
    Bpe::Options options{.byte_level = byte_level_};
    options.ignore_merges = TRY(bool_at(model, "ignore_merges", false));
    options.byte_fallback = TRY(bool_at(model, "byte_fallback", false));
    options.fuse_unknown = TRY(bool_at(model, "fuse_unk", false));
    if (!part(model, "unk_token").is_null()) {
      const std::string unknown = TRY(text(model, "unk_token"));
      const TokenId id = id_of(unknown);
      if (id < 0) return fail(Status::invalid(fmt::format("unk_token {} is not in vocab", unknown)));
      options.unknown = id;
    }
    std::vector<TokenId> byte_tokens(256, -1);
    const auto characters = byte_characters();
    for (int byte = 0; byte < 256; ++byte) {
      std::string name;
      if (byte_level_) {
        append_utf8(characters[byte], name);
      } else {
        name = fmt::format("<0x{:02X}>", byte);
      }
      byte_tokens[byte] = id_of(name);
      // HF tokenizers takes the name apart then.
      const bool falls_back =
          byte_level_ && options.byte_fallback && byte_tokens[byte] < 0 && std::ranges::all_of(name, [&](char part) {
            return id_of(fmt::format("<0x{:02X}>", static_cast<uint8_t>(part))) >= 0;
          });
      if (falls_back)
        return fail(Status::invalid(
            fmt::format("byte_fallback behind ByteLevel, of {}, which vocab does not have, is not supported", name)));
    }
    const std::vector<Bpe::Merge> merges = TRY(read_merges(part(model, "merges"), id_of));
    return Bpe(std::move(tokens), merges, std::move(byte_tokens), options);
  }

  template <typename IdOf>
  Result<std::vector<Bpe::Merge>> read_merges(const Json& json, const IdOf& id_of) {
    if (!json.is_array()) return fail(Status::invalid("merges is not a list"));
    std::vector<Bpe::Merge> merges;
    merges.reserve(json.size());
    for (const Json& item : json) {
      std::string left;
      std::string right;
      if (item.is_string()) {
        const auto& both = item.get_ref<const std::string&>();
        const size_t space = both.find(' ');
        left = both.substr(0, space);
        if (space != std::string::npos) right = both.substr(space + 1);
      } else if (item.is_array() && item.size() == 2 && item[0].is_string() && item[1].is_string()) {
        left = item[0].get<std::string>();
        right = item[1].get<std::string>();
      }
      const Bpe::Merge merge{id_of(left), id_of(right), id_of(left + right)};
      if (merge.left < 0 || merge.right < 0 || merge.merged < 0) {
        return fail(Status::invalid(
            fmt::format("merges[{}] ({}) is not of two tokens to a third", merges.size(), item.dump())));
      }
      merges.push_back(merge);
    }
    return merges;
  }

  Status read_added(const Json& json, Tokenizer& tokenizer) {
    if (json.is_null()) return {};
    if (!json.is_array()) return Status::invalid("added_tokens is not a list");
    std::vector<AddedToken> tokens;
    std::unordered_map<std::string, TokenId> vocabulary;
    for (size_t id = 0; id < names_.size(); ++id)
      if (!names_[id].empty()) vocabulary[names_[id]] = static_cast<TokenId>(id);
    const auto vocabulary_size = static_cast<TokenId>(vocabulary.size());
    TokenId next = vocabulary_size;
    for (const Json& item : json) {
      const auto place = fmt::format("added_tokens[{}]", tokens.size());
      auto read = read_added_token(item);
      if (!read) return std::move(read).error().at(place);
      // As HF's AddedVocabulary numbers them: a token that is there has its id, any other the next one, whatever the
      // file says.
      const auto known = vocabulary.find(read->content);
      read->id = known != vocabulary.end() ? known->second : next;
      next = std::max(next, read->id >= vocabulary_size ? read->id + 1 : next);
      vocabulary.emplace(read->content, read->id);
      if (static_cast<size_t>(read->id) < names_.size() && !names_[read->id].empty() &&
          names_[read->id] != read->content) {
        return Status::invalid(fmt::format("id {} is that of {}, not of {}", read->id, names_[read->id], read->content))
            .at(place);
      }
      set_name(read->id, read->content);
      tokens.push_back(std::move(*read));
    }
    tokenizer.special_.assign(names_.size(), false);
    for (const AddedToken& token : tokens) {
      tokenizer.special_[token.id] = token.special;
      if (token.normalized) {
        // HF decodes such a token to what it looks for, not to its content.
        const auto& pattern = normalized_contents_[token.id] = TRY(tokenizer.normalizer_.apply(token.content));
        tokenizer.normalized_tokens_.add(token, pattern);
      } else {
        tokenizer.raw_tokens_.add(token, token.content);
      }
    }
    return {};
  }

  Result<AddedToken> read_added_token(const Json& item) {
    AddedToken token;
    token.id = TRY(token_id(part(item, "id")));
    token.content = TRY(text(item, "content"));
    if (token.content.empty()) return fail(Status::invalid("content is empty"));
    token.single_word = TRY(bool_at(item, "single_word", false));
    token.lstrip = TRY(bool_at(item, "lstrip", false));
    token.rstrip = TRY(bool_at(item, "rstrip", false));
    token.special = TRY(bool_at(item, "special", false));
    token.normalized = TRY(bool_at(item, "normalized", !token.special));
    return token;
  }

  // What a post-processor hands on, part by part: ids that were added, or the text.
  struct Part {
    bool is_text = false;
    std::vector<TokenId> before, after;  // around the text, of one that is it; `before` alone of others
  };

  Status read_post_processor(const Json& json, Tokenizer& tokenizer) {
    std::vector<Part> parts = {{.is_text = true}};
    TRY(post_process(json, parts));
    const auto is_text = [](const Part& part) { return part.is_text; };
    const auto text = std::find_if(parts.begin(), parts.end(), is_text);
    if (std::count_if(parts.begin(), parts.end(), is_text) != 1)
      return Status::invalid(text == parts.end()
                                 ? "post_processor: the text is left out"
                                 : "post_processor: the text stands twice in it, which is not supported");
    for (auto part = parts.begin(); part != parts.end(); ++part) {
      auto& target = part <= text ? tokenizer.before_ : tokenizer.after_;
      target.insert(target.end(), part->before.begin(), part->before.end());
      tokenizer.after_.insert(tokenizer.after_.end(), part->after.begin(), part->after.end());
    }
    return {};
  }

  // As HF's process_encodings: what one processor has made of a text is several texts to the next.
  Status post_process(const Json& json, std::vector<Part>& parts) {
    if (json.is_null()) return {};
    const std::string type = TRY(text(json, "type"));
    if (type == "ByteLevel") return {};  // moves offsets, not ids
    if (type == "Sequence") {
      if (!part(json, "processors").is_array()) return Status::invalid("post_processor: Sequence has no processors");
      for (const Json& inner : part(json, "processors")) TRY(post_process(inner, parts));
      return {};
    }
    if (type == "TemplateProcessing") return fill_template(json, parts);
    if (type != "RobertaProcessing" && type != "BertProcessing")
      return Status::invalid(fmt::format("post_processor: type {} is not supported", type));
    const TokenId begin = TRY(special_id(json, "cls")), end = TRY(special_id(json, "sep"));
    for (size_t i = 0; i < parts.size(); ++i) {
      Part& each = parts[i];
      if (i == 0) each.before.insert(each.before.begin(), begin);
      if (i > 0 && type == "RobertaProcessing") each.before.insert(each.before.begin(), end);
      (each.is_text ? each.after : each.before).push_back(end);
    }
    return {};
  }

  static Result<TokenId> special_id(const Json& json, const char* key) {
    const Json& pair = part(json, key);
    if (!pair.is_array() || pair.size() != 2)
      return fail(Status::invalid(fmt::format("post_processor: {} is not a pair", key)));
    return token_id(pair[1]);
  }

  Status fill_template(const Json& json, std::vector<Part>& parts) {
    if (parts.size() > 2)
      return Status::invalid("post_processor: a template behind others that make more than two parts is not supported")
          .hint("HF tokenizers fails at every text with it");
    const char* key = parts.size() == 2 ? "pair" : "single";
    if (!part(json, key).is_array()) return Status::invalid(fmt::format("post_processor: {} is not a list", key));
    std::vector<Part> filled;
    for (const Json& item : part(json, key)) {
      if (item.is_object() && item.contains("Sequence")) {
        const bool second = part(part(item, "Sequence"), "id") == "B";
        if (second && parts.size() == 1) return Status::invalid("post_processor: single has a second text");
        filled.push_back(parts[second ? 1 : 0]);
        continue;
      }
      const std::string name = TRY(text(part(item, "SpecialToken"), "id"));
      const Json& ids = part(part(part(json, "special_tokens"), name.c_str()), "ids");
      if (!ids.is_array()) return Status::invalid(fmt::format("post_processor: {} has no ids", name));
      Part added;
      for (const Json& id : ids) added.before.push_back(TRY(token_id(id)));
      filled.push_back(std::move(added));
    }
    parts = std::move(filled);
    return {};
  }

  const Json& json_;
  ByteAlphabet alphabet_;
  bool byte_level_ = false;
  std::vector<std::string> names_;
  std::map<TokenId, std::string> normalized_contents_;  // of added tokens
};

Result<Tokenizer> Tokenizer::from_json(std::string_view text) {
  const Json json = TRY(parse_json(text));
  return TokenizerReader(json).read();
}

Result<Tokenizer> Tokenizer::load(const fs::path& path) {
  std::error_code ignored;
  const fs::path file = fs::is_directory(path, ignored) ? path / "tokenizer.json" : path;
  if (!fs::exists(file, ignored)) {
    return fail(
        Status::not_found("has no tokenizer.json")
            .at(path.string())
            .hint(
                "save the fast tokenizer beside the model: AutoTokenizer.from_pretrained(NAME).save_pretrained(DIR)"));
  }
  auto tokenizer = from_json(TRY(read_file(file, kLargestFile)));
  if (!tokenizer) return fail(std::move(tokenizer).error().at(file.string()));
  return tokenizer;
}

}  // namespace tandem::model
