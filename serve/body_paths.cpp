#include "serve/body_paths.h"

#include <algorithm>

#include "serve/api_error.h"
#include "serve/request_reader.h"

namespace tandem::serve {

const BodyPath* BodyPaths::find(std::string_view path) const {
  const auto found = std::ranges::find(paths_, path, &BodyPath::path);
  return found == paths_.end() ? nullptr : &*found;
}

std::vector<DescribedPath> BodyPaths::described() const {
  std::vector<DescribedPath> described;
  for (const BodyPath& path : paths_) {
    const bool get = path.method == "GET";
    described.push_back({path.path, get ? "get" : "post", path.summary, get ? nullptr : &path.fields, path.required});
  }
  return described;
}

void BodyPaths::answer(const BodyPath& path, const wire::HttpRequest& request, const std::string& key,
                       const wire::HttpReply& reply) const {
  std::string who = key;
  if (path.admins_only) {
    auto admin = access_.admin_of(path.path, request);
    if (!admin) return reply(error_response(403, admin.error().message()));
    who = std::move(*admin);
  }
  Fields fields;
  if (path.method != "GET") {
    const Status status = shielded([&] { return read_fields(fields, path.fields, path.required, request.body); });
    if (!status.ok()) return reply(error_response(400, status.to_string(), fields.param()));
  }
  path.answer(request, fields, who, reply);
}

}  // namespace tandem::serve
