// Model directories without weights for the conversations of all families, as tests/golden/make_conversations.py wrote
// them.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "base/iso_time.h"
#include "rollout/agent/conversation.h"

namespace tandem::rollout {

inline const fs::path kGoldenFiles = fs::path(TANDEM_SOURCE_DIR) / "tests" / "golden";

inline Json read_golden(const fs::path& path) { return Json::parse(*read_file(path)); }

inline std::vector<Json> golden_conversations() {
  const char* other = std::getenv("TANDEM_CONVERSATIONS");
  std::ifstream in(other != nullptr ? fs::path(other) : kGoldenFiles / "conversations" / "cases.jsonl");
  std::vector<Json> cases;
  for (std::string line; std::getline(in, line);) cases.push_back(Json::parse(line));
  return cases;
}

class Conversations : public testing::Test {
 protected:
  Conversations() : folder_(fs::temp_directory_path() / fmt::format("tandem-conversations-{}", ::getpid())) {}
  ~Conversations() override { fs::remove_all(folder_); }

  // A model directory without weights.
  Result<Conversation> load(const Json& golden, const std::string& source,
                            model::SpecialInContent special = model::SpecialInContent::kText) const {
    fs::create_directories(folder_);
    Json tokenizer = read_golden(kGoldenFiles / "tokenizers" / "qwen2" / "tokenizer.json");
    int64_t next = 0;
    for (const Json& token : tokenizer["added_tokens"]) next = std::max(next, token["id"].get<int64_t>() + 1);
    for (const Json& mark : golden["marks"]) {
      tokenizer["added_tokens"].push_back({{"id", next++},
                                           {"content", mark},
                                           {"single_word", false},
                                           {"lstrip", false},
                                           {"rstrip", false},
                                           {"normalized", false},
                                           {"special", true}});
    }
    Json config = read_golden(kGoldenFiles / "models" / "llama" / "config.json");
    config["vocab_size"] = next;
    config["eos_token_id"] = golden["ends"];
    std::ofstream(folder_ / "tokenizer.json") << tokenizer.dump();
    std::ofstream(folder_ / "config.json") << config.dump();
    std::ofstream(folder_ / "generation_config.json") << Json{{"eos_token_id", golden["ends"]}}.dump();
    std::ofstream(folder_ / "chat_template.jinja") << source;
    return Conversation::load(folder_, {.now = local_time(), .special_in_content = special});
  }
  Result<Conversation> load(const Json& golden) const {
    if (golden["source"].is_string()) return load(golden, golden["source"].get<std::string>());
    return load(golden,
                *read_file(kGoldenFiles / "chat_templates" / (golden["template"].get<std::string>() + ".jinja")));
  }
  static envs::Opening opening_of(const Json& golden) {
    envs::Opening opening{.messages = {}, .tools = golden["tools"]};
    for (const Json& message : golden["messages"])
      opening.messages.push_back({message["role"].get<std::string>(), message["content"].get<std::string>()});
    return opening;
  }

  const fs::path folder_;
};

}  // namespace tandem::rollout
