#include "model/token_decoder.h"

#include <fmt/format.h>

#include <cstdio>

#include "base/utf8.h"

namespace tandem::model {
namespace {

const Json kAbsent;

const Json& field(const Json& json, const char* key) {
  const auto found = json.is_object() ? json.find(key) : json.end();
  return found == json.end() ? kAbsent : *found;
}

Result<std::string> text_field(const Json& json, const char* key) {
  const Json& value = field(json, key);
  if (!value.is_string()) return fail(Status::invalid(fmt::format("{} is not a string", key)));
  return value.get<std::string>();
}

Result<size_t> count_field(const Json& json, const char* key) {
  const Json& value = field(json, key);
  if (!value.is_number_unsigned()) return fail(Status::invalid(fmt::format("Strip: {} is not a whole number", key)));
  return value.get<size_t>();
}

// A Sequence within another is its steps.
Status flatten(const Json& json, std::vector<const Json*>& steps, int depth = 0) {
  constexpr int kDeepest = 20;
  if (!json.is_object() || !field(json, "type").is_string()) return Status::invalid("has no type");
  if (field(json, "type") != "Sequence") {
    steps.push_back(&json);
    return {};
  }
  if (!field(json, "decoders").is_array()) return Status::invalid("Sequence has no decoders");
  if (depth == kDeepest) return Status::invalid("Sequences are nested too deep");
  for (const Json& inner : field(json, "decoders")) TRY(flatten(inner, steps, depth + 1));
  return {};
}

}  // namespace

Result<TokenDecoder> TokenDecoder::from_json(const Json& json) {
  TokenDecoder decoder;
  if (json.is_null()) {
    decoder.kind_ = Kind::kSpaced;
    return decoder;
  }
  std::vector<const Json*> steps;
  Status status = flatten(json, steps);
  if (status.ok()) status = decoder.read_chain(steps);
  if (!status.ok()) return fail(std::move(status).at("decoder"));
  return decoder;
}

Status TokenDecoder::read_chain(const std::vector<const Json*>& steps) {
  bool fused = false;
  for (size_t i = 0; i < steps.size(); ++i) {
    const Json& step = *steps[i];
    const auto type = field(step, "type").get<std::string>();
    const auto unsupported = [&](std::string_view where) {
      return Status::invalid(fmt::format("{} {} is not supported", type, where));
    };
    if (type == "Fuse") {
      fused = true;
    } else if (type == "ByteLevel" || type == "WordPiece" || type == "Metaspace") {
      if (i > 0) return unsupported("behind another");
      fused = true;  // nothing but Fuse may follow
      kind_ = type == "ByteLevel" ? Kind::kByteLevel : type == "WordPiece" ? Kind::kWordPiece : Kind::kMetaspace;
      if (kind_ == Kind::kMetaspace) metaspace_ = TRY(Metaspace::from_json(step));
      if (kind_ == Kind::kWordPiece) {
        if (!field(step, "prefix").is_null()) prefix_ = TRY(text_field(step, "prefix"));
        cleans_up_ = TRY(bool_at(step, "cleanup", true));
      }
    } else if (type == "ByteFallback") {
      if (fused) return unsupported("behind Fuse");
      byte_fallback_ = true;
    } else if (type == "Replace") {
      if (fused || byte_fallback_) return unsupported("behind Fuse or ByteFallback");
      const Json& pattern = field(field(step, "pattern"), "String");
      if (!pattern.is_string() || pattern.get_ref<const std::string&>().empty())
        return unsupported("of anything but a String");
      auto content = TRY(text_field(step, "content"));
      steps_.push_back({.replace = {pattern.get<std::string>(), std::move(content)}, .strip = {}});
    } else if (type == "Strip") {
      Strip strip;
      strip.content = TRY(text_field(step, "content"));
      strip.start = TRY(count_field(step, "start"));
      strip.stop = TRY(count_field(step, "stop"));
      if (strip.content.empty() || next_character(strip.content).length != strip.content.size())
        return Status::invalid("Strip: content is not one character");
      if (strip.start == 0 && strip.stop == 0) continue;
      if (!fused && byte_fallback_) return unsupported("behind ByteFallback");
      if (!fused) {
        steps_.push_back({.replace = {}, .strip = std::move(strip)});
      } else if (kind_ == Kind::kChain && !strips_leading_space_ && strip.content == " " && strip.start == 1 &&
                 strip.stop == 0) {
        strips_leading_space_ = true;
      } else {
        return unsupported("of a whole text, but for one leading space,");
      }
    } else {
      return Status::invalid(fmt::format("type {} is not supported", type));
    }
  }
  return {};
}

std::string TokenDecoder::text_of(const std::string& name) const {
  switch (kind_) {
    case Kind::kSpaced:
      return " " + name;
    case Kind::kByteLevel:
      return alphabet_.bytes_of(name).value_or(name);
    case Kind::kMetaspace:
      return with_marks_as(name, " ");
    case Kind::kWordPiece:
      if (name.empty()) return name;
      return cleaned(name.starts_with(prefix_) ? name.substr(prefix_.size()) : " " + name);
    case Kind::kChain:
      if (is_byte(name)) return std::string(1, static_cast<char>(*byte_of(name)));
      return chained(name);
  }
  return {};
}

std::optional<std::string> TokenDecoder::opening_of(const std::string& name) const {
  if (kind_ == Kind::kSpaced) return name;
  if (kind_ == Kind::kWordPiece) return cleaned(name);
  if (kind_ == Kind::kMetaspace && metaspace_.prepend != Metaspace::Prepend::kNever) return with_marks_as(name, "");
  return std::nullopt;
}

std::string TokenDecoder::chained(std::string text) const {
  for (const Step& step : steps_) {
    if (step.strip) {
      const std::string& content = step.strip->content;
      for (size_t i = 0; i < step.strip->start && text.starts_with(content); ++i) text.erase(0, content.size());
      for (size_t i = 0; i < step.strip->stop && text.ends_with(content); ++i)
        text.resize(text.size() - content.size());
      continue;
    }
    const auto& [from, to] = step.replace;
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
      text.replace(at, from.size(), to);
  }
  return text;
}

// What the cleanup of WordPiece's decoder makes of one token's text.
std::string TokenDecoder::cleaned(std::string token) const {
  static constexpr std::pair<std::string_view, std::string_view> kChanges[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  if (!cleans_up_) return token;
  for (const auto& [from, to] : kChanges) {
    for (size_t at = token.find(from); at != std::string::npos; at = token.find(from, at + to.size())) {
      token.replace(at, from.size(), to);
    }
  }
  return token;
}

std::string TokenDecoder::with_marks_as(std::string_view name, std::string_view replacement) const {
  std::string out;
  while (!name.empty()) {
    const bool is_mark = name.starts_with(metaspace_.mark);
    out += is_mark ? replacement : name.substr(0, 1);
    name.remove_prefix(is_mark ? metaspace_.mark.size() : 1);
  }
  return out;
}

// 10 of "<0x0A>".
std::optional<uint8_t> TokenDecoder::byte_of(std::string_view name) {
  unsigned byte = 0;
  const bool is_byte = name.size() == 6 && name.starts_with("<0x") && name.back() == '>' &&
                       std::sscanf(std::string(name).c_str(), "<0x%02X>", &byte) == 1;
  return is_byte ? std::optional(static_cast<uint8_t>(byte)) : std::nullopt;
}

}  // namespace tandem::model
