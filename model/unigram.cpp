#include "model/unigram.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/utf8.h"

namespace tandem::model {
namespace {

constexpr double kUnknownPenalty = 10;
constexpr size_t kLongestToken = 1024;  // bytes; bounds the time for a byte of text
constexpr size_t kMostTokens = 1 << 24;
constexpr size_t kMostText = 64 << 20;  // bytes of all tokens; bounds the tree

}  // namespace

Result<Unigram> Unigram::from_json(const Json& model) {
  const auto vocabulary = model.find("vocab");
  if (vocabulary == model.end() || !vocabulary->is_array() || vocabulary->empty()) {
    return fail(Status::invalid("vocab is not a list with pairs of a token and its score"));
  }
  if (vocabulary->size() > kMostTokens) {
    return fail(Status::invalid(fmt::format("vocab has {} tokens, more than {}", vocabulary->size(), kMostTokens)));
  }
  Unigram result;
  double lowest = std::numeric_limits<double>::infinity();
  size_t text = 0;
  for (const Json& item : *vocabulary) {
    const auto place = [&] { return fmt::format("vocab[{}]", result.tokens_.size()); };
    if (!item.is_array() || item.size() != 2 || !item[0].is_string() || !item[1].is_number() ||
        !std::isfinite(item[1].get<double>())) {
      return fail(Status::invalid(fmt::format("{} is not a pair of a token and its score", place())));
    }
    const auto& token = item[0].get_ref<const std::string&>();
    text += token.size();
    if (token.size() > kLongestToken || text > kMostText) {
      return fail(Status::invalid(
          fmt::format("{} is longer than {} bytes, or all up to it than {}", place(), kLongestToken, kMostText)));
    }
    result.tokens_.push_back(token);
    result.scores_.push_back(item[1].get<double>());
    lowest = std::min(lowest, result.scores_.back());
  }
  const auto unknown = model.find("unk_id");
  if (unknown == model.end() || !unknown->is_number_unsigned() || unknown->get<uint64_t>() >= result.tokens_.size()) {
    return fail(
        Status::invalid(fmt::format("unk_id {} is not the id of one of the {} tokens of vocab",
                                    unknown == model.end() ? "(none)" : unknown->dump(), result.tokens_.size())));
  }
  result.unknown_ = unknown->get<TokenId>();
  result.unknown_score_ = lowest - kUnknownPenalty;
  result.byte_fallback_ = TRY(bool_at(model, "byte_fallback", result.byte_fallback_));
  for (size_t id = 0; id < result.tokens_.size(); ++id) {
    result.ids_[result.tokens_[id]] = static_cast<TokenId>(id);
  }
  for (int byte = 0; byte < 256; ++byte) {
    const auto found = result.ids_.find(fmt::format("<0x{:02X}>", byte));
    result.byte_tokens_[byte] = found == result.ids_.end() ? -1 : found->second;
  }
  result.grow();
  return result;
}

// Breadth first, so that the children of a node come to stand in a row.
void Unigram::grow() {
  struct Range {
    size_t begin, end;  // of `sorted`: the texts that pass through a node
    size_t depth;
  };
  std::vector<std::pair<std::string_view, TokenId>> sorted(ids_.begin(), ids_.end());
  std::sort(sorted.begin(), sorted.end());
  nodes_.emplace_back();
  std::vector<Range> ranges = {{0, sorted.size(), 0}};
  for (size_t at = 0; at < nodes_.size(); ++at) {
    auto [begin, end, depth] = ranges[at];
    if (begin < end && sorted[begin].first.size() == depth) nodes_[at].id = sorted[begin++].second;
    nodes_[at].first_child = static_cast<uint32_t>(nodes_.size());
    while (begin < end) {
      const char label = sorted[begin].first[depth];
      size_t next = begin;
      while (next < end && sorted[next].first[depth] == label) ++next;
      nodes_[at].children++;
      nodes_.push_back({.label = static_cast<uint8_t>(label)});
      ranges.push_back({begin, next, depth + 1});
      begin = next;
    }
  }
}

const Unigram::Node* Unigram::child(const Node& node, uint8_t label) const {
  const Node* begin = nodes_.data() + node.first_child;
  const Node* end = begin + node.children;
  const Node* found = std::lower_bound(begin, end, label, [](const Node& a, uint8_t b) { return a.label < b; });
  return found == end || found->label != label ? nullptr : found;
}

// By byte, the best token that ends before it. Of equal sums the token that begins first stays.
std::vector<Unigram::Best> Unigram::best_ends(std::string_view piece) const {
  std::vector<Best> best(piece.size() + 1);
  const auto offer = [&](size_t begin, size_t end, double score, TokenId id) {
    if (best[end].begin == kNowhere || score > best[end].score) best[end] = {score, begin, id};
  };
  for (size_t begin = 0; begin < piece.size();) {
    const size_t character = next_character(piece.substr(begin)).length;
    const double so_far = best[begin].score;
    bool known = false;
    const Node* node = nodes_.data();
    for (size_t at = begin; at < piece.size(); ++at) {
      node = child(*node, static_cast<uint8_t>(piece[at]));
      if (!node) break;
      if (node->id < 0) continue;
      offer(begin, at + 1, scores_[node->id] + so_far, node->id);
      known |= at + 1 - begin == character;
    }
    if (!known) offer(begin, begin + character, unknown_score_ + so_far, unknown_);
    begin += character;
  }
  return best;
}

void Unigram::emit_unknown(std::string_view text, std::vector<TokenId>& out, std::vector<size_t>* lengths) const {
  const auto found = ids_.find(text);
  const auto has_token = [&](char byte) { return byte_tokens_[static_cast<uint8_t>(byte)] >= 0; };
  if (found == ids_.end() && byte_fallback_ && std::all_of(text.begin(), text.end(), has_token)) {
    for (const char byte : text) out.push_back(byte_tokens_[static_cast<uint8_t>(byte)]);
    if (lengths) lengths->insert(lengths->end(), text.size(), 1);
    return;
  }
  out.push_back(found == ids_.end() ? unknown_ : found->second);
  if (lengths) lengths->push_back(text.size());
}

void Unigram::encode(std::string_view piece, std::vector<TokenId>& out, std::vector<size_t>* lengths) const {
  const std::vector<Best> best = best_ends(piece);
  std::vector<size_t> ends;
  for (size_t end = piece.size(); end > 0; end = best[end].begin) ends.push_back(end);
  std::reverse(ends.begin(), ends.end());
  size_t unknown_begin = 0;  // of a row that goes on up to `begin`
  size_t begin = 0;
  for (const size_t end : ends) {
    if (best[end].id != unknown_) {
      if (unknown_begin < begin) emit_unknown(piece.substr(unknown_begin, begin - unknown_begin), out, lengths);
      out.push_back(best[end].id);
      if (lengths) lengths->push_back(end - begin);
      unknown_begin = end;
    }
    begin = end;
  }
  if (unknown_begin < begin) emit_unknown(piece.substr(unknown_begin, begin - unknown_begin), out, lengths);
}

}  // namespace tandem::model
