#include "model/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

#include "base/json.h"
#include "base/lfs_pointer.h"
#include "base/text.h"

namespace tandem::model {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are used in place");

constexpr uint64_t kHeaderLimit = 100'000'000;  // the format's own limit
constexpr const char* kSingleName = "model.safetensors";
constexpr const char* kIndexName = "model.safetensors.index.json";

// False where the product does not fit.
bool multiply(uint64_t a, uint64_t b, uint64_t& product) { return !__builtin_mul_overflow(a, b, &product); }

Result<uint64_t> unsigned_number(const Json& value, std::string_view what) {
  if (!value.is_number_unsigned()) {
    return fail(Status::corrupt(fmt::format("{} is {}, not a whole number of at least 0", what, value.dump())));
  }
  return value.get<uint64_t>();
}

struct Range {
  uint64_t begin = 0;
  uint64_t end = 0;
  std::string_view name;
};

// One entry of a header; `data` is everything behind the header.
Result<TensorView> read_entry(const Json& entry, std::span<const std::byte> data, Range& range) {
  if (!entry.is_object()) return fail(Status::corrupt("is not an object"));
  for (const auto& [key, value] : entry.items()) {
    if (key != "dtype" && key != "shape" && key != "data_offsets") {
      return fail(Status::corrupt(fmt::format("has the unknown key \"{}\"", key)));
    }
  }
  if (entry.size() != 3) return fail(Status::corrupt("lacks one of dtype, shape, data_offsets"));
  const Json& dtype_name = entry["dtype"];
  const auto dtype = dtype_name.is_string() ? dtype_from_safetensors(dtype_name.get_ref<const std::string&>())
                                            : std::optional<DType>();
  if (!dtype) return fail(Status::invalid(fmt::format("dtype {} is not supported", dtype_name.dump())));
  if (!entry["shape"].is_array()) return fail(Status::corrupt("shape is not a list"));
  TensorView view{.dtype = *dtype};
  uint64_t size = bytes_of(*dtype), most = size;  // most: were no length zero, in whatever order they are multiplied
  for (const Json& extent : entry["shape"]) {
    const uint64_t length = TRY(unsigned_number(extent, "a length in shape"));
    if (!multiply(most, std::max<uint64_t>(length, 1), most) || most > INT64_MAX) {
      return fail(Status::corrupt(fmt::format("shape {} is larger than any file", entry["shape"].dump())));
    }
    size *= length;
    view.shape.push_back(static_cast<int64_t>(length));
  }
  const Json& offsets = entry["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2) return fail(Status::corrupt("data_offsets is not a pair"));
  range.begin = TRY(unsigned_number(offsets[0], "data_offsets[0]"));
  range.end = TRY(unsigned_number(offsets[1], "data_offsets[1]"));
  if (range.begin > range.end || range.end > data.size()) {
    return fail(Status::corrupt(fmt::format(
        "data_offsets {} are outside the {} bytes of data; the file may be cut short", offsets.dump(), data.size())));
  }
  if (range.end - range.begin != size) {
    return fail(Status::corrupt(fmt::format("{} of shape {} needs {} bytes, data_offsets give {}", dtype_name.dump(),
                                            entry["shape"].dump(), size, range.end - range.begin)));
  }
  view.bytes = data.subspan(range.begin, size);
  return view;
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Status pickle_refused(std::string_view verb, const fs::path& path) {
  return Status::invalid(fmt::format("{} a pickle checkpoint, which can run code when it is read", verb))
      .at(path.string())
      .hint("convert it once with transformers or peft: model.save_pretrained(DIR, safe_serialization=True)");
}

}  // namespace

int64_t TensorView::elements() const {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

Result<Safetensors> Safetensors::open(const fs::path& path) {
  Safetensors result;
  result.source_ = path.string();
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    TRY(result.add_file(path));
    return result;
  }
  if (fs::exists(path / kIndexName, error)) {
    TRY(result.add_index(path / kIndexName));
    return result;
  }
  if (fs::exists(path / kSingleName, error)) {
    TRY(result.add_file(path / kSingleName));
    return result;
  }
  for (const char* pickled : {"pytorch_model.bin", "pytorch_model.bin.index.json", "consolidated.00.pth"})
    if (fs::exists(path / pickled, error)) return fail(pickle_refused("holds", path));
  return fail(Status::not_found(fmt::format("holds neither {} nor {}", kSingleName, kIndexName)).at(path.string()));
}

Status Safetensors::add_file(const fs::path& path) {
  MappedFile file = TRY(MappedFile::open(path));
  const auto bytes = file.bytes();
  const auto corrupt = [&](std::string message) { return Status::corrupt(std::move(message)).at(path.string()); };
  // As torch.save writes it: a ZIP archive, or protocol 2 of pickle.
  if (const auto begin = as_text(bytes); begin.starts_with("PK\3\4") || begin.starts_with("\x80\x02"))
    return pickle_refused("is", path);
  if (Status status = check_not_lfs_pointer(as_text(bytes.first(std::min<size_t>(bytes.size(), 64)))); !status.ok())
    return std::move(status).at(path.string());
  uint64_t header_size = 0;
  if (bytes.size() < sizeof header_size) return corrupt(fmt::format("{} bytes are too few", bytes.size()));
  std::memcpy(&header_size, bytes.data(), sizeof header_size);
  if (header_size > kHeaderLimit || header_size > bytes.size() - sizeof header_size) {
    return corrupt(fmt::format("the header claims {} bytes of a file of {}", header_size, bytes.size()));
  }
  const auto header_text = as_text(bytes.subspan(sizeof header_size, header_size));
  const auto data = bytes.subspan(sizeof header_size + header_size);
  auto header = parse_json(header_text);
  if (!header) return corrupt("header: " + header.error().message());
  if (!header->is_object()) return corrupt("the header is not an object");

  std::vector<Range> ranges;
  for (const auto& [name, entry] : header->items()) {
    if (name == "__metadata__") {
      if (!entry.is_object()) return corrupt("__metadata__ is not an object");
      for (const auto& [key, value] : entry.items()) {
        if (!value.is_string()) return corrupt(fmt::format("__metadata__.{} is not a string", key));
        metadata_[key] = value.get<std::string>();
      }
      continue;
    }
    Range range;
    auto view = read_entry(entry, data, range);
    if (!view) return std::move(view).error().at(fmt::format("{}: tensor {}", path.string(), name));
    const auto [position, added] = tensors_.emplace(name, std::move(*view));
    if (!added) return corrupt(fmt::format("tensor {} is also in another shard", name));
    range.name = position->first;
    ranges.push_back(range);
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  uint64_t covered = 0;
  for (const Range& range : ranges) {
    if (range.begin < covered) return corrupt(fmt::format("tensor {} overlaps the one before it", range.name));
    if (range.begin > covered)
      return corrupt(fmt::format("{} bytes before tensor {} belong to nothing", range.begin - covered, range.name));
    covered = range.end;
  }
  if (covered != data.size()) {
    return corrupt(fmt::format("{} bytes at the end belong to no tensor", data.size() - covered));
  }
  files_.push_back(std::move(file));
  return {};
}

Status Safetensors::add_index(const fs::path& path) {
  const std::string text = TRY(read_file(path, kHeaderLimit));
  auto index = parse_json(text);
  if (!index) return std::move(index).error().at(path.string());
  if (!index->is_object() || !index->contains("weight_map") || !(*index)["weight_map"].is_object()) {
    return Status::corrupt("has no object weight_map").at(path.string());
  }
  std::set<std::string> shards;
  std::vector<std::string> names;
  for (const auto& [name, shard] : (*index)["weight_map"].items()) {
    const auto file = shard.is_string() ? shard.get<std::string>() : std::string();
    // A shard is a file beside the index: an index must not be able to name others.
    if (file.empty() || file.find('/') != std::string::npos || file == "." || file == "..") {
      return Status::corrupt(fmt::format("weight_map[\"{}\"] is {}, not a file name", name, shard.dump()))
          .at(path.string());
    }
    shards.insert(file);
    names.push_back(name);
  }
  std::vector<std::string> missing;
  for (const std::string& shard : shards) {
    std::error_code error;
    if (!fs::exists(path.parent_path() / shard, error)) missing.push_back(shard);
  }
  if (!missing.empty()) {
    return Status::not_found(
               fmt::format("{} of {} shards are missing: {}", missing.size(), shards.size(), join(missing, ", ")))
        .at(path.string());
  }
  for (const std::string& shard : shards) TRY(add_file(path.parent_path() / shard));
  return require(names);
}

Result<TensorView> Safetensors::get(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found != tensors_.end()) return found->second;
  std::vector<std::string_view> names;
  for (const auto& [known, view] : tensors_) names.push_back(known);
  const std::string near = nearest(name, names);
  return fail(Status::not_found(fmt::format("no tensor {}{}", name, near.empty() ? "" : "; did you mean " + near + "?"))
                  .at(source_));
}

Status Safetensors::require(std::span<const std::string> names) const {
  std::vector<std::string> missing;
  for (const std::string& name : names) {
    if (!tensors_.contains(name)) missing.push_back(name);
  }
  if (missing.empty()) return {};
  return Status::not_found(fmt::format("{} tensors are missing: {}", missing.size(), join(missing, ", "))).at(source_);
}

Status write_safetensors(const fs::path& path, std::span<const NamedTensor> tensors,
                         const std::map<std::string, std::string>& metadata) {
  // Wide elements first, so that each tensor is aligned to its own element without holes, which the format forbids.
  std::vector<const NamedTensor*> order;
  for (const NamedTensor& tensor : tensors) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(), [](const NamedTensor* a, const NamedTensor* b) {
    return bytes_of(a->tensor.dtype) > bytes_of(b->tensor.dtype);
  });
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::vector<std::string_view> parts(2);
  uint64_t offset = 0;
  for (const NamedTensor* named : order) {
    const TensorView& tensor = named->tensor;
    const auto expected = static_cast<uint64_t>(tensor.elements()) * bytes_of(tensor.dtype);
    if (tensor.bytes.size() != expected || header.contains(named->name) || named->name == "__metadata__") {
      return Status::internal(fmt::format("tensor {} stands twice, or has {} bytes where its shape needs {}",
                                          named->name, tensor.bytes.size(), expected));
    }
    header[named->name] = {{"dtype", safetensors_name(tensor.dtype)},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + expected}}};
    offset += expected;
    parts.push_back(as_text(tensor.bytes));
  }
  std::string text = header.sorted().dump();
  text.append(63 - (sizeof(uint64_t) + text.size() + 63) % 64, ' ');
  const uint64_t size = text.size();
  parts[0] = {reinterpret_cast<const char*>(&size), sizeof size};
  parts[1] = text;
  return write_file(path, parts);
}

Status write_checkpoint(const fs::path& directory, std::span<const NamedTensor> tensors, uint64_t shard_bytes) {
  TRY(make_directories(directory));
  std::vector<std::span<const NamedTensor>> shards;
  uint64_t total = 0;
  uint64_t in_shard = 0;
  size_t begin = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const uint64_t size = tensors[i].tensor.bytes.size();
    if (i > begin && in_shard + size > shard_bytes) {
      shards.push_back(tensors.subspan(begin, i - begin));
      begin = i;
      in_shard = 0;
    }
    in_shard += size;
    total += size;
  }
  shards.push_back(tensors.subspan(begin));
  std::error_code ignored;
  if (shards.size() == 1) {
    TRY(write_safetensors(directory / kSingleName, shards[0]));
    fs::remove(directory / kIndexName, ignored);
    return {};
  }
  Json index = {{"metadata", {{"total_size", total}}}, {"weight_map", Json::object()}};
  Json weight_map = Json::object();
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    TRY(write_safetensors(directory / name, shards[i]));
    for (const NamedTensor& tensor : shards[i]) weight_map[tensor.name] = name;
  }
  index["weight_map"] = weight_map.sorted();
  TRY(write_file(directory / kIndexName, index.dump(2) + "\n"));
  fs::remove(directory / kSingleName, ignored);
  return {};
}

}  // namespace tandem::model
