// Runs a parsed template.
//
// Bounded: steps (expressions and statements), output, depth of calls and the size of every value; a template cannot
// read files, reach the process, or change what it was given.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/jinja/ast.h"

namespace tandem::model::jinja {

struct Output {
  std::string text;
  // Bytes [begin, end) of `text` that came out of {% generation %} blocks.
  std::vector<std::pair<size_t, size_t>> generated;
  // Blocks within macros, filters, set blocks and each other: where transformers takes them to be, which is as many
  // characters behind the text so far as the block wrote.
  std::vector<std::pair<size_t, size_t>> displaced;
};

// `globals` are the variables and functions that the template sees. Throws TemplateError; messages of errors in the
// template name its line, those of raise_exception are the template's own words.
Output run(const Body& body, const Dict& globals);

// Thrown by the function raise_exception: the words are the template's, no line is added.
class RaisedByTemplate : public TemplateError {
 public:
  using TemplateError::TemplateError;
};

}  // namespace tandem::model::jinja
