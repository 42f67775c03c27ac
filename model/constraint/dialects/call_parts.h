// Building blocks for grammars of calls.
#pragma once

#include "model/constraint/dialects/calls.h"
#include "model/tool_dialect.h"
#include "model/tool_dialects/marked_calls.h"

namespace tandem::model::constraint {

inline uint32_t add_part(CallGraph& graph, Part part) {
  graph.parts.push_back(std::move(part));
  return static_cast<uint32_t>(graph.parts.size() - 1);
}

// For dialects that write a call as one object: an object with the name and, under `arguments_key`, the arguments, or,
// where the dialect has that, a list of them, alone or beside that. It is the grammar's root.
enum class CallLists : uint8_t { kNo, kYes, kOnly };
Result<Grammar> object_of_calls(const CallsAsked& asked, const std::string& arguments_key, CallLists lists);

// For dialects that write name and arguments apart: the nodes of the arguments are the grammar's entries, by tool;
// those without a value are never begun. There is one with a value at least.
Result<Grammar> arguments_of_tools(const std::vector<OfferedTool>& tools);

// kInvalid where what the dialect writes of a call of this name is not read back as one.
Status check_name(ToolDialect dialect, const std::string& name);

// How a call between marks is written; {} is its name.
struct MarkedForm {
  const CallMarks& marks;
  std::string head;       // before the mark in the middle
  bool numbered = false;  // a number follows the head
  std::string behind;     // the mark in the middle, before the arguments
  std::string tail;       // behind the arguments
  uint8_t guard = 0;      // the byte that marks have behind their '<'
};
Result<Grammar> marked_calls(ToolDialect dialect, const MarkedForm& form, const CallsAsked& asked);

}  // namespace tandem::model::constraint
