#include "envs/sandbox/fields.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace tandem::envs {

void put_number(std::string& bytes, uint64_t number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
}

void put_text(std::string& bytes, std::string_view text) {
  put_number(bytes, text.size());
  bytes.append(text);
}

void put_seconds(std::string& bytes, double seconds) {
  const double bounded = seconds > 0 ? std::min(seconds, kLongestSeconds) : 0;
  put_number(bytes, static_cast<uint64_t>(std::llround(bounded * 1000)));
}

void put_files(std::string& bytes, const Files& files) {
  put_number(bytes, files.size());
  for (const auto& [path, content] : files) {
    put_text(bytes, path);
    put_text(bytes, content);
  }
}

void put_session(std::string& bytes, const Session& session) {
  put_text(bytes, session.shell.directory);
  put_number(bytes, session.shell.environment.size());
  for (const auto& setting : session.shell.environment) put_text(bytes, setting);
  put_number(bytes, session.todos.size());
  for (const auto& todo : session.todos) {
    for (const auto* text : {&todo.id, &todo.content, &todo.status}) put_text(bytes, *text);
  }
}

Result<uint64_t> FieldReader::number() {
  uint64_t number = 0;
  if (bytes_.size() < sizeof number) return fail(Status::corrupt("bytes end within a field"));
  memcpy(&number, bytes_.data(), sizeof number);
  bytes_.remove_prefix(sizeof number);
  return number;
}

Result<double> FieldReader::seconds() {
  const auto seconds = static_cast<double>(TRY(number())) / 1000;
  if (seconds > kLongestSeconds) return fail(Status::corrupt("a time is out of bounds"));
  return seconds;
}

Result<Digest> FieldReader::digest() {
  const uint64_t low = TRY(number()), high = TRY(number());
  return Digest{low, high};
}

Result<std::string> FieldReader::text() {
  const uint64_t size = TRY(number());
  if (size > bytes_.size()) return fail(Status::corrupt("bytes end within a field"));
  std::string text(bytes_.substr(0, size));
  bytes_.remove_prefix(size);
  return text;
}

Result<Files> FieldReader::files() {
  const uint64_t count = TRY(number());
  Files files;
  for (uint64_t i = 0; i < count; ++i) {
    auto path = TRY(text());
    files[std::move(path)] = TRY(text());
  }
  return files;
}

Result<Session> FieldReader::session() {
  Session session;
  session.shell.directory = TRY(text());
  for (uint64_t count = TRY(number()); count > 0; --count) session.shell.environment.push_back(TRY(text()));
  for (uint64_t count = TRY(number()); count > 0; --count) {
    Todo todo;
    for (auto* each : {&todo.id, &todo.content, &todo.status}) *each = TRY(text());
    session.todos.push_back(std::move(todo));
  }
  return session;
}

}  // namespace tandem::envs
