// Conversations with tools in the notations of all families: the tokens are those of transformers.
#include "rollout/agent/conversation.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "base/iso_time.h"

namespace tandem::rollout {
namespace {

const fs::path kGolden = fs::path(TANDEM_SOURCE_DIR) / "tests" / "golden";

Json read_json(const fs::path& path) { return Json::parse(*read_file(path)); }

std::vector<Json> read_cases() {
  const char* other = std::getenv("TANDEM_CONVERSATIONS");
  std::ifstream in(other != nullptr ? fs::path(other) : kGolden / "conversations" / "cases.jsonl");
  std::vector<Json> cases;
  for (std::string line; std::getline(in, line);) cases.push_back(Json::parse(line));
  return cases;
}

class Conversations : public testing::Test {
 protected:
  Conversations() : folder_(fs::temp_directory_path() / fmt::format("tandem-conversations-{}", ::getpid())) {}
  ~Conversations() override { fs::remove_all(folder_); }

  // A model directory without weights.
  Result<Conversation> load(const Json& golden, const std::string& source) const {
    fs::create_directories(folder_);
    Json tokenizer = read_json(kGolden / "tokenizers" / "qwen2" / "tokenizer.json");
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
    Json config = read_json(kGolden / "models" / "llama" / "config.json");
    config["vocab_size"] = next;
    config["eos_token_id"] = golden["ends"];
    std::ofstream(folder_ / "tokenizer.json") << tokenizer.dump();
    std::ofstream(folder_ / "config.json") << config.dump();
    std::ofstream(folder_ / "generation_config.json") << Json{{"eos_token_id", golden["ends"]}}.dump();
    std::ofstream(folder_ / "chat_template.jinja") << source;
    return Conversation::load(folder_, local_time());
  }
  Result<Conversation> load(const Json& golden) const {
    if (golden["source"].is_string()) return load(golden, golden["source"].get<std::string>());
    return load(golden, *read_file(kGolden / "chat_templates" / (golden["template"].get<std::string>() + ".jinja")));
  }
  static envs::Opening opening_of(const Json& golden) {
    envs::Opening opening{.messages = {}, .tools = golden["tools"]};
    for (const Json& message : golden["messages"])
      opening.messages.push_back({message["role"].get<std::string>(), message["content"].get<std::string>()});
    return opening;
  }

  const fs::path folder_;
};

TEST_F(Conversations, of_every_family_have_the_tokens_of_transformers) {
  const auto cases = read_cases();
  ASSERT_GE(cases.size(), 8u);
  for (const Json& golden : cases) {
    SCOPED_TRACE(golden["template"].get<std::string>());
    const auto conversation = load(golden);
    ASSERT_TRUE(conversation) << conversation.error().to_string();
    ASSERT_EQ(conversation->listing(), envs::ToolListing::kByTemplate);
    const auto& tools = golden["tools"];
    auto tokens = *conversation->prompt(opening_of(golden));
    EXPECT_EQ(tokens, golden["prompt"].get<std::vector<int32_t>>());
    for (size_t number = 0; number < golden["turns"].size(); ++number) {
      SCOPED_TRACE(fmt::format("turn {}", number + 1));
      const Json& turn = golden["turns"][number];
      const auto sampled = turn["said"].get<std::vector<int32_t>>();
      const auto said = conversation->read(sampled, tools);
      EXPECT_EQ(said.text, turn["text"].get<std::string>());
      EXPECT_EQ(said.reasoning, turn["reasoning"].get<std::string>());
      ASSERT_EQ(said.calls.size(), turn["calls"].size());
      std::vector<envs::Call> calls;
      for (size_t i = 0; i < said.calls.size(); ++i) {
        EXPECT_EQ(said.calls[i].error, "");
        EXPECT_EQ(said.calls[i].call.name, turn["calls"][i]["name"].get<std::string>());
        EXPECT_EQ(said.calls[i].call.arguments, turn["calls"][i]["arguments"]);
        calls.push_back(said.calls[i].call);
      }
      const Reply reply{.results = turn["results"].get<std::vector<std::string>>(),
                        .instruction = turn["instruction"].get<std::string>()};
      const auto next = conversation->next_turn(sampled, said, reply, tools);
      ASSERT_TRUE(next) << next.error().to_string();
      EXPECT_EQ(next->is_retokenised, turn["redrawn"].get<bool>());
      tokens.insert(tokens.end(), sampled.begin(), sampled.end());
      tokens.insert(tokens.end(), next->tokens.begin(), next->tokens.end());
      if (!turn["redrawn"].get<bool>()) {
        EXPECT_EQ(tokens, turn["whole"].get<std::vector<int32_t>>())
            << conversation->tokenizer().decode(tokens) << "\n---\n"
            << conversation->tokenizer().decode(turn["whole"].get<std::vector<int32_t>>());
      }
      // What a demonstration says is what the model says, but for the reasoning.
      const auto spoken = conversation->spoken(calls, turn["text"].get<std::string>(), tools);
      ASSERT_TRUE(spoken) << spoken.error().to_string();
      const auto again = conversation->read(*spoken, tools);
      EXPECT_EQ(again.calls.size(), said.calls.size());
      EXPECT_EQ(again.text, said.text);
    }
  }
}

}  // namespace
}  // namespace tandem::rollout
