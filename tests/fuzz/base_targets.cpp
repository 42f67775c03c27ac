// Configuration files, logs of records and sets of kept tokens.
#include <cstring>

#include "base/config.h"
#include "base/keep_sets.h"
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

// The first byte says how many tokens there are, and four of each follow.
void keep_sets(std::string_view bytes) {
  if (bytes.empty()) return;
  std::vector<int32_t> tokens(static_cast<uint8_t>(bytes[0]) % 8);
  bytes.remove_prefix(1);
  for (int32_t& token : tokens) {
    if (bytes.size() < sizeof(token)) return;
    std::memcpy(&token, bytes.data(), sizeof(token));
    bytes.remove_prefix(sizeof(token));
  }
  const auto read = decode_keep_sets(bytes, 1000, tokens);
  if (!read) return;
  if (!read->fits(tokens)) __builtin_trap();
  const auto again = decode_keep_sets(encode(*read), 1000, tokens);
  if (!again || *again != *read) __builtin_trap();
}

std::vector<std::string> keep_sets_seeds() {
  KeepSets sets{.vocabulary = 1000, .counts = {}, .ids = {}};
  sets.append(std::vector<int32_t>{2, 300, 999});
  sets.append({});
  const int32_t tokens[] = {300, 4};
  std::string bytes(1, '\2');
  bytes.append(reinterpret_cast<const char*>(tokens), sizeof(tokens)).append(encode(sets));
  return {bytes};
}

constexpr Target kTargets[] = {{"config", config, config_seeds},
                               {"keep_sets", keep_sets, keep_sets_seeds},
                               {"record_log", record_log, record_log_seeds}};

}  // namespace

std::span<const Target> base_targets() { return kTargets; }

}  // namespace tandem::fuzz
