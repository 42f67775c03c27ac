// The targets under libFuzzer (scripts/fuzz): TANDEM_FUZZ_TARGET names the one to run. Where TANDEM_FUZZ_SEEDS names a
// folder, the target's seeds are written into it first.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/file.h"
#include "tests/fuzz/targets.h"

namespace {

const tandem::fuzz::Target* chosen = nullptr;

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  static const auto all = tandem::fuzz::targets();
  const char* name = getenv("TANDEM_FUZZ_TARGET");
  if (name && strcmp(name, "list") == 0) {
    for (const auto& target : all) printf("%.*s\n", static_cast<int>(target.name.size()), target.name.data());
    exit(0);
  }
  for (const auto& target : all) {
    if (name && target.name == name) chosen = &target;
  }
  if (!chosen) {
    fprintf(stderr, "TANDEM_FUZZ_TARGET must name a target; \"list\" prints them\n");
    exit(2);
  }
  if (const char* folder = getenv("TANDEM_FUZZ_SEEDS")) {
    const auto seeds = chosen->seeds();
    for (size_t i = 0; i < seeds.size(); ++i) {
      if (!tandem::write_file(tandem::fs::path(folder) / ("seed-" + std::to_string(i)), seeds[i])) exit(2);
    }
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // A copy of its own size: reading one byte beyond it is seen.
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  chosen->run(bytes);
  return 0;
}
