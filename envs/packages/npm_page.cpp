#include "envs/packages/npm_page.h"

#include <algorithm>

namespace tandem::envs {
namespace {

constexpr size_t kLongestNpmName = 214;
constexpr size_t kMostNpmVersions = 100'000;

const std::string* text_in(const Json& object, const char* key) {
  return object.is_object() && object.contains(key) ? object.at(key).get_ptr<const std::string*>() : nullptr;
}

}  // namespace

bool NpmPage::has_dates() const {
  return std::ranges::all_of(versions, [](const NpmVersion& one) { return !one.uploaded.empty(); });
}

bool is_npm_name(std::string_view name) {
  if (name.size() > kLongestNpmName || !is_plain_path(name.starts_with('@') ? name.substr(1) : name)) return false;
  return std::ranges::count(name, '/') == (name.starts_with('@') ? 1 : 0) &&
         name.substr(1).find_first_of("@:+") == name.npos;
}

Result<NpmPage> parse_npm_page(std::string_view text, const std::string& name, const Url& url) {
  const auto json = TRY(parse_json(text));
  if (!json.is_object() || !json.contains("versions") || !json.at("versions").is_object())
    return fail(Status::invalid("it is no document of an npm package"));
  if (const auto* named = text_in(json, "name"); named == nullptr || *named != name)
    return fail(Status::invalid("it is the document of another package"));
  NpmPage page{.name = name, .tags = Json::object(), .versions = {}};
  if (json.contains("dist-tags") && json.at("dist-tags").is_object()) page.tags = json.at("dist-tags");
  const Json none = Json::object();
  const Json& times = json.contains("time") ? json.at("time") : none;
  const Json& versions = json.at("versions");
  if (versions.size() > kMostNpmVersions) return fail(Status::invalid("it names too many versions"));
  for (auto each = versions.begin(); each != versions.end(); ++each) {
    const Json& manifest = *each;
    if (!manifest.is_object() || !manifest.contains("dist")) continue;
    const Json& dist = manifest.at("dist");
    const auto* address = text_in(dist, "tarball");
    if (address == nullptr || !is_plain_path(each.key())) continue;
    const auto archive = url.resolve(*address);
    if (!archive) continue;
    NpmVersion one{.version = each.key(),
                   .file = archive->path.substr(archive->path.rfind('/') + 1),
                   .url = *archive,
                   .digest = {},
                   .uploaded = {},
                   .manifest = manifest};
    if (!is_plain_path(one.file)) continue;
    if (const auto* integrity = text_in(dist, "integrity")) one.digest = PackageDigest::of_integrity(*integrity);
    if (const auto* time = text_in(times, one.version.c_str())) one.uploaded = *time;
    page.versions.push_back(std::move(one));
  }
  return page;
}

NpmPage offered(const NpmPage& page, const std::string& date) {
  NpmPage kept{.name = page.name, .tags = Json::object(), .versions = {}};
  const NpmVersion* newest = nullptr;
  for (const auto& one : page.versions) {
    if (!one.digest || (!date.empty() && (one.uploaded.empty() || one.uploaded >= date))) continue;
    kept.versions.push_back(one);
    const bool is_final = one.version.find('-') == std::string::npos;
    if (is_final && (newest == nullptr || one.uploaded >= newest->uploaded)) newest = &one;
  }
  for (auto tag = page.tags.begin(); tag != page.tags.end(); ++tag) {
    if (tag->is_string() &&
        std::ranges::find(kept.versions, tag->get<std::string>(), &NpmVersion::version) != kept.versions.end())
      kept.tags[tag.key()] = *tag;
  }
  if (newest == nullptr && !kept.versions.empty()) newest = &kept.versions.back();
  if (!kept.tags.contains("latest") && newest != nullptr) kept.tags["latest"] = newest->version;
  return kept;
}

std::string write_npm_page(const NpmPage& page, const std::string& root) {
  Json versions = Json::object(), times = Json::object();
  for (const auto& one : page.versions) {
    Json manifest = one.manifest;
    manifest["dist"]["tarball"] = root + "/" + page.name + "/-/" + one.file;
    versions[one.version] = std::move(manifest);
    if (!one.uploaded.empty()) times[one.version] = one.uploaded;
  }
  return dump_json({{"_id", page.name},
                    {"name", page.name},
                    {"dist-tags", page.tags},
                    {"versions", std::move(versions)},
                    {"time", std::move(times)}});
}

}  // namespace tandem::envs
