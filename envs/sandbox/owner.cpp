#include "envs/sandbox/owner.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>

#include "base/file.h"
#include "base/text.h"
#include "envs/sandbox/process_fields.h"

namespace tandem::envs {
namespace {

std::string boot() {
  auto id = read_file("/proc/sys/kernel/random/boot_id", 64).value_or("");
  std::erase_if(id, [](unsigned char c) { return std::isalnum(c) == 0; });
  return id.empty() ? "unknown" : id.substr(0, 12);  // an owner is a part of the path of a socket
}

// "pid:[4026531836]" -> "4026531836".
std::string process_namespace() {
  std::error_code error;
  auto name = fs::read_symlink("/proc/self/ns/pid", error).string();
  std::erase_if(name, [](unsigned char c) { return std::isdigit(c) == 0; });
  return name.empty() ? "unknown" : name;
}

// Empty where there is no such process, or none that still runs.
std::string start_of(std::string_view process) {
  const auto fields = process_fields(process);
  return fields.size() < 20 || fields[0] == "Z" ? "" : fields[19];
}

}  // namespace

std::string this_owner() {
  const auto process = std::to_string(getpid());
  return fmt::format("{}.{}.{}.{}", boot(), process_namespace(), process, start_of(process));
}

bool owner_is_gone(std::string_view owner) {
  const auto parts = split(owner, '.');
  const auto is_plain = [](std::string_view part) {
    return !part.empty() && std::all_of(part.begin(), part.end(), [](unsigned char c) { return std::isalnum(c) != 0; });
  };
  if (parts.size() != 4 || !std::all_of(parts.begin(), parts.end(), is_plain)) return false;
  if (parts[0] != boot()) return true;
  return parts[1] == process_namespace() && parts[3] != start_of(parts[2]);
}

}  // namespace tandem::envs
