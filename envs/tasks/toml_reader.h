// Reads TOML that people write, strictly: keys that nobody knows, and those that ask for what there is not, are
// mistakes with file and line. Reading goes on after each, so that all are told at once.
//
// Thread safety: none; used by one thread.
#pragma once

#include <toml++/toml.h>

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "envs/tasks/mistakes.h"

namespace tandem::envs {

// A key, with the names of its tables before it and dots between: whether its value matters here, says nothing here, or
// asks for what there is not.
enum class Support : uint8_t { kRead, kSaysNothing, kRefused };
struct TomlKey {
  std::string_view path;
  Support support;
};

// A value as Harbor has it: "${NAME:-TEXT}" is the variable of the machine, or TEXT. No variable of a machine reaches a
// sandbox, so it is TEXT; of "${NAME}" there is nothing. Other texts stay.
std::optional<std::string> without_machine_variable(std::string_view text);

class TomlReader {
 public:
  TomlReader(std::string file, Mistakes& mistakes) : file_(std::move(file)), mistakes_(mistakes) {}

  void mistake(int line, const std::string& what) { mistakes_.add(file_, line, what); }

  // Calls `take` for each key of the file that matters.
  using Take = std::function<void(const std::string& path, const toml::node& value, int line)>;
  void read(std::span<const TomlKey> keys, const Take& take);
  // The same of a table in it.
  void read(const toml::table& table, std::span<const TomlKey> keys, const Take& take);

  // A table of names and texts as commands of a shell that export them, by without_machine_variable.
  std::string exports(const std::string& path, const toml::node& value, int line);

 private:
  void walk(const toml::table& table, const std::string& prefix, std::span<const TomlKey> keys, const Take& take);

  const std::string file_;
  Mistakes& mistakes_;
};

}  // namespace tandem::envs
