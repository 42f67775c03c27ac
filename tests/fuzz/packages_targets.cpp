// What registries of packages say.
#include <cstdlib>

#include "envs/packages/debian_index.h"
#include "envs/packages/lock.h"
#include "envs/packages/npm_page.h"
#include "envs/packages/pypi_page.h"
#include "envs/packages/url.h"
#include "tests/fuzz/targets.h"

namespace tandem::fuzz {
namespace {

// Pages of registries. What is written of one names nothing but plain names below an address of ours, and reads again.
void package_indexes(std::string_view bytes) {
  const auto at = *envs::Url::parse("https://registry.example/simple/hello/");
  if (const auto page = envs::parse_pypi_page(bytes, "hello", at)) {
    const auto offered = envs::offered(*page, "");
    for (const auto form : {envs::PypiForm::kJson, envs::PypiForm::kHtml}) {
      const auto again = envs::parse_pypi_page(envs::write_pypi_page(offered, form), "hello", at);
      if (!again || again->files.size() != offered.files.size()) abort();
      for (const auto& file : again->files) {
        if (!file.url.to_string().starts_with("https://registry.example/files/hello/")) abort();
      }
    }
    (void)envs::offered(*page, "2026-01-01");
  }
  if (const auto page = envs::parse_npm_page(bytes, "hello", at)) {
    const auto offered = envs::offered(*page, "");
    const auto again = envs::parse_npm_page(envs::write_npm_page(offered, "https://registry.example/npm"), "hello", at);
    if (!again || again->versions.size() != offered.versions.size()) abort();
    for (const auto& one : again->versions) {
      if (!one.url.to_string().starts_with("https://registry.example/npm/hello/-/")) abort();
    }
  }
  (void)envs::parse_release(bytes);
  (void)envs::parse_packages(bytes);
  (void)envs::parse_package_lock(bytes);
  if (const auto url = at.resolve(bytes)) {
    if (envs::Url::parse(url->to_string()) != *url) abort();
  }
}
std::vector<std::string> package_indexes_seeds() {
  const std::string digest(64, 'a');
  return {
      R"({"files":[{"filename":"hello-1.tar.gz","url":"../../f/hello-1.tar.gz","hashes":{"sha256":")" + digest +
          R"("},"upload-time":"2024-01-01T00:00:00Z","yanked":"why","size":3,"requires-python":">=3","core-metadata":{"sha256":")" +
          digest + R"("}}]})",
      "<html><a href=\"/f/hello-1.tar.gz#sha256=" + digest +
          "\" data-requires-python=\"&gt;=3\" data-yanked='x' data-core-metadata='sha256=" + digest + "'>h</a>",
      R"({"name":"hello","dist-tags":{"latest":"1.0.0"},"time":{"1.0.0":"2024"},"versions":{"1.0.0":{"dist":{"tarball":"/hello/-/hello-1.0.0.tgz","integrity":"sha256-qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqo="}}}})",
      "Suite: s\nSHA256:\n " + digest + " 12 main/binary-amd64/Packages\n",
      "Package: p\nFilename: ./pool/p.deb\nSize: 12\nSHA256: " + digest + "\n\n",
      R"({"format":1,"entries":{"pypi/simple/hello":{"sha256":")" + digest +
          R"(","bytes":3,"url":"https://registry.example/","page":true}}})",
      "{\"format\":2}\n{\"key\":\"pypi/simple/hello\",\"sha256\":\"" + digest +
          "\",\"bytes\":3,\"url\":\"https://registry.example/\",\"page\":true}\n{\"key\":\"cut",
      "../../a/./b?c#d"};
}

constexpr Target kPackagesTargets[] = {{"package_indexes", package_indexes, package_indexes_seeds}};

}  // namespace

std::span<const Target> packages_targets() { return kPackagesTargets; }

}  // namespace tandem::fuzz
