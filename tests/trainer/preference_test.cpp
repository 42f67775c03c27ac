// Pairs of answers as data sets have them, into samples.
#include "trainer/sft/preference.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "base/digest.h"
#include "trainer/sft/sample_set.h"

namespace tandem::trainer {
namespace {

const fs::path kPairModel = fs::path(TANDEM_SOURCE_DIR) / "tests" / "golden" / "sft" / "model";

// Role and first letter of each message, * where it is learned from.
std::string outline(const Chat& chat) {
  std::string text;
  for (size_t i = 0; i < chat.messages.size(); ++i) {
    const Json& message = chat.messages[i];
    const bool learned = message["role"] == "assistant" && !chat.muted[i];
    text += (text.empty() ? "" : " ") + message["role"].get<std::string>().substr(0, 1) + ":" +
            message["content"].get<std::string>() + (learned ? "*" : "");
  }
  return text;
}

std::string outlines(const char* json) {
  const auto pair = read_preference(*parse_json(json));
  return pair ? outline(pair->chosen) + " | " + outline(pair->rejected) : pair.error().to_string();
}

TEST(Preference, is_read_in_the_forms_that_data_sets_have) {
  EXPECT_EQ(outlines(R"({"prompt": "q", "chosen": "a", "rejected": "b"})"), "u:q a:a* | u:q a:b*");
  EXPECT_EQ(outlines(R"({"prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}],
                         "chosen": [{"role": "assistant", "content": "a"}],
                         "rejected": {"role": "assistant", "content": "b"}})"),
            "s:s u:q a:a* | s:s u:q a:b*");
  // Whole conversations, with or without the prompt beside them; earlier answers are seen and not learned from.
  for (const char* prompt : {"", R"("prompt": "q", )"}) {
    const std::string line = std::string("{") + prompt +
                             R"("chosen": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "x"},
                                           {"role": "user", "content": "r"}, {"role": "assistant", "content": "a"}],
                                "rejected": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "x"},
                                             {"role": "user", "content": "r"}, {"role": "assistant", "content": "b"}]})";
    EXPECT_EQ(outlines(line.c_str()), "u:q a:x u:r a:a* | u:q a:x u:r a:b*");
  }
  // Answers of several turns, of which one goes on from the other.
  EXPECT_EQ(outlines(R"({"chosen": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"},
                                    {"role": "user", "content": "r"}, {"role": "assistant", "content": "b"}],
                         "rejected": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})"),
            "u:q a:a* u:r a:b* | u:q a:a*");
}

TEST(Preference, that_cannot_be_learned_from_is_named) {
  const auto says = [](const char* json, const char* words) {
    const std::string said = outlines(json);
    EXPECT_NE(said.find(words), std::string::npos) << json << ": " << said;
  };
  says("[1]", "is not an object");
  says(R"({"prompt": "q", "choosen": "a", "rejected": "b"})", "has no \"chosen\"; did you mean");
  says(R"({"messages": []})", "is a transcript, not a pair");
  says(R"({"chosen": "a", "rejected": "b"})", "has no prompt");
  says(R"({"prompt": "q", "chosen": "a", "rejected": "a"})", "are the same");
  says(R"({"prompt": "q", "chosen": 3, "rejected": "a"})", "chosen is neither a text nor a message");
  says(R"({"prompt": "q", "chosen": "", "rejected": "a"})", "chosen");
  says(R"({"prompt": [{"role": "robot", "content": "q"}], "chosen": "a", "rejected": "b"})", "robot");
  says(R"({"chosen": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}],
           "rejected": [{"role": "user", "content": "other"}, {"role": "assistant", "content": "b"}]})",
       "no message in common");
  says(R"({"chosen": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"},
                      {"role": "assistant", "content": "a"}],
           "rejected": [{"role": "system", "content": "s"}, {"role": "user", "content": "r"},
                        {"role": "assistant", "content": "b"}]})",
       "does not begin with a message of the assistant");
}

TEST(SampleReader, keeps_both_answers_of_a_pair_or_none) {
  const auto renderer = ChatRenderer::load(kPairModel, {});
  ASSERT_TRUE(renderer) << renderer.error().to_string();
  const fs::path file = fs::path(testing::TempDir()) / ("pairs-" + std::to_string(::getpid()) + ".jsonl");
  std::ofstream(file) << R"({"prompt": "q", "chosen": "a", "rejected": "b"})"
                      << "\n"
                      << Json{{"prompt", "q"}, {"chosen", std::string(400, 'y')}, {"rejected", "b"}}.dump() << "\n"
                      << R"({"prompt": "r", "chosen": "c", "rejected": "d"})"
                      << "\n";
  SampleReader reader(*renderer, {.max_tokens = 60, .pairs = true});
  reader.add_file(file, Purpose::kTrain);
  const auto set = reader.finish();
  ASSERT_TRUE(set) << set.error().to_string();
  EXPECT_TRUE(set->pairs);
  ASSERT_EQ(set->train.size(), 4U);
  EXPECT_EQ(set->too_long, 1);
  EXPECT_EQ(set->train[0].sample.group, set->train[1].sample.group);
  EXPECT_NE(set->train[1].sample.group, set->train[2].sample.group);
  EXPECT_TRUE(set->train[2].place.ends_with(":3"));
  fs::remove(file);
}

}  // namespace
}  // namespace tandem::trainer
