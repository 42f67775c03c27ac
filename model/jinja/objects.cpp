#include "model/jinja/objects.h"

#include "model/jinja/builtins.h"

namespace tandem::model::jinja {

bool LoopElements::has(size_t i) {
  while (kept_.size() <= i && asked_ < all_.size()) {
    const Value& element = all_[asked_++];
    if (!condition_ || condition_(element)) kept_.push_back(element);
  }
  return i < kept_.size();
}

size_t LoopElements::count() {
  has(all_.size());
  return kept_.size();
}

std::shared_ptr<Namespace> loop_fields(const std::shared_ptr<LoopElements>& elements, size_t i, size_t depth,
                                       const std::shared_ptr<std::optional<Value>>& changed) {
  auto fields = std::make_shared<Namespace>();
  (*fields)["index"] = i + 1;
  (*fields)["index0"] = i;
  (*fields)["first"] = i == 0;
  (*fields)["depth"] = depth + 1;
  (*fields)["depth0"] = depth;
  (*fields)["previtem"] = i > 0 ? elements->at(i - 1) : Value::undefined("there is no previous item");
  (*fields)[kOwn] = true;
  (*fields)[kAhead] = Value(Function([elements, i](const Arguments& arguments) {
    const std::string& name = arguments.positional.at(0).text();
    if (name == "last") return Value(!elements->has(i + 1));
    if (name == "nextitem")
      return elements->has(i + 1) ? elements->at(i + 1) : Value::undefined("there is no next item");
    if (name == "length") return Value(elements->count());
    if (name == "revindex") return Value(elements->count() - i);
    return name == "revindex0" ? Value(elements->count() - i - 1) : Value::undefined(name);
  }));
  (*fields)["cycle"] = Value(Function([i](const Arguments& arguments) {
    if (arguments.positional.empty()) throw TemplateError("no items for cycling given");
    return arguments.positional[i % arguments.positional.size()];
  }));
  (*fields)["changed"] = Value(Function([changed](const Arguments& arguments) {
    const Value now = Value::tuple(arguments.positional);
    const bool differs = !*changed || !(*changed)->equals(now);
    *changed = now;
    return Value(differs);
  }));
  return fields;
}

std::shared_ptr<Namespace> namespace_of(const Arguments& arguments) {
  auto fields = std::make_shared<Namespace>();
  const auto add = [&](const Dict& from) {
    for (const auto& [name, value] : from) {
      if (name.starts_with('_')) throw TemplateError("a namespace has no names that start with an underscore");
      (*fields)[name] = value;
    }
  };
  if (arguments.positional.size() > 1) throw TemplateError("namespace takes one mapping at most");
  if (!arguments.positional.empty()) add(arguments.positional[0].dict());
  add(arguments.named);
  return fields;
}

std::shared_ptr<Namespace> cycler(const Arguments& arguments) {
  if (arguments.positional.empty()) throw TemplateError("at least one item has to be provided");
  auto fields = std::make_shared<Namespace>();
  const auto turn = std::make_shared<size_t>(0);
  Namespace* const own = fields.get();  // which outlives its methods
  (*fields)[kOwn] = true;
  (*fields)["current"] = arguments.positional[0];
  (*fields)["next"] = Value(Function([own, turn, items = arguments.positional](const Arguments&) {
    const Value now = items[*turn];
    *turn = (*turn + 1) % items.size();
    (*own)["current"] = items[*turn];
    return now;
  }));
  (*fields)["reset"] = Value(Function([own, turn, first = arguments.positional[0]](const Arguments&) {
    *turn = 0;
    (*own)["current"] = first;
    return Value(None{});
  }));
  return fields;
}

Value joiner(const Arguments& arguments) {
  const Parameters p("joiner", arguments, {"sep"});
  const auto used = std::make_shared<bool>(false);
  return Value(Function([used, separator = p[0] ? *p[0] : Value(", ")](const Arguments&) {
    return std::exchange(*used, true) ? separator : Value("");
  }));
}

}  // namespace tandem::model::jinja
