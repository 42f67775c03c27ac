#include "dashboard/tensorboard.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "dashboard/run_files.h"

namespace tandem::dashboard {

namespace {

constexpr std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
    table[i] = crc;
  }
  return table;
}

template <typename T>
void put(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

// Protocol buffers: a field's number and wire type, then its value.
enum WireType : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}
void put_key(std::string& out, int field, WireType type) { put_varint(out, static_cast<uint64_t>(field) << 3 | type); }
void put_bytes(std::string& out, int field, std::string_view bytes) {
  put_key(out, field, kBytes);
  put_varint(out, bytes.size());
  out += bytes;
}

std::string event_at(double unix_seconds) {
  std::string event;
  put_key(event, 1, kFixed64);  // Event.wall_time
  put(event, unix_seconds);
  return event;
}

void flatten(const std::string& prefix, const Json& value, std::vector<Scalar>& scalars) {
  if (value.is_object()) {
    for (const auto& [key, inner] : value.items()) flatten(prefix.empty() ? key : prefix + "/" + key, inner, scalars);
  } else if (value.is_number() && std::isfinite(value.get<double>())) {
    scalars.emplace_back(prefix, value.get<double>());
  }
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = crc_table();
  uint32_t crc = 0xffffffffu;
  for (const char byte : bytes) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<uint8_t>(byte)) & 0xff];
  return ~crc;
}

uint32_t masked_crc32c(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

std::vector<Scalar> scalars_of(const Json& line) {
  std::vector<Scalar> scalars;
  if (!line.is_object()) return scalars;
  for (const auto& [key, value] : line.items()) {
    if (key != "step" && key != "time") flatten(key, value, scalars);
  }
  return scalars;
}

Result<EventFile> EventFile::create(const fs::path& folder, const Clock& clock) {
  TRY(make_directories(folder));
  char host[256] = "localhost";
  (void)::gethostname(host, sizeof(host) - 1);
  const double now = clock.unix_seconds();
  for (int n = 0;; ++n) {
    const fs::path path =
        folder / fmt::format("events.out.tfevents.{:.0f}.{}.{}.{}", std::floor(now), host, ::getpid(), n);
    FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644));
    if (!file && errno == EEXIST) continue;
    if (!file) return fail(Status::from_errno(path.string(), errno));
    EventFile events(path, std::move(file));
    std::string first = event_at(now);
    put_bytes(first, 3, "brain.Event:2");  // Event.file_version
    TRY(events.append(first));
    return events;
  }
}

Status EventFile::append(std::string_view message) {
  std::string length, record;
  put(length, static_cast<uint64_t>(message.size()));
  record += length;
  put(record, masked_crc32c(length));
  record += message;
  put(record, masked_crc32c(message));
  return write_all(file_.get(), record, path_.string());
}

Status EventFile::add(int64_t step, double unix_seconds, const std::vector<Scalar>& scalars) {
  std::string event = event_at(unix_seconds), summary;
  put_key(event, 2, kVarint);  // Event.step
  put_varint(event, static_cast<uint64_t>(step));
  for (const auto& [tag, number] : scalars) {
    std::string value;
    put_bytes(value, 1, tag);     // Summary.Value.tag
    put_key(value, 2, kFixed32);  // Summary.Value.simple_value
    put(value, static_cast<float>(number));
    put_bytes(summary, 1, value);
  }
  put_bytes(event, 5, summary);  // Event.summary
  return append(event);
}

Status EventFile::add_line(const Json& line) {
  return add(static_cast<int64_t>(number_at(line, "step")), number_at(line, "time"), scalars_of(line));
}

}  // namespace tandem::dashboard
