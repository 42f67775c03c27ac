#include "base/json_file.h"

#include <utility>

namespace tandem {

Json with_format(const Json& object, int format) {
  Json whole = {{"format", format}};
  whole.update(object);
  return whole;
}

Result<Json> read_json_file(const fs::path& path, int newest, uint64_t most_bytes) {
  auto json = parse_json(TRY(read_file(path, most_bytes)));
  if (!json) return fail(Status(json.error()).at(path.string()));
  if (!json->is_object()) return fail(Status::corrupt("is not a JSON object").at(path.string()));
  if (auto format = format_of(*json, newest); !format) return fail(std::move(format).error().at(path.string()));
  json->erase("format");
  return json;
}

}  // namespace tandem
