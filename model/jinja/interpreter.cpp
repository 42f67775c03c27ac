#include "model/jinja/interpreter.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/utf8.h"
#include "model/jinja/builtins.h"
#include "model/jinja/objects.h"

namespace tandem::model::jinja {
namespace {

constexpr int64_t kMostSteps = 4'000'000;  // a conversation of a thousand messages takes some ten thousand
constexpr int kDeepestCall = 60;
constexpr size_t kLargestOutput = 256 << 20;  // of all pieces together, kept or not

struct Scope {
  std::shared_ptr<Scope> parent;
  std::map<std::string, Value, std::less<>> names;
};
using ScopePtr = std::shared_ptr<Scope>;

constexpr size_t kMostMade = 1 << 30;

enum class Flow { kOn, kBreak, kContinue };

// An error whose place is known already.
class PlacedError : public TemplateError {
 public:
  using TemplateError::TemplateError;
};

// Counts calls within each other while it lives.
class Nested {
 public:
  explicit Nested(int& depth) : depth_(depth) {
    if (++depth_ > kDeepestCall) throw PlacedError("calls are nested too deep");
  }
  ~Nested() { --depth_; }

 private:
  int& depth_;
};

class Interpreter {
 public:
  Output run_all(const Body& body, const Dict& globals) {
    auto scope = std::make_shared<Scope>();
    for (const auto& [name, value] : globals) scope->names[name] = value;
    scope->names["namespace"] = Value(Function([this](const Arguments& a) { return kept(namespace_of(a)); }));
    scope->names["cycler"] = Value(Function([this](const Arguments& a) { return kept(cycler(a)); }));
    scope->names["joiner"] = Value(Function(joiner));
    Output output;
    top_ = &output;
    template_ = inner(scope);
    run_body(body, template_, output);
    if (!displaced_.empty()) place_displaced(output);
    return output;
  }

  // Macros keep the scope that they stand in, and it keeps them; a namespace may hold itself.
  ~Interpreter() {
    if (template_) template_->names.clear();
    for (const auto& scope : scopes_) scope->names.clear();
    for (const auto& fields : namespaces_) fields->clear();
  }

 private:
  void place_displaced(Output& output) const {
    for (const auto& [begin, characters] : displaced_) {
      size_t end = begin;
      for (size_t i = 0; i < characters && end < output.text.size(); ++i)
        end += next_character(std::string_view(output.text).substr(end)).length;
      output.displaced.emplace_back(begin, end);
    }
  }

  void count_step(int64_t weight = 1) {
    if ((steps_ += weight) > kMostSteps)
      throw PlacedError(fmt::format("the template took more than {} steps", kMostSteps));
  }

  ScopePtr inner(const ScopePtr& parent) { return std::make_shared<Scope>(Scope{parent, {}}); }

  void put(std::string_view text, Output& output) {
    written_ += text.size();
    if (written_ > kLargestOutput) throw PlacedError("the template wrote more than 256 MiB");
    output.text += text;
  }

  Flow run_body(const Body& body, const ScopePtr& scope, Output& output) {
    for (const auto& statement : body) {
      try {
        count_step();
        const Flow flow = run_statement(*statement, scope, output);
        if (flow != Flow::kOn) return flow;
      } catch (const PlacedError&) {
        throw;
      } catch (const RaisedByTemplate&) {
        throw;
      } catch (const TemplateError& error) {
        throw PlacedError(fmt::format("line {}: {}", statement->line, error.what()));
      }
    }
    return Flow::kOn;
  }

  Flow run_statement(const Statement& statement, const ScopePtr& scope, Output& output) {
    switch (statement.kind) {
      case Statement::kData:
        put(statement.text, output);
        return Flow::kOn;
      case Statement::kOutput: {
        const Value value = evaluate(*statement.expression, scope);
        put(value.str(), output);
        return Flow::kOn;
      }
      case Statement::kIf:
        for (const auto& [condition, body] : statement.branches) {
          if (!condition || evaluate(*condition, scope).truth()) return run_body(body, scope, output);
        }
        return Flow::kOn;
      case Statement::kFor:
        return run_for(statement, scope, output);
      case Statement::kSet:
        assign(*statement.targets[0], evaluate(*statement.expression, scope), scope);
        return Flow::kOn;
      case Statement::kSetBlock:
      case Statement::kFilterBlock: {
        Output part;
        run_body(statement.body, inner(scope), part);
        const auto filtered = inner(scope);
        filtered->names[""] = Value(std::move(part.text));  // the name that filters of a block start from
        const Value value = evaluate(*statement.expression, filtered);
        if (statement.kind == Statement::kSetBlock) {
          assign(*statement.targets[0], value, scope);
        } else {
          put(value.str(), output);
        }
        return Flow::kOn;
      }
      case Statement::kMacro:
        scope->names[statement.text] = make_macro(statement, scope, statement.text);
        return Flow::kOn;
      case Statement::kCallBlock: {
        Arguments arguments = evaluate_arguments(statement.expression->arguments, scope);
        dict_set(arguments.named, "caller", make_macro(statement, scope, "caller"));
        put(call(evaluate(*statement.expression->parts[0], scope), arguments).str(), output);
        return Flow::kOn;
      }
      case Statement::kWith: {
        const auto within = inner(scope);
        for (size_t i = 0; i < statement.targets.size(); ++i) {
          within->names[statement.targets[i]->name] = evaluate(*statement.values[i], scope);
        }
        return run_body(statement.body, within, output);
      }
      case Statement::kGeneration: {
        Output part;
        run_body(statement.body, inner(scope), part);
        const size_t begin = output.text.size();
        if (&output != top_) displaced_.emplace_back(top_->text.size(), characters_of(part.text).size());
        put(part.text, output);
        if (&output == top_) output.generated.emplace_back(begin, output.text.size());
        return Flow::kOn;
      }
      case Statement::kBlock:
        run_body(statement.body, inner(statement.scoped ? scope : template_), output);
        return Flow::kOn;
      case Statement::kBreak:
        return Flow::kBreak;
      case Statement::kContinue:
        return Flow::kContinue;
    }
    return Flow::kOn;
  }

  void assign(const Expression& target, const Value& value, const ScopePtr& scope) {
    if (target.kind == Expression::kName) {
      scope->names[target.name] = value;
    } else if (target.kind == Expression::kTuple) {
      const List elements = value.elements();
      if (elements.size() != target.parts.size()) {
        throw TemplateError(fmt::format("{} values for {} names", elements.size(), target.parts.size()));
      }
      for (size_t i = 0; i < elements.size(); ++i) assign(*target.parts[i], elements[i], scope);
    } else {
      const Value object = look_up(target.parts[0]->name, scope);
      if (!object.is_namespace() || object.fields().contains(kOwn))
        throw TemplateError("cannot assign attribute on non-namespace object");
      if (target.name.starts_with('_')) throw TemplateError("a namespace has no names that start with an underscore");
      object.fields()[target.name] = value;
    }
  }

  Flow run_for(const Statement& statement, const ScopePtr& scope, Output& output) {
    const Value over = evaluate(*statement.expression, scope);
    if (!statement.recursive) return run_loop(statement, over, 0, scope, output);
    // jinja2 writes nothing of it before it is over, which is where transformers looks for the place of what it marks.
    Output part;
    const Flow flow = run_loop(statement, over, 0, scope, part);
    put(part.text, output);
    return flow;
  }

  Flow run_loop(const Statement& statement, const Value& over, size_t depth, const ScopePtr& scope, Output& output) {
    std::function<bool(const Value&)> condition;
    if (statement.condition) {
      condition = [this, &statement, scope](const Value& element) {
        const auto test = inner(scope);
        assign(*statement.targets[0], element, test);
        return evaluate(*statement.condition, test).truth();
      };
    }
    const auto elements = std::make_shared<LoopElements>(over.elements(), std::move(condition));
    auto changed = std::make_shared<std::optional<Value>>();
    bool whole = false;  // a body came to its end: `else` is for where none did, not for where there is nothing
    for (size_t i = 0; elements->has(i); ++i) {
      count_step(10);
      const auto body = inner(scope);
      const auto fields = loop_fields(elements, i, depth, changed);
      if (statement.recursive) (*fields)[kCall] = again(statement, depth, scope);
      body->names["loop"] = Value(fields);
      assign(*statement.targets[0], elements->at(i), body);
      const Flow flow = run_body(statement.body, body, output);
      whole = whole || flow == Flow::kOn;
      if (flow != Flow::kBreak) continue;
      over.leave_unknown();
      break;
    }
    return whole ? Flow::kOn : run_body(statement.other, inner(scope), output);
  }

  // `loop(elements)` within a recursive loop: the text of the same loop over them.
  Value again(const Statement& statement, size_t depth, const ScopePtr& scope) {
    return Value(Function([this, &statement, depth, scope](const Arguments& arguments) {
      const Nested nested(call_depth_);
      Output part;
      run_loop(statement, Parameters("loop", arguments, {"iterable"}).need(0), depth + 1, scope, part);
      return Value(std::move(part.text));
    }));
  }

  Value make_macro(const Statement& statement, const ScopePtr& scope, const std::string& name) {
    scopes_.push_back(scope);
    const bool takes_caller = mentions(statement.body, "caller");
    const auto takes = [&](std::string_view special) {
      return mentions(statement.body, special) &&
             std::ranges::find(statement.parameters, special, &Parameter::name) == statement.parameters.end();
    };
    const bool takes_more = takes("varargs"), takes_named = takes("kwargs");
    return Value(Function([=, this, &statement](const Arguments& arguments) {
      const Nested nested(call_depth_);
      const auto body = inner(scope);
      if (arguments.positional.size() > statement.parameters.size() && !takes_more) {
        throw TemplateError(
            fmt::format("macro '{}' takes not more than {} argument(s)", name, statement.parameters.size()));
      }
      for (size_t i = 0; i < statement.parameters.size(); ++i) {
        const Parameter& parameter = statement.parameters[i];
        const auto named = std::find_if(arguments.named.begin(), arguments.named.end(),
                                        [&](const auto& argument) { return argument.first == parameter.name; });
        if (i < arguments.positional.size()) {
          body->names[parameter.name] = arguments.positional[i];
        } else if (named != arguments.named.end()) {
          body->names[parameter.name] = named->second;
        } else {
          body->names[parameter.name] =
              parameter.otherwise ? evaluate(*parameter.otherwise, body) : Value::undefined(parameter.name);
        }
      }
      Dict more;
      for (const auto& [key, value] : arguments.named) {
        const auto own = std::ranges::find(statement.parameters, key, &Parameter::name);
        const bool by_position = own - statement.parameters.begin() < std::ssize(arguments.positional);
        if (own != statement.parameters.end() && !by_position) continue;
        if (key == "caller" && takes_caller) {
          body->names["caller"] = value;
        } else {
          more.emplace_back(key, value);
        }
      }
      if (takes_caller) body->names.try_emplace("caller", Value::undefined("No caller defined"));
      if (takes_named) body->names["kwargs"] = Value(std::exchange(more, {}));
      if (takes_more) {
        const size_t own = std::min(arguments.positional.size(), statement.parameters.size());
        body->names["varargs"] =
            Value::tuple({arguments.positional.begin() + static_cast<ptrdiff_t>(own), arguments.positional.end()});
      }
      if (!more.empty()) {
        throw TemplateError(fmt::format("macro '{}' takes no keyword argument '{}'", name, more.front().first));
      }
      Output part;
      run_body(statement.body, body, part);
      return Value(std::move(part.text));
    }));
  }

  Value look_up(const std::string& name, const ScopePtr& scope) {
    for (const Scope* at = scope.get(); at != nullptr; at = at->parent.get()) {
      const auto found = at->names.find(name);
      if (found != at->names.end()) return found->second;
    }
    return Value::undefined(name);
  }

  Arguments evaluate_arguments(const CallArguments& from, const ScopePtr& scope) {
    Arguments arguments;
    for (const auto& value : from.positional) arguments.positional.push_back(evaluate(*value, scope));
    for (const auto& [name, value] : from.named) dict_set(arguments.named, name, evaluate(*value, scope));
    if (from.unpacked) {
      for (Value& value : evaluate(*from.unpacked, scope).elements()) arguments.positional.push_back(std::move(value));
    }
    if (from.unpacked_named) {
      const Value unpacked = evaluate(*from.unpacked_named, scope);
      for (const auto& [name, value] : unpacked.dict()) {
        if (std::ranges::find(arguments.named, name, &Dict::value_type::first) != arguments.named.end())
          throw TemplateError(fmt::format("multiple values for keyword argument '{}'", name));
        arguments.named.emplace_back(name, value);
      }
    }
    return arguments;
  }

  Value kept(std::shared_ptr<Namespace> fields) {
    namespaces_.push_back(fields);
    return Value(std::move(fields));
  }

  Value call(const Value& callee, const Arguments& arguments) {
    if (callee.is_undefined()) throw TemplateError(callee.why());
    if (callee.is_namespace() && callee.fields().contains(kCall)) {
      return call(callee.fields().at(kCall), arguments);
    }
    if (!callee.is_function()) throw TemplateError(fmt::format("'{}' object is not callable", callee.type_name()));
    return callee.function()(arguments);
  }

  bool compare(std::string_view name, const Value& left, const Value& right) {
    if (name == "==") return left.equals(right);
    if (name == "!=") return !left.equals(right);
    if (name == "in") return right.contains(left);
    if (name == "not in") return !right.contains(left);
    if (name == "<") return left.less(right);
    if (name == ">") return right.less(left);
    return name == "<=" ? (left.less(right) || left.equals(right)) : (right.less(left) || left.equals(right));
  }

  Value evaluate_compare(const Expression& expression, const ScopePtr& scope) {
    Value left = evaluate(*expression.parts[0], scope);
    for (size_t i = 0; i < expression.operators.size(); ++i) {
      Value right = evaluate(*expression.parts[i + 1], scope);
      if (!compare(expression.operators[i], left, right)) return false;
      left = std::move(right);
    }
    return true;
  }

  // What is made counts, kept or not: a bound on memory that needs no look at what is still held.
  Value evaluate(const Expression& expression, const ScopePtr& scope) {
    Value value = evaluate_uncounted(expression, scope);
    if (expression.kind == Expression::kName || expression.kind == Expression::kConstant) return value;
    if (value.is_string()) made_ += value.text().size();
    if (value.is_digits()) {  // what it takes grows with the square of the digits
      constexpr int64_t kDigitsOfStep = 64;
      const auto digits = static_cast<int64_t>(value.repr().size());
      count_step(digits * digits / (kDigitsOfStep * kDigitsOfStep));
    }
    if (value.is_list()) made_ += value.list().size() * sizeof(Value);
    if (made_ > kMostMade) throw PlacedError("the template made more than 1 GiB of values");
    return value;
  }

  Value evaluate_uncounted(const Expression& expression, const ScopePtr& scope) {
    count_step();
    const auto part = [&](size_t i) { return evaluate(*expression.parts[i], scope); };
    const auto bound = [&](size_t i) { return expression.parts[i] ? part(i) : Value(None{}); };
    switch (expression.kind) {
      case Expression::kConstant:
        return expression.constant;
      case Expression::kName:
        return look_up(expression.name, scope);
      case Expression::kList:
      case Expression::kTuple: {
        List list;
        for (size_t i = 0; i < expression.parts.size(); ++i) list.push_back(part(i));
        return expression.kind == Expression::kTuple ? Value::tuple(std::move(list)) : Value(std::move(list));
      }
      case Expression::kDict: {
        Dict dict;
        for (size_t i = 0; i < expression.parts.size(); i += 2) dict_set(dict, part(i).text(), part(i + 1));
        return dict;
      }
      case Expression::kAttribute:
        return attribute(part(0), expression.name);
      case Expression::kItem:
        return item(part(0), part(1));
      case Expression::kSlice:
        return slice(part(0), bound(1), bound(2), bound(3));
      case Expression::kCall: {
        const Value callee = part(0);
        return call(callee, evaluate_arguments(expression.arguments, scope));
      }
      case Expression::kFilter: {
        const Value value = part(0);
        return apply_filter(expression.name, value, evaluate_arguments(expression.arguments, scope));
      }
      case Expression::kTest: {
        const Value value = part(0);
        return apply_test(expression.name, value, evaluate_arguments(expression.arguments, scope));
      }
      case Expression::kNot:
        return !part(0).truth();
      case Expression::kUnary: {
        const Value value = part(0);
        const bool negate = expression.name == "-";
        if (value.is_float()) return negate ? -value.number() : value.number();
        if (value.is_digits() && !negate) return value;
        return negate ? binary("-", Value(0), value) : Value(value.integer());
      }
      case Expression::kBinary: {
        const Value left = part(0);
        return binary(expression.name, left, part(1));
      }
      case Expression::kCompare:
        return evaluate_compare(expression, scope);
      case Expression::kConcat: {
        std::string text;
        for (size_t i = 0; i < expression.parts.size(); ++i) text += part(i).str();
        if (text.size() > kLargestText) throw TemplateError("a text of more than 64 MiB");
        return text;
      }
      case Expression::kAnd: {
        Value left = part(0);
        return left.truth() ? part(1) : left;
      }
      case Expression::kOr: {
        Value left = part(0);
        return left.truth() ? left : part(1);
      }
      case Expression::kConditional:
        if (part(1).truth()) return part(0);
        return expression.parts[2] ? part(2) : Value::undefined("the inline if-expression without else");
    }
    return {};
  }

  const Output* top_ = nullptr;                       // of the template itself
  ScopePtr template_;                                 // its own names
  std::vector<std::pair<size_t, size_t>> displaced_;  // generation blocks elsewhere: byte of top_, characters
  int64_t steps_ = 0;
  size_t written_ = 0;
  size_t made_ = 0;
  int call_depth_ = 0;
  std::vector<ScopePtr> scopes_;                        // that macros stand in
  std::vector<std::shared_ptr<Namespace>> namespaces_;  // that were made
};

}  // namespace

Output run(const Body& body, const Dict& globals) { return Interpreter().run_all(body, globals); }

}  // namespace tandem::model::jinja
