// A package's document of an npm registry (a packument): versions, their files and tags, read and written anew with our
// addresses. Values; pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "envs/packages/package_digest.h"
#include "envs/packages/url.h"

namespace tandem::envs {

struct NpmVersion {
  std::string version, file;  // the name of its archive
  Url url;
  PackageDigest digest;  // none: the registry gives none of ours
  std::string uploaded;  // empty: the document does not say
  Json manifest;         // as the registry has it
};

struct NpmPage {
  std::string name;
  Json tags;  // {"latest": "1.0.0", ..}
  std::vector<NpmVersion> versions;
  bool has_dates() const;
};

// "left-pad", "@scope/name".
bool is_npm_name(std::string_view name);

// `url`: where it was read. Versions whose archives have no name or address that can be are left out. kInvalid where it
// is no such document, or is of another package.
Result<NpmPage> parse_npm_page(std::string_view text, const std::string& name, const Url& url);

// Selects the offered versions: those with a digest from before `date`; empty: of any time. A tag whose version is not
// among them is of the latest of them, if it is `latest`, else gone.
NpmPage offered(const NpmPage& page, const std::string& date);

// `root`: "http://127.0.0.1:3128/npm".
std::string write_npm_page(const NpmPage& page, const std::string& root);

}  // namespace tandem::envs
