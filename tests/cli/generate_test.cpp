// `tandem generate`: what is sampled is a function of the request and the weights, not of what runs beside it.
#include <algorithm>
#include <fstream>
#include <map>

#include "base/random.h"
#include "envs/episodes/opening.h"
#include "envs/tasks/workspace/kinds.h"
#include "envs/tools/tool.h"
#include "tests/cli/run_fixture.h"

namespace tandem {
namespace {

class Generate : public RunTest {
 protected:
  static std::vector<Json> requests() {
    std::vector<Json> lines;
    Random random(5);
    for (int i = 0; i < 40; ++i) {
      std::vector<int> tokens(2 + random.below(90));
      for (int& token : tokens) token = static_cast<int>(random.below(200));
      // Some prompts are the beginning of others, and share what was computed.
      if (i % 3 == 1) tokens = lines.back()["tokens"].get<std::vector<int>>();
      if (i % 3 == 1) tokens.resize(tokens.size() / 2 + 1);
      lines.push_back({{"id", i},
                       {"tokens", tokens},
                       {"seed", i},
                       {"max_tokens", 8 + random.below(40)},
                       {"temperature", i % 4 == 0 ? 0.0 : 1.0},
                       {"ignore_eos", i % 2 == 0}});
      if (i % 5 == 0) lines.back()["top_p"] = 0.9;
    }
    return lines;
  }
  // What came out, by id.
  static std::map<int, Json> generate(const std::vector<Json>& lines, const Arguments& options) {
    std::ofstream file(root() / "requests");
    for (const Json& line : lines) file << line.dump() << "\n";
    file.close();
    Arguments arguments = {"generate", "--input", (root() / "requests").string()};
    if (std::find(options.begin(), options.end(), "--model") == options.end())
      arguments.insert(arguments.end(), {"--model", (root() / "model").string()});
    arguments.insert(arguments.end(), options.begin(), options.end());
    EXPECT_EQ(tandem(arguments), 0) << text(output());
    std::map<int, Json> answers;
    const std::string all = text(output());
    for (const auto line : split(trim(all), '\n')) {
      auto parsed = parse_json(line);
      if (!parsed || !parsed->contains("id")) continue;
      const int id = (*parsed)["id"].get<int>();
      answers[id] = std::move(*parsed);
    }
    return answers;
  }
};

TEST_F(Generate, slots_order_workers_and_threads_change_no_token_and_no_logprob) {
  const std::vector<Json> lines = requests();
  const auto expected = generate(lines, {"--slots", "1"});
  ASSERT_EQ(expected.size(), lines.size());
  size_t tokens = 0;
  for (const auto& [id, answer] : expected) tokens += answer["tokens"].size();
  EXPECT_GT(tokens, 500u);
  std::vector<Json> shuffled = lines;
  Random random(9);
  for (size_t i = shuffled.size(); i > 1; --i) std::swap(shuffled[i - 1], shuffled[random.below(i)]);
  const std::vector<std::pair<std::vector<Json>, Arguments>> ways = {{lines, {"--slots", "3"}},
                                                                     {lines, {"--slots", "16"}},
                                                                     {shuffled, {"--slots", "3"}},
                                                                     {shuffled, {"--slots", "16", "--threads", "1"}},
                                                                     {lines, {"--slots", "3", "--workers", "2"}},
                                                                     {shuffled, {"--slots", "16", "--workers", "2"}}};
  for (size_t way = 0; way < ways.size(); ++way) {
    SCOPED_TRACE(way);
    const auto got = generate(ways[way].first, ways[way].second);
    ASSERT_EQ(got.size(), expected.size());
    for (const auto& [id, answer] : expected) EXPECT_EQ(got.at(id), answer) << "request " << id;
  }
}

TEST_F(Generate, a_chat_goes_through_the_models_template_and_its_calls_come_back_as_a_message) {
  const auto task = envs::make_task({"echo", envs::Split::kTrain, 3});
  ASSERT_TRUE(task);
  Json messages = Json::array();
  for (const auto& message :
       envs::opening(*task, envs::prompted_tools(), {}, envs::ToolListing::kInMessages).messages) {
    messages.push_back({{"role", message.role}, {"content", message.content}});
  }
  std::ofstream(root() / "chat") << Json{{"messages", messages}, {"add_generation_prompt", true}}.dump() << "\n";
  ASSERT_EQ(tandem({"render", "--model", (root() / "model").string(), "--input", (root() / "chat").string()}), 0);
  const auto rendered = parse_json(trim(text(output())));
  ASSERT_TRUE(rendered);

  const Json settings = {{"temperature", 0}, {"max_tokens", 96}};
  Json chat = settings, tokens = settings;
  chat.update({{"id", 0}, {"messages", messages}});
  tokens.update({{"id", 1}, {"tokens", (*rendered)["ids"]}});
  const auto answers = generate({chat, tokens}, {});
  const Json& answer = answers.at(0);
  EXPECT_EQ(answer["tokens"], answers.at(1)["tokens"]);
  EXPECT_FALSE(answers.at(1).contains("message"));
  EXPECT_EQ(answer["finish_reason"], "tool_calls") << answer.dump();
  const Json& call = answer["message"]["tool_calls"][0];
  EXPECT_EQ(call["type"], "function");
  EXPECT_TRUE(envs::find_tool(call["function"]["name"].get<std::string>()) != nullptr) << call.dump();
  const auto arguments = parse_json(call["function"]["arguments"].get<std::string>());
  EXPECT_TRUE(arguments && arguments->is_object()) << call.dump();
}

// A model that knows nothing of JSON, so that only the constraint makes it that.
std::vector<Json> constrained_requests() {
  const Json schema = *parse_json(
      R"({"type":"object","properties":{"count":{"type":"integer","minimum":1,"maximum":99},"state":{"enum":["on","off"]},)"
      R"("code":{"type":"string","pattern":"^[a-f]{2,4}$"}},"required":["count","state"],"additionalProperties":false})");
  std::vector<Json> lines;
  for (int i = 0; i < 24; ++i) {
    lines.push_back({{"id", i},
                     {"prompt", "Say it."},
                     {"seed", i},
                     {"max_tokens", i % 6 == 5 ? 400 : 1000},
                     {"temperature", i % 4 == 0 ? 0.0 : 1.0},
                     {"response_format", {{"type", "json_schema"}, {"json_schema", {{"schema", schema}}}}}});
    if (i % 3 == 0) lines.back()["top_p"] = 0.9;
    if (i % 6 == 5) lines.back().erase("response_format");
  }
  return lines;
}

TEST_F(Generate, a_constraint_makes_any_model_write_valid_texts_whatever_runs_beside_them) {
  const auto lines = constrained_requests();
  const auto expected = generate(lines, {"--slots", "1"});
  ASSERT_EQ(expected.size(), lines.size());
  for (const auto& [id, answer] : expected) {
    ASSERT_FALSE(answer.contains("error")) << answer;
    if (id % 6 == 5) continue;
    ASSERT_EQ(answer["logprobs"].size(), answer["sampling_logprobs"].size());
    double above = 0;
    for (size_t i = 0; i < answer["logprobs"].size(); ++i)
      above += answer["sampling_logprobs"][i].get<double>() - answer["logprobs"][i].get<double>();
    EXPECT_GT(above, 0) << "what is allowed is likelier among itself than among all";
    EXPECT_EQ(answer["finish_reason"], "stop") << "white space has an end, and nothing else here is longer";
    auto said = answer["text"].get<std::string>();
    said.resize(said.rfind('}') + 1);
    const auto value = parse_json(said);
    ASSERT_TRUE(value) << said;
    EXPECT_TRUE((*value)["count"].is_number_integer() && (*value)["count"].get<int>() >= 1 &&
                (*value)["count"].get<int>() <= 99)
        << said;
    EXPECT_TRUE((*value)["state"] == "on" || (*value)["state"] == "off") << said;
  }

  auto shuffled = lines;
  Random random(9);
  random.shuffle(shuffled);
  for (const auto& options : {Arguments{"--slots", "7"}, Arguments{"--workers", "2", "--threads", "2"}}) {
    const auto answers = generate(shuffled, options);
    for (const auto& [id, answer] : expected) EXPECT_EQ(answers.at(id), answer) << id;
  }
}

TEST_F(Generate, the_logprobs_of_a_constrained_text_are_the_ones_that_score_gives) {
  const auto lines = constrained_requests();
  const auto answers = generate({lines[1]}, {});
  const auto prompt_ids = [&] {
    std::ofstream(root() / "text") << R"({"text":"Say it."})"
                                   << "\n";
    EXPECT_EQ(tandem({"tokenize", "--model", (root() / "model").string(), "--input", (root() / "text").string()}), 0);
    return parse_json(trim(text(output()))).value()["ids"].get<std::vector<int>>();
  }();
  auto tokens = prompt_ids;
  for (const Json& token : answers.at(1)["tokens"]) tokens.push_back(token.get<int>());
  std::ofstream(root() / "tokens") << Json{{"tokens", tokens}}.dump() << "\n";
  ASSERT_EQ(tandem({"score", "--model", (root() / "model").string(), "--path", "trainer", "--input",
                    (root() / "tokens").string()}),
            0);
  const Json scored = parse_json(trim(text(output()))).value();
  for (size_t i = 0; i < answers.at(1)["logprobs"].size(); ++i)
    EXPECT_EQ(scored["logprobs"][prompt_ids.size() + i], answers.at(1)["logprobs"][i]) << i;
}

TEST_F(Generate, a_model_that_computes_nan_answers_with_an_error_and_no_token) {
  const fs::path broken = root() / "nan";
  fs::copy(root() / "model", broken);
  const fs::path weights = broken / "model.safetensors";
  constexpr size_t kNumbers = 2048;  // of 2 bytes, whose bits are all set: NaN
  std::string bytes = text(weights);
  bytes.replace(bytes.size() - 2 * kNumbers, 2 * kNumbers, 2 * kNumbers, '\xff');
  std::ofstream(weights, std::ios::binary) << bytes;
  std::ofstream(root() / "lines") << R"({"tokens":[5,6,7],"max_tokens":3})"
                                  << "\n"
                                  << R"({"tokens":[5,6,7],"max_tokens":3,"temperature":0})"
                                  << "\n";
  EXPECT_EQ(tandem({"generate", "--model", broken.string(), "--input", (root() / "lines").string()}), 1);
  const std::string answers = text(output());
  EXPECT_EQ(answers.find("\"tokens\""), std::string::npos) << answers;
  const size_t first = answers.find("gives NaN");
  ASSERT_NE(first, std::string::npos) << answers;
  EXPECT_NE(answers.find("gives NaN", first + 1), std::string::npos) << answers;
  std::ofstream(root() / "lines") << R"({"tokens":[5,6,7]})"
                                  << "\n";
  EXPECT_EQ(tandem({"score", "--model", broken.string(), "--input", (root() / "lines").string()}), 1);
  EXPECT_NE(text(output()).find("gives NaN"), std::string::npos);
}

TEST_F(Generate, tool_choice_constrains_calls_to_the_tools) {
  const Json tools = *parse_json(
      R"([{"type":"function","function":{"name":"look","parameters":{"type":"object","properties":{"at":{"enum":["left",)"
      R"("right"]}},"required":["at"],"additionalProperties":false}}}])");
  const Json messages = {{{"role", "user"}, {"content", "Look."}}};
  std::vector<Json> lines;
  for (int i = 0; i < 8; ++i) {
    lines.push_back({{"id", i},
                     {"messages", messages},
                     {"tools", tools},
                     {"seed", i},
                     {"max_tokens", 600},
                     {"tool_choice", {{"type", "function"}, {"function", {{"name", "look"}}}}}});
  }
  int called = 0;
  for (const auto& [id, answer] : generate(lines, {})) {
    ASSERT_FALSE(answer.contains("error")) << answer;
    if (answer["finish_reason"] == "length") continue;
    EXPECT_EQ(answer["finish_reason"], "tool_calls") << answer;
    const Json& calls = answer["message"]["tool_calls"];
    ASSERT_EQ(calls.size(), 1u) << answer;
    EXPECT_EQ(calls[0]["function"]["name"], "look");
    const auto arguments = parse_json(calls[0]["function"]["arguments"].get<std::string>());
    EXPECT_TRUE((*arguments)["at"] == "left" || (*arguments)["at"] == "right") << answer;
    ++called;
  }
  EXPECT_GE(called, 4);
}

// Models are told apart by the tags that their templates write.
TEST_F(Generate, tool_choice_constrains_calls_of_every_dialect) {
  const std::pair<const char*, const char*> dialects[] = {{"hermes", "<tool_call>"},
                                                          {"qwen3_coder", "<tool_call><function="},
                                                          {"glm4", "<tool_call><arg_key>"},
                                                          {"llama3", "<|python_tag|>"},
                                                          {"deepseek_v3", "<｜tool▁call▁begin｜>```json"},
                                                          {"deepseek_v31", "<｜tool▁call▁begin｜>"},
                                                          {"kimi_k2", "<|tool_call_begin|>"},
                                                          {"mistral", "[TOOL_CALLS]"},
                                                          {"mistral_v11", "[TOOL_CALLS]f[ARGS]"}};
  const Json tools = *parse_json(
      R"([{"type":"function","function":{"name":"look","parameters":{"type":"object","properties":{"at":{"enum":["left",)"
      R"("right"]},"times":{"type":"integer","minimum":1,"maximum":9}},"required":["at"],)"
      R"("additionalProperties":false}}}])");
  std::vector<Json> lines;
  for (int i = 0; i < 4; ++i) {
    lines.push_back({{"id", i},
                     {"messages", {{{"role", "user"}, {"content", "Look."}}}},
                     {"tools", tools},
                     {"seed", i},
                     {"max_tokens", 1000},
                     {"tool_choice", {{"type", "function"}, {"function", {{"name", "look"}}}}}});
  }
  for (const auto& [name, tags] : dialects) {
    SCOPED_TRACE(name);
    const fs::path model = root() / "model" / "of-dialect";
    fs::remove_all(model);
    fs::create_directory(model);
    for (const auto& file : fs::directory_iterator(root() / "model"))
      if (file.is_regular_file()) fs::copy(file.path(), model / file.path().filename());
    std::ofstream(model / "chat_template.jinja")
        << "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if tools %}Calls: " << tags
        << "{% endif %}";
    ASSERT_EQ(tandem({"inspect", model.string(), "--json"}), 0) << text(output());
    EXPECT_EQ(parse_json(text(output())).value()["chat_template"]["tool_dialect"], name);
    const auto answers = generate(lines, {"--model", model.string()});
    ASSERT_EQ(answers.size(), lines.size());
    for (const auto& [id, answer] : answers) {
      ASSERT_FALSE(answer.contains("error")) << answer;
      EXPECT_EQ(answer["finish_reason"], "tool_calls") << answer;
      const Json& calls = answer["message"]["tool_calls"];
      ASSERT_EQ(calls.size(), 1u) << answer;
      EXPECT_EQ(calls[0]["function"]["name"], "look");
      const auto arguments = parse_json(calls[0]["function"]["arguments"].get<std::string>());
      EXPECT_TRUE((*arguments)["at"] == "left" || (*arguments)["at"] == "right") << answer;
      EXPECT_TRUE(!arguments->contains("times") || (*arguments)["times"].is_number_integer()) << answer;
    }
  }
}

TEST_F(Generate, the_help_of_render_names_every_key_that_it_reads) {
  ASSERT_EQ(tandem({"render", "--help"}), 0);
  for (const char* key : {"messages", "tools", "add_generation_prompt", "continue_final_message",
                          "chat_template_kwargs", "documents", "now"})
    EXPECT_NE(text(output()).find(key), std::string::npos) << key;
}

TEST_F(Generate, keys_that_are_null_are_missing_and_several_answers_are_those_of_their_seeds) {
  Json line = {{"id", 0}, {"tokens", {1, 2, 3}}, {"seed", 4}, {"max_tokens", 6}, {"ignore_eos", true}};
  Json nulls = line, several = line, next = line;
  nulls["id"] = 1;
  for (const char* key : {"tools", "tool_choice", "top_p", "top_k", "min_p", "stop", "response_format", "n", "messages",
                          "temperature", "chat_template_kwargs", "presence_penalty", "parallel_tool_calls"})
    nulls[key] = nullptr;
  several["id"] = 2;
  several["n"] = 2;
  next["id"] = 3;
  next["seed"] = 5;
  const auto answers = generate({line, nulls, several, next}, {});
  ASSERT_EQ(answers.size(), 4u);
  EXPECT_EQ(answers.at(1)["tokens"], answers.at(0)["tokens"]);
  ASSERT_EQ(answers.at(2)["choices"].size(), 2u) << answers.at(2);
  EXPECT_EQ(answers.at(2)["choices"][0]["tokens"], answers.at(0)["tokens"]);
  EXPECT_EQ(answers.at(2)["choices"][0]["logprobs"], answers.at(0)["logprobs"]);
  EXPECT_EQ(answers.at(2)["choices"][1]["tokens"], answers.at(3)["tokens"]);
}

TEST_F(Generate, tool_choice_auto_leaves_the_model_free_and_one_call_is_one_call) {
  const Json tools = *parse_json(
      R"([{"type":"function","function":{"name":"look","parameters":{"type":"object","properties":{"at":{"enum":["left",)"
      R"("right"]}},"required":["at"],"additionalProperties":false}}}])");
  const Json messages = {{{"role", "user"}, {"content", "Look."}}};
  const Json plain = {{"messages", messages}, {"tools", tools}, {"seed", 3}, {"max_tokens", 12}};
  std::vector<Json> lines;
  for (int i = 0; i < 2; ++i) {
    lines.push_back(plain);
    lines.back()["id"] = i;
  }
  lines[1]["tool_choice"] = "auto";
  for (int i = 2; i < 10; ++i) {
    lines.push_back(plain);
    lines.back().update(
        {{"id", i}, {"seed", i}, {"max_tokens", 400}, {"tool_choice", "required"}, {"parallel_tool_calls", false}});
  }
  const auto answers = generate(lines, {});
  EXPECT_EQ(answers.at(1)["tokens"], answers.at(0)["tokens"]) << "nothing is masked";
  for (int i = 2; i < 10; ++i) {
    if (answers.at(i)["finish_reason"] == "length") continue;
    const std::string text = answers.at(i)["text"].get<std::string>();
    size_t names = 0;
    for (size_t at = text.find("\"look\""); at != std::string::npos; at = text.find("\"look\"", at + 1)) ++names;
    EXPECT_EQ(names, 1u) << text;
  }
}

TEST_F(Generate, numbers_that_do_not_fit_are_refused_and_never_cut) {
  const std::pair<const char*, const char*> items[] = {
      {R"({"tokens":[4294967297]})", "\"tokens[0]\" is 4294967297, expected an integer from 0 to "},
      {R"({"tokens":[1,1.5]})", "\"tokens[1]\" is 1.5"},
      {R"({"tokens":[true]})", "\"tokens[0]\" is true"},
      {R"({"tokens":7})", "\"tokens\" must be an array"},
      {R"({"tokens":[1],"max_tokens":0})", "\"max_tokens\" is 0, expected an integer from 1"},
      {R"({"tokens":[1],"max_tokens":4294967298})", "\"max_tokens\" is 4294967298"},
      {R"({"tokens":[1],"max_tokens":2.9})", "\"max_tokens\" is 2.9"},
      {R"({"tokens":[1],"top_k":18446744073709551615})", "\"top_k\" is 18446744073709551615"},
      {R"({"tokens":[1],"seed":1.5})", "\"seed\" is 1.5"},
      {R"({"tokens":[1],"stop_token_ids":[-1]})", "\"stop_token_ids[0]\" is -1"},
      {R"({"tokens":[1],"stop_token_ids":[1,1000000]})", "\"stop_token_ids[1]\" is 1000000"},
  };
  for (const auto& [line, message] : items) {
    std::ofstream(root() / "requests") << line << "\n";
    EXPECT_EQ(tandem({"generate", "--model", (root() / "model").string(), "--input", (root() / "requests").string()}),
              1);
    EXPECT_NE(parse_json(trim(text(output()))).value()["error"]["message"].get<std::string>().find(message),
              std::string::npos)
        << text(output());
  }
}

TEST_F(Generate, wrong_constraints_are_answered_by_what_is_wrong) {
  const struct {
    const char* line;
    const char* message;
  } items[] = {
      {R"({"prompt":"x","response_format":{"type":"json_schema","json_schema":{"schema":{"if":{},"then":false}}}})",
       "\"if\" is not implemented"},
      {R"({"prompt":"x","response_format":{"type":"json_object"},"stop":"}"})", "would cut a constrained text short"},
      {R"({"prompt":"x","response_format":{"type":"json_object"},"ignore_eos":true})", "needs an end token"},
      {R"({"prompt":"x","response_format":{"type":"json_object"},"stop_token_ids":[300]})", "token 300 ends the turn"},
      {R"({"prompt":"x","tool_choice":"auto"})", "goes with \"messages\""},
      {R"({"messages":[{"role":"user","content":"x"}],"tool_choice":"auto"})", "needs \"tools\""},
  };
  for (const auto& item : items) {
    std::ofstream(root() / "requests") << item.line << "\n";
    EXPECT_EQ(tandem({"generate", "--model", (root() / "model").string(), "--input", (root() / "requests").string()}),
              1);
    EXPECT_NE(parse_json(trim(text(output()))).value()["error"]["message"].get<std::string>().find(item.message),
              std::string::npos)
        << text(output());
  }
}

TEST_F(Generate, null_is_as_good_as_absent_in_a_request) {
  std::ofstream file(root() / "requests");
  file << R"({"id":null,"prompt":"a","max_tokens":2,"response_format":{"type":"text","json_schema":null}})"
       << "\n"
       << R"({"id":null,"prompt":"a","max_tokens":2,"stop":[],"response_format":{"type":"json_object"}})"
       << "\n";
  file.close();
  ASSERT_EQ(tandem({"generate", "--input", root() / "requests", "--model", root() / "model"}), 0) << text(output());
  std::ofstream texts(root() / "texts");
  texts << R"({"id":null,"text":"a </think> b"})"
        << "\n";
  texts.close();
  ASSERT_EQ(tandem({"parse", "--dialect", "hermes", "--input", root() / "texts"}), 0) << text(output());
  EXPECT_FALSE(json(output()).contains("id"));
}

}  // namespace
}  // namespace tandem
