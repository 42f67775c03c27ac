// Configuration files and logs of records.
#include "base/config.h"
#include "base/record_log.h"
#include "tests/fuzz/targets.h"

namespace tandem::fuzz {
namespace {

void config(std::string_view bytes) {
  bool flag = false;
  int count = 1;
  double rate = 0.5;
  std::string name;
  std::vector<std::string> kinds;
  Schema schema;
  schema.add("run.flag", flag, "A flag")
      .add("run.count", count, "A number", 0, 100)
      .add("trainer.rate", rate, "A rate", 0, 1)
      .add("trainer.name", name, "A name", {"one", "two"})
      .add("trainer.kinds", kinds, "A list");
  const MemoryFile file(bytes);
  if (schema.read(file.path(), {})) (void)schema.resolved();
}

std::vector<std::string> config_seeds() {
  return {"run:\n  flag: true\n  count: 3\ntrainer:\n  rate: 1e-3\n  name: one\n  kinds: [a, b]\n",
          "extends:\n- a.yaml\n- b.yaml\nrun:\n  count: 2\n",
          "run: &a {count: 2}\ntrainer: {name: \"two\", kinds: ['x']}\n"};
}

void record_log(std::string_view bytes) {
  const MemoryFile file(bytes);
  for (const auto damage : {Damage::kRefuse, Damage::kSkip}) {
    size_t read = 0;
    (void)read_log(
        file.path(),
        [&](std::string_view record, uint64_t) -> Status {
          read += record.size();
          return {};
        },
        damage);
    if (read > bytes.size()) __builtin_trap();
  }
  (void)read_record(file.path(), bytes.size() / 2);
}

std::vector<std::string> record_log_seeds() {
  std::string path = "/tmp/tandem-fuzz-XXXXXX";
  const FileDescriptor made(mkstemp(path.data()));
  std::string bytes;
  if (auto log = RecordLog::open(path)) {
    for (const char* record : {"", "one", "a longer record"}) (void)log->append(record);
    bytes = read_file(path).value_or("");
  }
  std::error_code error;
  fs::remove(path, error);
  return {bytes};
}

constexpr Target kTargets[] = {{"config", config, config_seeds}, {"record_log", record_log, record_log_seeds}};

}  // namespace

std::span<const Target> base_targets() { return kTargets; }

}  // namespace tandem::fuzz
