#include "envs/container/tar.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace tandem::envs {
namespace {

constexpr size_t kBlock = 512;
constexpr size_t kLongestName = 100, kLongestPrefix = 155;
// Where a header has its fields, and how long they are.
constexpr size_t kPrefixAt = 345, kChecksumAt = 148, kChecksumLength = 8;

// A slash at which a long path is cut in two; none where no cut leaves parts that fit.
Result<size_t> cut_of(const std::string& path) {
  if (path.size() <= kLongestName) return std::string::npos;
  const size_t cut = path.find('/', path.size() - kLongestName - 1);
  if (cut != std::string::npos && cut > 0 && cut <= kLongestPrefix) return cut;
  return fail(Status::invalid(path + " is too long for a tar archive"));
}

}  // namespace

Result<std::string> tar_of(const Files& files, const std::set<std::string>& programs) {
  std::string archive;
  for (const auto& [path, content] : files) {
    const size_t cut = TRY(cut_of(path));
    const bool is_cut = cut != std::string::npos;
    std::string header(kBlock, '\0');
    const auto put = [&](size_t at, std::string_view text) { text.copy(header.data() + at, text.size()); };
    put(0, is_cut ? std::string_view(path).substr(cut + 1) : path);
    put(100, programs.contains(path) ? "0000755" : "0000644");
    put(108, "0000000");  // of root
    put(116, "0000000");
    put(124, fmt::format("{:011o}", content.size()));
    put(136, "00000000000");  // of 1970
    put(156, "0");            // a regular file
    put(257, std::string_view("ustar\00000", 8));
    if (is_cut) put(kPrefixAt, std::string_view(path).substr(0, cut));
    // The sum counts the field that it is put into as spaces.
    put(kChecksumAt, std::string(kChecksumLength, ' '));
    const auto sum = std::accumulate(header.begin(), header.end(), 0u,
                                     [](unsigned all, char c) { return all + static_cast<unsigned char>(c); });
    put(kChecksumAt, fmt::format("{:06o}", sum) + '\0' + ' ');
    archive += header;
    archive += content;
    archive.resize((archive.size() + kBlock - 1) / kBlock * kBlock);
  }
  archive.resize(archive.size() + 2 * kBlock);
  return archive;
}

}  // namespace tandem::envs
