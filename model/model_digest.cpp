#include "model/model_digest.h"

#include <algorithm>
#include <vector>

#include "base/digest.h"

namespace tandem::model {

Result<std::string> digest_of_model(const fs::path& directory) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    const auto ending = entry.path().extension();
    const bool counts = ending == ".safetensors" || ending == ".json" || ending == ".jinja" || ending == ".txt" ||
                        ending == ".model" || ending == ".yaml";
    std::error_code ignored;
    if (counts && entry.is_regular_file(ignored)) files.push_back(entry.path());
  }
  if (error) return fail(Status::from_errno(directory.string(), error.value()));
  std::sort(files.begin(), files.end());
  std::string all;
  for (const auto& file : files) {
    const auto mapped = TRY(MappedFile::open(file));
    all += file.filename().string() + " " + digest_of(mapped.bytes()).hex() + "\n";
  }
  return digest_of(all).hex();
}

}  // namespace tandem::model
