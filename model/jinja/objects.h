// Objects of the template language whose fields change while a template runs: jinja2's loop, namespace, cycler, joiner.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "model/jinja/value.h"

namespace tandem::model::jinja {

// The field of an object that can be called, under a name that no template can write.
inline constexpr const char* kCall = "";

// A field that objects have which templates may read and call, but not write to.
inline constexpr const char* kOwn = "\x01";
// The field that is called for what is not there yet: loop.last and its kind, which look ahead.
inline constexpr const char* kAhead = "\x02";

// The sequence of a loop. A condition is evaluated when an element's turn comes, or when `loop` looks ahead, as in
// jinja2: it may read what the body has set.
class LoopElements {
 public:
  // No condition takes all.
  LoopElements(List all, std::function<bool(const Value&)> condition)
      : all_(std::move(all)), condition_(std::move(condition)) {}
  bool has(size_t i);
  const Value& at(size_t i) const { return kept_[i]; }
  size_t count();  // of all, which asks for all

 private:
  List all_;
  std::function<bool(const Value&)> condition_;
  size_t asked_ = 0;  // of all_
  List kept_;
};

// `loop` at element i, which is there; `changed` is what loop.changed was last given.
std::shared_ptr<Namespace> loop_fields(const std::shared_ptr<LoopElements>& elements, size_t i, size_t depth,
                                       const std::shared_ptr<std::optional<Value>>& changed);
std::shared_ptr<Namespace> namespace_of(const Arguments& arguments);
// Goes round its items: next(), current, reset(). Its methods are good as long as it is.
std::shared_ptr<Namespace> cycler(const Arguments& arguments);
// Nothing at its first call, the separator at each later one.
Value joiner(const Arguments& arguments);

}  // namespace tandem::model::jinja
