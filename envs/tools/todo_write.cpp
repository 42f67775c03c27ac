// todo_write: a list that the model keeps for itself.
#include <algorithm>
#include <set>

#include "envs/tools/functions.h"

namespace tandem::envs {
namespace {

constexpr size_t kMostTodos = 100;
constexpr size_t kLeastOfList = 2;              // a list that is new; one item may change
constexpr size_t kTodoWriteLongestText = 2000;  // bytes of one item

}  // namespace

ToolOutcome tool_todo_write(const ToolContext& context, const Json& arguments) {
  const auto count = arguments.at("todos").size();
  if (!arguments.at("merge").get<bool>() && count < kLeastOfList) {
    return ToolOutcome::refused("argument \"todos\" must have at least " + std::to_string(kLeastOfList) +
                                " items, found " + std::to_string(count) + ". Use: todo_write{merge, todos}");
  }
  std::vector<Todo> todos;
  if (arguments.at("merge").get<bool>() && context.session) todos = context.session->todos;
  std::set<std::string> given;
  for (const auto& item : arguments.at("todos")) {
    Todo todo{item.at("id").get<std::string>(), item.at("content").get<std::string>(),
              item.at("status").get<std::string>()};
    if (todo.id.empty() || todo.content.empty()) {
      return ToolOutcome::refused("every item needs an id and a content that are not empty; nothing was changed");
    }
    if (todo.id.size() + todo.content.size() > kTodoWriteLongestText) {
      return ToolOutcome::refused("the item \"" + todo.id.substr(0, 80) + "\" is longer than " +
                                  std::to_string(kTodoWriteLongestText) +
                                  " bytes; say it in one line. Nothing was changed");
    }
    if (!given.insert(todo.id).second) {
      return ToolOutcome::refused("the id \"" + todo.id + "\" is given twice; nothing was changed");
    }
    const auto same = std::find_if(todos.begin(), todos.end(), [&](const Todo& old) { return old.id == todo.id; });
    if (same == todos.end()) {
      todos.push_back(std::move(todo));
    } else {
      *same = std::move(todo);
    }
  }
  if (todos.size() > kMostTodos) {
    return ToolOutcome::refused("a list may have " + std::to_string(kMostTodos) + " items, and this one would have " +
                                std::to_string(todos.size()) + "; nothing was changed");
  }
  const auto done = std::count_if(todos.begin(), todos.end(), [](auto& todo) { return todo.status == "completed"; });
  std::string text = std::to_string(done) + " of " + std::to_string(todos.size()) + " completed.\n";
  for (const auto& todo : todos) text += todo.id + " [" + todo.status + "] " + todo.content + "\n";
  if (context.session) context.session->todos = std::move(todos);
  return ToolOutcome::done(std::move(text));
}

}  // namespace tandem::envs
