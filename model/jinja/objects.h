// Objects of the template language whose fields change while a template runs: jinja2's loop, namespace, cycler, joiner.
#pragma once

#include <memory>
#include <optional>

#include "model/jinja/value.h"

namespace tandem::model::jinja {

// The field of an object that can be called, under a name that no template can write.
inline constexpr const char* kCall = "";

// `loop` at element i; `changed` is what loop.changed was last given.
std::shared_ptr<Namespace> loop_fields(const List& elements, size_t i, size_t depth,
                                       const std::shared_ptr<std::optional<Value>>& changed);
std::shared_ptr<Namespace> namespace_of(const Arguments& arguments);
// Goes round its items: next(), current, reset(). Its methods are good as long as it is.
std::shared_ptr<Namespace> cycler(const Arguments& arguments);
// Nothing at its first call, the separator at each later one.
Value joiner(const Arguments& arguments);

}  // namespace tandem::model::jinja
