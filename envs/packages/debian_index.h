// The index of a Debian archive: the Release of a suite names its lists, a list (Packages) names its files, each with
// its SHA-256. Values; pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/status.h"
#include "envs/packages/package_digest.h"

namespace tandem::envs {

struct DebianFile {
  PackageDigest digest;
  uint64_t bytes = 0;
};

// "main/binary-amd64/Packages.xz" -> its digest, of the section SHA256 of InRelease or Release; signatures are not
// looked at. kInvalid where there is no such section.
Result<std::map<std::string, DebianFile>> parse_release(std::string_view text);

// "pool/main/j/jq/jq_1.6_amd64.deb" -> its digest. Paragraphs without a path that can be, or without a digest, are left
// out. kInvalid where it is no list.
Result<std::map<std::string, DebianFile>> parse_packages(std::string_view text);

}  // namespace tandem::envs
