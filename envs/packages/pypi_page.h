// A project's page of a simple index (PEP 503 in HTML, PEP 691 in JSON), read strictly and written anew.
//
// A written page names each file by an address of ours, in the folder of its project, so that a file is only ever asked
// for by project and name. Values; pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "envs/packages/package_digest.h"
#include "envs/packages/url.h"

namespace tandem::envs {

struct PypiFile {
  std::string name;
  Url url;
  PackageDigest digest;         // none: the index gives none of ours
  std::string requires_python;  // empty: any
  std::string uploaded;         // "2026-01-31T12:30:00.000Z"; empty: the index does not say
  Json yanked = false;          // or the reason
  PackageDigest metadata;       // of NAME.metadata (PEP 658); none: there is none
  std::optional<uint64_t> bytes;
};

struct PypiPage {
  std::string name;  // normalised
  std::vector<PypiFile> files;
  bool has_dates() const;
};

// "Ruamel.Yaml" is "ruamel-yaml". Empty where that is no name of a project.
std::string normalised_project(std::string_view name);

// `url`: where it was read. Files whose names or addresses are not such as can be are left out. kInvalid where it is no
// such page, or has more than kMostFiles.
inline constexpr size_t kMostPypiFiles = 200'000;
Result<PypiPage> parse_pypi_page(std::string_view text, const std::string& project, const Url& url);

// Selects the offered files: those with a digest that were uploaded before `date`, in the form of PypiFile::uploaded;
// empty: at any time.
PypiPage offered(const PypiPage& page, const std::string& date);

enum class PypiForm : uint8_t { kJson, kHtml };
std::string write_pypi_page(const PypiPage& page, PypiForm form);

}  // namespace tandem::envs
