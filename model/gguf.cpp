#include "model/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/lfs_pointer.h"

namespace tandem::model {
namespace {

constexpr uint64_t kMostElements = 1 << 22;  // of a metadata array
constexpr uint32_t kMostDimensions = 4;

struct TypeInfo {
  GgmlType type;
  const char* name;
  uint64_t block;  // elements
  uint64_t block_bytes;
};

constexpr TypeInfo kTypes[] = {
    {GgmlType::kF32, "F32", 1, 4},       {GgmlType::kF16, "F16", 1, 2},       {GgmlType::kBF16, "BF16", 1, 2},
    {GgmlType::kQ4_0, "Q4_0", 32, 18},   {GgmlType::kQ4_1, "Q4_1", 32, 20},   {GgmlType::kQ5_0, "Q5_0", 32, 22},
    {GgmlType::kQ5_1, "Q5_1", 32, 24},   {GgmlType::kQ8_0, "Q8_0", 32, 34},   {GgmlType::kQ4_K, "Q4_K", 256, 144},
    {GgmlType::kQ5_K, "Q5_K", 256, 176}, {GgmlType::kQ6_K, "Q6_K", 256, 210},
};

const TypeInfo* info_of(uint32_t type) {
  for (const TypeInfo& info : kTypes) {
    if (static_cast<uint32_t>(info.type) == type) return &info;
  }
  return nullptr;
}

// Values in a row, each read checked against the end.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes) : bytes_(bytes) {}

  size_t position() const { return position_; }
  size_t left() const { return bytes_.size() - position_; }

  template <typename T>
  Result<T> number() {
    T value;
    if (left() < sizeof value) return fail(cut_short());
    std::memcpy(&value, bytes_.data() + position_, sizeof value);
    position_ += sizeof value;
    return value;
  }

  Result<std::string> text() {
    const uint64_t length = TRY(number<uint64_t>());
    if (length > left()) return fail(cut_short());
    std::string value(reinterpret_cast<const char*>(bytes_.data()) + position_, length);
    position_ += length;
    return value;
  }

  Status cut_short() const {
    return Status::corrupt(fmt::format("ends at byte {} in the middle of its directory", bytes_.size()));
  }

 private:
  std::span<const std::byte> bytes_;
  size_t position_ = 0;
};

enum ValueType : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kText, kArray, kU64, kI64, kF64 };

template <typename T>
Result<Json> number_value(Cursor& cursor) {
  const T value = TRY(cursor.number<T>());
  return Json(value);
}

Result<Json> read_scalar(Cursor& cursor, uint32_t type) {
  switch (type) {
    case kU8:
      return number_value<uint8_t>(cursor);
    case kI8:
      return number_value<int8_t>(cursor);
    case kU16:
      return number_value<uint16_t>(cursor);
    case kI16:
      return number_value<int16_t>(cursor);
    case kU32:
      return number_value<uint32_t>(cursor);
    case kI32:
      return number_value<int32_t>(cursor);
    case kU64:
      return number_value<uint64_t>(cursor);
    case kI64:
      return number_value<int64_t>(cursor);
    case kF64:
      return number_value<double>(cursor);
    case kF32: {
      // The shortest decimal that is this float: 1e-5 rather than 9.99999974737875e-06.
      const float value = TRY(cursor.number<float>());
      return Json(std::strtod(fmt::format("{}", value).c_str(), nullptr));
    }
    case kBool: {
      const auto value = TRY(cursor.number<uint8_t>());
      if (value > 1) return fail(Status::corrupt(fmt::format("a bool is {}", value)));
      return Json(value == 1);
    }
    case kText:
      return Json(TRY(cursor.text()));
    default:
      return fail(Status::corrupt(fmt::format("value type {} does not exist", type)));
  }
}

Result<Json> read_value(Cursor& cursor) {
  const auto type = TRY(cursor.number<uint32_t>());
  if (type != kArray) return read_scalar(cursor, type);
  const auto element = TRY(cursor.number<uint32_t>());
  const auto count = TRY(cursor.number<uint64_t>());
  if (element == kArray) return fail(Status::invalid("arrays of arrays are not supported"));
  if (count > kMostElements)
    return fail(Status::invalid(fmt::format("{} elements; the limit is {}", count, kMostElements)));
  if (count > cursor.left()) return fail(cursor.cut_short());  // each element has at least one byte
  Json values = Json::array();
  for (uint64_t i = 0; i < count; ++i) values.push_back(TRY(read_scalar(cursor, element)));
  return values;
}

struct Entry {
  std::string name;
  GgufTensor tensor;
  uint64_t offset = 0;
  uint64_t size = 0;
};

Result<Entry> read_tensor_entry(Cursor& cursor) {
  Entry entry;
  entry.name = TRY(cursor.text());
  const auto at = [&](Status status) { return std::move(status).at("tensor " + entry.name); };
  const auto dimensions = TRY(cursor.number<uint32_t>());
  if (dimensions > kMostDimensions) return fail(at(Status::corrupt(fmt::format("has {} dimensions", dimensions))));
  int64_t most = 1;  // elements, were none of the lengths zero: in whatever order they are multiplied
  uint64_t elements = 1;
  uint64_t row = 1;
  for (uint32_t i = 0; i < dimensions; ++i) {
    const auto length = TRY(cursor.number<uint64_t>());
    if (__builtin_mul_overflow(most, std::max<uint64_t>(length, 1), &most)) {
      return fail(at(Status::corrupt("is larger than any file")));
    }
    elements *= length;
    if (i == 0) row = length;
    entry.tensor.shape.insert(entry.tensor.shape.begin(), static_cast<int64_t>(length));
  }
  const auto type = TRY(cursor.number<uint32_t>());
  const TypeInfo* info = info_of(type);
  if (info == nullptr) return fail(at(Status::invalid(fmt::format("ggml type {} is not supported", type))));
  if (row % info->block != 0) {
    return fail(at(Status::corrupt(fmt::format("rows of {} are not whole blocks of {}", row, info->name))));
  }
  entry.tensor.type = info->type;
  entry.offset = TRY(cursor.number<uint64_t>());
  if (__builtin_mul_overflow(elements / info->block, info->block_bytes, &entry.size)) {
    return fail(at(Status::corrupt("is larger than any file")));
  }
  return entry;
}

}  // namespace

std::string_view name_of(GgmlType type) {
  const TypeInfo* info = info_of(static_cast<uint32_t>(type));
  return info == nullptr ? "unknown" : info->name;
}

int64_t GgufTensor::elements() const {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

Result<Gguf> Gguf::open(const fs::path& path) {
  Gguf gguf(TRY(MappedFile::open(path)));
  Status status = gguf.read();
  if (!status.ok()) return fail(std::move(status).at(path.string()));
  return gguf;
}

Status Gguf::read() {
  const auto bytes = file_.bytes();
  Cursor cursor(bytes);
  TRY(check_not_lfs_pointer({reinterpret_cast<const char*>(bytes.data()), std::min<size_t>(bytes.size(), 64)}));
  if (bytes.size() < 4 || std::memcmp(bytes.data(), "GGUF", 4) != 0) return Status::invalid("is not a GGUF file");
  TRY(cursor.number<uint32_t>());
  const auto version = TRY(cursor.number<uint32_t>());
  if (version != 2 && version != 3) return Status::invalid(fmt::format("GGUF version {} is not 2 or 3", version));
  const auto tensor_count = TRY(cursor.number<uint64_t>());
  const auto value_count = TRY(cursor.number<uint64_t>());
  for (uint64_t i = 0; i < value_count; ++i) {
    std::string key = TRY(cursor.text());
    auto value = read_value(cursor);
    if (!value) return std::move(value).error().at("metadata " + key);
    if (!metadata_.emplace(key, std::move(*value)).second) {
      return Status::corrupt(fmt::format("metadata {} stands twice", key));
    }
  }
  std::vector<Entry> entries;
  for (uint64_t i = 0; i < tensor_count; ++i) entries.push_back(TRY(read_tensor_entry(cursor)));

  uint64_t alignment = 32;
  if (const auto found = metadata_.find("general.alignment"); found != metadata_.end()) {
    alignment = found->is_number_unsigned() ? found->get<uint64_t>() : 0;
    if (alignment < 1 || alignment > (1 << 20) || (alignment & (alignment - 1)) != 0) {
      return Status::corrupt(fmt::format("general.alignment is {}", dump_json(*found)));
    }
  }
  const uint64_t start = (cursor.position() + alignment - 1) / alignment * alignment;
  const auto data = start <= bytes.size() ? bytes.subspan(start) : std::span<const std::byte>();
  for (Entry& entry : entries) {
    if (entry.offset % alignment != 0 || entry.offset > data.size() || entry.size > data.size() - entry.offset) {
      return Status::corrupt(
          fmt::format("tensor {} ({} bytes at {}) lies outside the {} bytes of data; the file may be cut "
                      "short",
                      entry.name, entry.size, entry.offset, data.size()));
    }
    entry.tensor.bytes = data.subspan(entry.offset, entry.size);
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return std::pair(a.offset, a.size) < std::pair(b.offset, b.size); });
  uint64_t end = 0;
  for (Entry& entry : entries) {
    if (entry.offset < end) return Status::corrupt(fmt::format("tensor {} overlaps the one before it", entry.name));
    end = entry.offset + entry.size;
    if (!tensors_.emplace(entry.name, std::move(entry.tensor)).second) {
      return Status::corrupt(fmt::format("tensor {} stands twice", entry.name));
    }
  }
  return {};
}

}  // namespace tandem::model
