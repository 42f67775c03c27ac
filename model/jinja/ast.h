// A template as a tree. Built by the parser, read by the interpreter, never changed.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/jinja/value.h"

namespace tandem::model::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr unpacked, unpacked_named;  // *unpacked, **unpacked_named; null: none
};

struct Expression {
  enum Kind {
    kConstant,
    kName,       // name
    kList,       // parts
    kTuple,      // parts
    kDict,       // parts: key, value, key, value
    kAttribute,  // parts[0].name
    kItem,       // parts[0][parts[1]]
    kSlice,      // parts[0][parts[1]:parts[2]:parts[3]]; absent ones are null
    kCall,       // parts[0](arguments)
    kFilter,     // parts[0] | name(arguments)
    kTest,       // parts[0] is name(arguments)
    kNot,        // parts[0]
    kUnary,      // name parts[0]
    kBinary,     // parts[0] name parts[1]
    kCompare,    // parts[0] operators[0] parts[1] operators[1] parts[2]
    kConcat,     // parts
    kAnd,
    kOr,
    kConditional,  // parts: value, condition, otherwise (or null)
  };
  Kind kind = kConstant;
  int line = 0;
  Value constant;
  std::string name;
  std::vector<ExpressionPtr> parts;
  std::vector<std::string> operators;
  CallArguments arguments;
};

struct Statement;
using Body = std::vector<std::unique_ptr<Statement>>;

struct Parameter {
  std::string name;
  ExpressionPtr otherwise;  // null: none
};

struct Statement {
  enum Kind {
    kData,         // text
    kOutput,       // expression
    kIf,           // branches: condition (null for else) and body
    kFor,          // targets in expression, if condition: body, else other; `recursive`
    kSet,          // targets = expression
    kSetBlock,     // targets = body, through expression's filters if there are any
    kMacro,        // text (name), parameters: body
    kCallBlock,    // expression is the call; parameters: body is `caller`
    kFilterBlock,  // expression's filters over body
    kWith,         // targets with values: body
    kGeneration,   // body is the assistant's
    kBlock,        // body, which sees the names of the template; `scoped`: those around it too
    kBreak,
    kContinue,
  };
  Kind kind = kData;
  int line = 0;
  std::string text;
  ExpressionPtr expression;
  ExpressionPtr condition;
  std::vector<ExpressionPtr> targets;  // names or attributes; one with parts.kTuple where it is unpacked
  std::vector<ExpressionPtr> values;
  std::vector<std::pair<ExpressionPtr, Body>> branches;
  std::vector<Parameter> parameters;
  Body body;
  Body other;
  bool recursive = false, scoped = false;
};

// Whether a name is read in it.
bool mentions(const Body& body, std::string_view name);

// Throws TemplateError that names the line. Filters and tests that do not exist are an error where they are reached.
Body parse(std::string_view source);

}  // namespace tandem::model::jinja
