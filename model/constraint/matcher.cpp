#include "model/constraint/matcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

namespace tandem::model::constraint {

namespace {

constexpr size_t kMaxKeptStacks = 4096;
constexpr size_t kMostPrepared = 8;  // states of one text without quotes

using Marks = std::vector<std::pair<std::string, TokenId>>;

Marks marks_of(const Grammar& grammar, const Vocabulary& vocabulary) {
  std::map<std::string, TokenId> found;
  if (!grammar.calls) return {};
  const auto look = [&](const std::string& text) {
    if (const auto token = text.empty() ? std::nullopt : vocabulary.special(text)) found.emplace(text, *token);
  };
  for (const Part& part : grammar.calls->parts) look(part.text);
  for (const auto& stop : grammar.calls->stops) look(stop);
  return {found.begin(), found.end()};
}

std::vector<std::string> texts_of(const Marks& marks) {
  std::vector<std::string> texts;
  for (const auto& [text, token] : marks) texts.push_back(text);
  return texts;
}

bool has(std::span<const uint64_t> bits, TokenId token) { return (bits[token / 64] >> (token % 64) & 1) != 0; }

}  // namespace

Matcher::Matcher(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const Vocabulary> vocabulary)
    : grammar_(std::move(grammar)),
      vocabulary_(std::move(vocabulary)),
      marks_(marks_of(*grammar_, *vocabulary_)),
      machine_(*grammar_, texts_of(marks_)) {
  stacks_.push_back(machine_.begin());
  if (!grammar_->calls) return;
  // What free text may be is told by its tags, and by which of them are tokens.
  std::string tags;
  for (const auto& stop : grammar_->calls->stops) tags += stop + (vocabulary_->special(stop) ? "\1" : "\2");
  text_tag_ = std::hash<std::string>()(tags);
}

void Matcher::Sink::add(std::span<const TokenId> tokens) {
  if (list != nullptr) return void(list->insert(list->end(), tokens.begin(), tokens.end()));
  for (const TokenId token : tokens) bits[token / 64] |= uint64_t{1} << (token % 64);
}

void Matcher::Sink::add(const InnerTokens& tokens) {
  add(tokens.accepted);
  if (tokens.bits.empty()) return;
  if (list == nullptr) {
    for (size_t i = 0; i < bits.size(); ++i) bits[i] |= tokens.bits[i];
    return;
  }
  for (size_t i = 0; i < tokens.bits.size(); ++i)
    for (uint64_t word = tokens.bits[i]; word != 0; word &= word - 1)
      list->push_back(static_cast<TokenId>(i * 64 + static_cast<size_t>(__builtin_ctzll(word))));
}

void Matcher::mask(std::span<uint64_t> mask) {
  std::fill(mask.begin(), mask.end(), 0);
  doubtful_.clear();
  for (const StackId stack : stacks_) {
    Sink sink{mask};
    walk(vocabulary_->trie(), TokenTrie::kRoot, stack, sink);
  }
  std::sort(doubtful_.begin(), doubtful_.end());
  doubtful_.erase(std::unique(doubtful_.begin(), doubtful_.end()), doubtful_.end());
  for (const TokenId token : doubtful_) {
    if (has(mask, token)) continue;
    auto stacks = stacks_;
    if (follow(vocabulary_->bytes_of(token), stacks)) mask[token / 64] |= uint64_t{1} << (token % 64);
  }
  for (const auto& [text, token] : marks_) {
    auto stacks = stacks_;
    if (follow_mark(text, stacks)) mask[token / 64] |= uint64_t{1} << (token % 64);
  }
  if (machine_.stacks().size() > kMaxKeptStacks) machine_.stacks().keep(stacks_);
}

bool Matcher::follow_mark(std::string_view mark, std::vector<StackId>& stacks) {
  std::vector<StackId> next;
  for (const StackId stack : stacks) machine_.step_mark(stack, mark, next);
  std::sort(next.begin(), next.end());
  next.erase(std::unique(next.begin(), next.end()), next.end());
  stacks.swap(next);
  return !stacks.empty();
}

bool Matcher::follow(std::string_view bytes, std::vector<StackId>& stacks) {
  std::vector<StackId> next;
  for (const char byte : bytes) {
    next.clear();
    for (const StackId stack : stacks) machine_.step(stack, static_cast<uint8_t>(byte), next);
    std::sort(next.begin(), next.end());
    next.erase(std::unique(next.begin(), next.end()), next.end());
    if (next.empty()) return false;
    stacks.swap(next);
    if (stacks.size() > kMaxReadings) return true;
  }
  return true;
}

Status Matcher::accept(TokenId token) {
  for (const auto& [text, mark] : marks_) {
    if (token != mark) continue;
    auto stacks = stacks_;
    if (!follow_mark(text, stacks)) return Status::invalid(fmt::format("token {} is not allowed here", token));
    return go_on(std::move(stacks));
  }
  const auto bytes = vocabulary_->bytes_of(token);
  if (bytes.empty()) return Status::invalid(fmt::format("token {} is no part of a text", token));
  const Status status = accept_text(bytes);
  if (status.code() != Code::kInvalid) return status;
  return Status::invalid(fmt::format("token {} is not allowed here", token));
}

Status Matcher::accept_text(std::string_view bytes) {
  auto stacks = stacks_;
  if (!follow(bytes, stacks)) return Status::invalid("the text is not allowed here");
  return go_on(std::move(stacks));
}

Status Matcher::go_on(std::vector<StackId> stacks) {
  if (stacks.size() > kMaxReadings) {
    return Status::exhausted(fmt::format("the text can be read in more than {} ways by anyOf", kMaxReadings))
        .hint("let the branches differ in a property or type that comes early");
  }
  stacks_ = std::move(stacks);
  if (machine_.stacks().size() > kMaxKeptStacks) machine_.stacks().keep(stacks_);
  return {};
}

bool Matcher::complete() const {
  return std::any_of(stacks_.begin(), stacks_.end(), [&](StackId stack) { return machine_.complete(stack); });
}

void Matcher::walk(const TokenTrie& trie, uint32_t number, StackId stack, Sink& sink, Space space) {
  const auto& node = trie.node(number);
  if (node.children == 0) return;
  const Place place = machine_.stacks()[stack];
  switch (place.kind) {
    case Place::kString:
      return walk_inside(trie, number,
                         {.kind = InnerState::kString,
                          .dfa = machine_.automaton(place.d),
                          .a = place.a,
                          .b = place.b,
                          .c = place.c,
                          .guard = grammar_->guard,
                          .less = place.phase != 0},
                         place.parent, sink);
    case Place::kNumber:
      return walk_inside(trie, number, {.kind = InnerState::kNumber, .dfa = machine_.automaton(place.d), .a = place.a},
                         place.parent, sink);
    case Place::kRaw:
      return walk_inside(trie, number,
                         {.kind = InnerState::kRaw, .dfa = machine_.automaton(place.d), .a = place.a, .c = place.c},
                         place.parent, sink);
    case Place::kText:
      return walk_inside(
          trie, number,
          {.kind = InnerState::kText, .a = place.a, .text = &machine_.text_steps(), .text_tag = text_tag_},
          machine_.behind_text(), sink);
    case Place::kKey:
      return walk_key(trie, number, stack, sink);
    default:
      break;
  }
  const bool spaced = place.kind != Place::kStart && machine_.takes_space(place);  // text may follow at the start
  if (spaced && space == Space::kTaken && trie.node(node.first_child).byte <= ' ') {
    const auto tokens =
        vocabulary_->inside(trie, number, {.kind = InnerState::kSpace, .a = kMaxWhiteSpace - place.space});
    sink.add(*tokens);
    for (const auto& [behind, root] : tokens->behind) walk(*behind, root, stack, sink, Space::kOver);
  }
  std::vector<StackId> next;
  for (uint32_t c = node.first_child; c < node.first_child + node.children; ++c) {
    const uint8_t byte = trie.node(c).byte;
    if (spaced && is_json_space(byte)) continue;
    next.clear();
    machine_.step(stack, byte, next);
    if (next.empty()) continue;
    sink.add(trie.tokens(c));
    for (const StackId to : next) walk(trie, c, to, sink);
  }
}

void Matcher::walk_inside(const TokenTrie& trie, uint32_t node, const InnerState& state, StackId behind, Sink& sink) {
  const auto tokens = vocabulary_->inside(trie, node, state);
  sink.add(*tokens);
  if (tokens->ends_before) walk(trie, node, behind, sink);
  if (behind == kNoStack) return;
  for (const auto& [ended, root] : tokens->behind) {
    sink.add(ended->tokens(root));
    walk(*ended, root, behind, sink);
  }
}

uint32_t Matcher::descend(const TokenTrie& trie, uint32_t node, std::string_view rest, Sink* sink) const {
  for (size_t i = 0; i <= rest.size(); ++i) {
    node = trie.child(node, i < rest.size() ? static_cast<uint8_t>(rest[i]) : '"');
    if (node == TokenTrie::kNoNode) return node;
    if (sink != nullptr) sink->add(trie.tokens(node));
  }
  return node;
}

void Matcher::collect(const TokenTrie& trie, uint32_t number, std::vector<TokenId>& out) const {
  const auto tokens = trie.tokens(number);
  out.insert(out.end(), tokens.begin(), tokens.end());
  const auto& node = trie.node(number);
  for (uint32_t c = node.first_child; c < node.first_child + node.children; ++c) collect(trie, c, out);
}

// Names of properties are followed one by one. All other names end alike, whatever they are, so they are looked at
// together; those among them that are taken, or are properties, are left out of what that gives.
void Matcher::walk_key(const TokenTrie& trie, uint32_t node, StackId stack, Sink& sink) {
  const Place key = machine_.stacks()[stack];
  const std::string begun = machine_.stacks().text(key.b);
  const auto& properties = grammar_->objects[key.a].properties;
  const bool others = machine_.may_have_other(key);
  std::vector<TokenId> taken;
  auto property = std::lower_bound(properties.begin(), properties.end(), begun,
                                   [](const Property& p, const std::string& name) { return p.name < name; });
  for (; property != properties.end() && property->name.starts_with(begun); ++property) {
    const auto number = static_cast<uint32_t>(property - properties.begin());
    const bool allowed = machine_.may_have(key, number);
    const uint32_t end =
        descend(trie, node, std::string_view(property->name).substr(begun.size()), allowed ? &sink : nullptr);
    if (end == TokenTrie::kNoNode) continue;
    if (others) collect(trie, end, taken);
    if (allowed) walk(trie, end, machine_.behind_property(key, number), sink);
  }
  if (!others) return;
  const auto tokens = vocabulary_->inside(
      trie, node, {.kind = InnerState::kKey, .c = key.d, .guard = grammar_->guard, .less = key.phase != 0});
  sink.add(*tokens);
  if (tokens->behind.empty()) return;
  std::vector<TokenId> ending;
  Sink list{.list = &ending};
  const StackId named = machine_.behind_other(key, nullptr);
  for (const auto& [ended, root] : tokens->behind) {
    list.add(ended->tokens(root));
    walk(*ended, root, named, list);
  }
  const KeySet& keys = machine_.stacks().keys(key.c);
  if (keys.unsure) return void(doubtful_.insert(doubtful_.end(), ending.begin(), ending.end()));
  const auto& names = keys.others;
  for (auto name = std::lower_bound(names.begin(), names.end(), begun); name != names.end() && name->starts_with(begun);
       ++name) {
    const uint32_t end = descend(trie, node, std::string_view(*name).substr(begun.size()), nullptr);
    if (end != TokenTrie::kNoNode) collect(trie, end, taken);
  }
  std::sort(taken.begin(), taken.end());
  std::erase_if(ending, [&](TokenId token) { return std::binary_search(taken.begin(), taken.end(), token); });
  sink.add(ending);
}

void prepare(const std::shared_ptr<const Grammar>& grammar, const std::shared_ptr<const Vocabulary>& vocabulary) {
  const auto look = [&](const InnerState& state) {
    (void)vocabulary->inside(vocabulary->trie(), TokenTrie::kRoot, state);
  };
  const auto automaton = [&](uint32_t number) { return number == kNone ? nullptr : grammar->automata[number].get(); };
  for (const ValueNode& node : grammar->nodes) {
    for (const StringRule& rule : node.strings) {
      const bool counted = rule.automaton == kNone;
      look({.kind = InnerState::kString,
            .dfa = automaton(rule.automaton),
            .a = counted ? rule.most : 0,
            .b = counted ? rule.least : 0,
            .guard = grammar->guard});
    }
    for (const uint32_t text : node.texts) {
      std::set<int32_t> met = {Dfa::start()};
      for (std::vector<int32_t> next(met.begin(), met.end()); !next.empty();) {
        const int32_t state = next.back();
        next.pop_back();
        look({.kind = InnerState::kRaw, .dfa = automaton(text), .a = static_cast<uint32_t>(state)});
        for (const char32_t common : {U'a', U' ', U'0'})
          if (const int32_t to = automaton(text)->next(state, common);
              to != Dfa::kDead && met.size() < kMostPrepared && met.insert(to).second)
            next.push_back(to);
      }
    }
  }
  std::vector<uint64_t> mask(vocabulary->mask_words());
  Matcher(grammar, vocabulary).mask(mask);
}

}  // namespace tandem::model::constraint
