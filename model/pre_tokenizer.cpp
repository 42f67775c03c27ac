#include "model/pre_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/utf8.h"
#include "model/bert_characters.h"
#include "model/byte_alphabet.h"
#include "model/unicode16.h"
#include "model/unicode_scripts.h"

namespace tandem::model {
namespace {

constexpr const char* kByteLevelRegex = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// A stretch of text and whether it is a delimiter, an empty one where a pattern matches nothing between two characters.
// Turned into pieces as HF's SplitDelimiterBehavior says.
struct Stretch {
  std::string_view text;
  bool delimiter = false;
};

std::string_view joined(std::string_view a, std::string_view b) { return {a.data(), a.size() + b.size()}; }

void emit(const std::vector<Stretch>& stretches, Behavior behavior, std::vector<std::string_view>& out) {
  const size_t first = out.size();
  for (size_t i = 0; i < stretches.size(); ++i) {
    const auto& [text, delimiter] = stretches[i];
    const bool previous_delimiter = i > 0 && stretches[i - 1].delimiter;
    bool join = false;
    switch (behavior) {
      case Behavior::kIsolated:
        break;
      case Behavior::kRemoved:
        if (delimiter) continue;
        break;
      case Behavior::kContiguous:
        join = delimiter == previous_delimiter;
        break;
      case Behavior::kMergedWithPrevious:
        join = delimiter && !previous_delimiter;
        break;
      case Behavior::kMergedWithNext:
        join = !delimiter && previous_delimiter;
        break;
    }
    if (join && i > 0)
      out.back() = joined(out.back(), text);
    else
      out.push_back(text);
  }
  // Only now, since an empty stretch parts what it stands between.
  const auto begin = out.begin() + static_cast<std::ptrdiff_t>(first);
  out.erase(std::remove_if(begin, out.end(), [](std::string_view piece) { return piece.empty(); }), out.end());
}

class RegexSplit final : public PreTokenizerStep {
 public:
  RegexSplit(Regex regex, Behavior behavior, bool invert)
      : regex_(std::move(regex)), behavior_(behavior), invert_(invert) {}

  Status cut(std::string_view piece, RegexScratch& scratch, std::vector<std::string_view>& out) const override {
    std::vector<Stretch> stretches;
    const bool isolated = behavior_ == Behavior::kIsolated;  // the common case needs no list
    const auto add = [&](size_t begin, size_t end, bool match) {
      if (begin == end && (isolated || !match)) return;
      const auto text = piece.substr(begin, end - begin);
      if (isolated) {
        out.push_back(text);
      } else {
        stretches.push_back({text, match != invert_});
      }
    };
    size_t from = 0;
    size_t covered = 0;
    std::optional<size_t> last_end;  // of a match
    while (from <= piece.size()) {
      const Regex::Match match = TRY(regex_.find(piece, from, scratch));
      if (!match.found) break;
      const bool nothing = match.begin == match.end;
      if (!nothing || match.begin != last_end) {  // Oniguruma's search takes no empty match right behind another match
        add(covered, match.begin, false);
        add(match.begin, match.end, true);
        covered = match.end;
        last_end = match.end;
      }
      from = match.end;
      if (!nothing) continue;
      if (from >= piece.size()) break;
      from += next_character(piece.substr(from)).length;  // behind the next character, where it does not match again
    }
    add(covered, piece.size(), false);
    if (!isolated) emit(stretches, behavior_, out);
    return {};
  }

 private:
  Regex regex_;
  Behavior behavior_;
  bool invert_;
};

class TextSplit final : public PreTokenizerStep {
 public:
  TextSplit(std::string delimiter, Behavior behavior, bool invert)
      : delimiter_(std::move(delimiter)), behavior_(behavior), invert_(invert) {}

  Status cut(std::string_view piece, RegexScratch&, std::vector<std::string_view>& out) const override {
    std::vector<Stretch> stretches;
    size_t from = 0;
    while (from < piece.size()) {
      const size_t found = std::min(piece.find(delimiter_, from), piece.size());
      if (found > from) stretches.push_back({piece.substr(from, found - from), invert_});
      if (found < piece.size()) stretches.push_back({piece.substr(found, delimiter_.size()), !invert_});
      from = found + delimiter_.size();
    }
    emit(stretches, behavior_, out);
    return {};
  }

 private:
  std::string delimiter_;
  Behavior behavior_;
  bool invert_;
};

// Cuts by a property of single characters.
class CharacterSplit final : public PreTokenizerStep {
 public:
  CharacterSplit(std::function<bool(char32_t)> delimits, Behavior behavior)
      : delimits_(std::move(delimits)), behavior_(behavior) {}

  Status cut(std::string_view piece, RegexScratch&, std::vector<std::string_view>& out) const override {
    std::vector<Stretch> stretches;
    for (size_t at = 0; at < piece.size();) {
      const Utf8Step step = next_character(piece.substr(at));
      const bool delimiter = delimits_(step.character);
      const auto text = piece.substr(at, step.length);
      if (!delimiter && !stretches.empty() && !stretches.back().delimiter) {
        stretches.back().text = joined(stretches.back().text, text);
      } else {
        stretches.push_back({text, delimiter});
      }
      at += step.length;
    }
    emit(stretches, behavior_, out);
    return {};
  }

 private:
  std::function<bool(char32_t)> delimits_;
  Behavior behavior_;
};

Status cut_in_turn(const std::vector<std::unique_ptr<PreTokenizerStep>>& steps, std::string_view text,
                   RegexScratch& scratch, std::vector<std::string_view>& out) {
  std::vector<std::string_view> pieces = {text};
  for (size_t i = 0; i < steps.size(); ++i) {
    std::vector<std::string_view> finer;
    std::vector<std::string_view>& target = i + 1 == steps.size() ? out : finer;
    for (const std::string_view piece : pieces) TRY(steps[i]->cut(piece, scratch, target));
    pieces = std::move(finer);
  }
  return {};
}

class InTurn final : public PreTokenizerStep {
 public:
  explicit InTurn(std::vector<std::unique_ptr<PreTokenizerStep>> steps) : steps_(std::move(steps)) {}
  Status cut(std::string_view piece, RegexScratch& scratch, std::vector<std::string_view>& out) const override {
    return cut_in_turn(steps_, piece, scratch, out);
  }

 private:
  std::vector<std::unique_ptr<PreTokenizerStep>> steps_;
};

// A step behind ByteLevel, which sees each byte as its printable character.
class OnByteCharacters final : public PreTokenizerStep {
 public:
  explicit OnByteCharacters(std::unique_ptr<PreTokenizerStep> inner) : inner_(std::move(inner)) {}

  Status cut(std::string_view piece, RegexScratch& scratch, std::vector<std::string_view>& out) const override {
    std::string written;
    std::vector<size_t> bytes;  // by place in `written`: how many bytes of the piece stand before it
    for (size_t i = 0; i < piece.size(); ++i) {
      append_utf8(characters_[static_cast<uint8_t>(piece[i])], written);
      bytes.resize(written.size(), i);
    }
    bytes.push_back(piece.size());
    std::vector<std::string_view> parts;
    TRY(inner_->cut(written, scratch, parts));
    for (const std::string_view part : parts) {
      const size_t begin = bytes[static_cast<size_t>(part.data() - written.data())];
      out.push_back(
          piece.substr(begin, bytes[static_cast<size_t>(part.data() - written.data()) + part.size()] - begin));
    }
    return {};
  }

 private:
  std::unique_ptr<PreTokenizerStep> inner_;
  std::array<char32_t, 256> characters_ = byte_characters();
};

// Every so many characters.
class LengthSplit final : public PreTokenizerStep {
 public:
  explicit LengthSplit(size_t length) : length_(length) {}

  Status cut(std::string_view piece, RegexScratch&, std::vector<std::string_view>& out) const override {
    size_t begin = 0, characters = 0;
    for (size_t at = 0; at < piece.size();) {
      at += next_character(piece.substr(at)).length;
      if (++characters % length_ != 0 && at < piece.size()) continue;
      out.push_back(piece.substr(begin, at - begin));
      begin = at;
    }
    return {};
  }

 private:
  size_t length_;
};

// Where the script changes. Characters of any script, spaces among them, go with those before them; before the first of
// a script they are left out, as in HF.
class ScriptSplit final : public PreTokenizerStep {
 public:
  Status cut(std::string_view piece, RegexScratch&, std::vector<std::string_view>& out) const override {
    uint8_t last = 0;
    size_t begin = 0;
    for (size_t at = 0; at < piece.size();) {
      const Utf8Step step = next_character(piece.substr(at));
      const uint8_t script = script_of(step.character);
      if (script != 0 && script != last) {
        if (last != 0) out.push_back(piece.substr(begin, at - begin));
        begin = at;
        last = script;
      }
      at += step.length;
    }
    if (last != 0) out.push_back(piece.substr(begin));
    return {};
  }
};

Result<Behavior> read_behavior(const Json& json) {
  static constexpr std::pair<std::string_view, Behavior> kNames[] = {
      {"Removed", Behavior::kRemoved},
      {"Isolated", Behavior::kIsolated},
      {"MergedWithPrevious", Behavior::kMergedWithPrevious},
      {"MergedWithNext", Behavior::kMergedWithNext},
      {"Contiguous", Behavior::kContiguous}};
  const auto found = json.find("behavior");
  if (found != json.end()) {
    for (const auto& [name, behavior] : kNames) {
      if (*found == name) return behavior;
    }
  }
  return fail(Status::invalid(fmt::format("behavior {} is not known", found == json.end() ? "(none)" : found->dump())));
}

}  // namespace

Result<Metaspace> Metaspace::from_json(const Json& json) {
  Metaspace result;
  const auto mark = json.find("replacement");
  if (mark == json.end() || !mark->is_string() || mark->get_ref<const std::string&>().empty() ||
      next_character(mark->get_ref<const std::string&>()).length != mark->get_ref<const std::string&>().size()) {
    return fail(Status::invalid("Metaspace: replacement is not one character"));
  }
  result.mark = mark->get<std::string>();
  const auto scheme = json.find("prepend_scheme");
  if (scheme != json.end()) {
    static constexpr std::pair<std::string_view, Prepend> kNames[] = {
        {"never", Prepend::kNever}, {"first", Prepend::kFirst}, {"always", Prepend::kAlways}};
    const auto* known =
        std::find_if(std::begin(kNames), std::end(kNames), [&](const auto& entry) { return *scheme == entry.first; });
    if (known == std::end(kNames)) {
      return fail(Status::invalid(
          fmt::format("Metaspace: prepend_scheme {} is not one of always, first, never", scheme->dump())));
    }
    result.prepend = known->second;
  }
  const auto given = [&](const char* key) { return json.contains(key) && !json[key].is_null(); };
  // What files of older versions have in its place; newer ones write both.
  if (given("add_prefix_space") && !TRY(bool_at(json, "add_prefix_space", true)) && result.prepend != Prepend::kNever) {
    return fail(Status::invalid("Metaspace: add_prefix_space is false, and prepend_scheme is not never")
                    .hint("HF tokenizers refuses the file as well; write \"prepend_scheme\": \"never\" into it"));
  }
  if (given("split")) result.split = TRY(bool_at(json, "split", true));
  return result;
}

bool Metaspace::prepends(std::string_view piece, bool at_start) const {
  if (prepend == Prepend::kNever || (prepend == Prepend::kFirst && !at_start)) return false;
  return piece[0] != ' ' && !piece.starts_with(mark);
}

std::string Metaspace::written(std::string_view piece, bool at_start) const {
  std::string out = prepends(piece, at_start) ? mark : "";
  for (const char byte : piece) {
    if (byte == ' ')
      out += mark;
    else
      out += byte;
  }
  return out;
}

Result<PreTokenizer> PreTokenizer::from_json(const Json& json) {
  PreTokenizer result;
  if (!json.is_null()) {
    Status status = result.add(json);
    if (!status.ok()) return fail(std::move(status).at("pre_tokenizer"));
  }
  return result;
}

Status PreTokenizer::add(const Json& json) {
  const auto type_found = json.is_object() ? json.find("type") : json.end();
  if (!json.is_object() || type_found == json.end() || !type_found->is_string()) return Status::invalid("has no type");
  const auto type = type_found->get<std::string>();
  if (type == "Sequence") {
    const auto found = json.find("pretokenizers");
    if (found == json.end() || !found->is_array()) return Status::invalid("Sequence has no pretokenizers");
    for (const Json& inner : *found) TRY(add(inner));
    return {};
  }
  if (byte_level_ && (type == "ByteLevel" || type == "Metaspace"))
    return Status::invalid(fmt::format("{} after ByteLevel is not supported", type));
  // What follows Metaspace would see the marks, which are written last here.
  if (metaspace_) return Status::invalid(fmt::format("{} after Metaspace is not supported", type));
  if (type == "Metaspace") {
    metaspace_ = TRY(Metaspace::from_json(json));
    cuts_before_metaspace_ = !steps_.empty();
    if (metaspace_->split) {
      const char32_t mark = next_character(metaspace_->mark).character;
      const auto begins_piece = [mark](char32_t c) { return c == ' ' || c == mark; };
      steps_.push_back(std::make_unique<CharacterSplit>(begins_piece, Behavior::kMergedWithNext));
    }
    return {};
  }
  if (type == "ByteLevel") {
    byte_level_ = true;
    adds_prefix_space_ = TRY(bool_at(json, "add_prefix_space", true));
    if (adds_prefix_space_ && !steps_.empty())
      return Status::invalid("add_prefix_space after other steps is not supported");
    if (TRY(bool_at(json, "use_regex", true))) {
      steps_.push_back(std::make_unique<RegexSplit>(TRY(Regex::compile(kByteLevelRegex)), Behavior::kIsolated, false));
    }
    return {};
  }
  auto step = TRY(step_of(type, json));
  if (byte_level_) step = std::make_unique<OnByteCharacters>(std::move(step));
  steps_.push_back(std::move(step));
  return {};
}

Result<std::unique_ptr<PreTokenizerStep>> PreTokenizer::step_of(const std::string& type, const Json& json) {
  using Step = std::unique_ptr<PreTokenizerStep>;
  if (type == "Split") {
    const Behavior behavior = TRY(read_behavior(json));
    const bool invert = TRY(bool_at(json, "invert", false));
    const auto pattern = json.find("pattern");
    if (pattern != json.end() && pattern->is_object() && pattern->size() == 1) {
      const auto kind = pattern->begin().key();
      const Json& value = *pattern->begin();
      if (kind == "Regex" && value.is_string()) {
        auto regex = TRY(Regex::compile(value.get<std::string>()));
        return Step(std::make_unique<RegexSplit>(std::move(regex), behavior, invert));
      }
      if (kind == "String" && value.is_string() && !value.get<std::string>().empty()) {
        return Step(std::make_unique<TextSplit>(value.get<std::string>(), behavior, invert));
      }
    }
    return fail(Status::invalid("Split has no pattern of type Regex or String"));
  }
  if (type == "Punctuation") {
    const Behavior behavior = json.contains("behavior") ? TRY(read_behavior(json)) : Behavior::kIsolated;
    const auto characters = TRY(BertCharacters::create());
    const auto is_punctuation = [characters](char32_t c) { return characters->is_punctuation(c); };
    return Step(std::make_unique<CharacterSplit>(is_punctuation, behavior));
  }
  if (type == "CharDelimiterSplit") {
    const auto found = json.find("delimiter");
    const std::string delimiter = found != json.end() && found->is_string() ? found->get<std::string>() : "";
    if (delimiter.empty() || next_character(delimiter).length != delimiter.size())
      return fail(Status::invalid("CharDelimiterSplit: delimiter is not one character"));
    return Step(std::make_unique<TextSplit>(delimiter, Behavior::kRemoved, false));
  }
  if (type == "FixedLength") {
    const auto found = json.find("length");
    if (found != json.end() && (!found->is_number_unsigned() || found->get<uint64_t>() == 0))
      return fail(Status::invalid(fmt::format("FixedLength: length {} is not a whole number above 0", found->dump())));
    return Step(std::make_unique<LengthSplit>(found == json.end() ? 5 : found->get<size_t>()));
  }
  if (type == "Digits") {
    const bool individual = TRY(bool_at(json, "individual_digits", false));
    auto digits = TRY(Regex::compile(fmt::format(R"([\p{{N}}{}]{})", kNewerNumbers, individual ? "" : "+")));
    return Step(std::make_unique<RegexSplit>(std::move(digits), Behavior::kIsolated, false));
  }
  if (type == "UnicodeScripts") return Step(std::make_unique<ScriptSplit>());
  if (type == "WhitespaceSplit") return Step(std::make_unique<CharacterSplit>(is_white_space, Behavior::kRemoved));
  if (type == "BertPreTokenizer") {
    std::vector<Step> both;
    both.push_back(TRY(step_of("WhitespaceSplit", Json::object())));
    both.push_back(TRY(step_of("Punctuation", Json::object())));
    return Step(std::make_unique<InTurn>(std::move(both)));
  }
  if (type == "Whitespace") {
    // \w of Rust's regular expressions, which differs from Oniguruma's.
    constexpr std::string_view kWord =
        R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200c}\x{200d}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169})"
        R"(\x{1f170}-\x{1f189})";
    auto words = TRY(Regex::compile(fmt::format(R"([{0}]+|[^{0}\s]+)", kWord)));
    return Step(std::make_unique<RegexSplit>(std::move(words), Behavior::kRemoved, true));
  }
  return fail(Status::invalid(fmt::format("type {} is not supported", type)));
}

Status PreTokenizer::cut(std::string_view text, RegexScratch& scratch, std::vector<std::string_view>& out) const {
  if (text.empty()) return {};
  if (steps_.empty()) {
    out.push_back(text);
    return {};
  }
  return cut_in_turn(steps_, text, scratch, out);
}

}  // namespace tandem::model
