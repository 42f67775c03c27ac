// Transcripts in all formats that are read, and what is said of those that cannot be learned from.
#include "trainer/sft/transcript.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/envs/scratch.h"
#include "trainer/sft/fine_tuning.h"
#include "trainer/sft/sample_order.h"
#include "trainer/sft/sample_set.h"
#include "trainer/sft/transcript_file.h"

namespace tandem::trainer {
namespace {

const fs::path kModel = fs::path(TANDEM_SOURCE_DIR) / "tests" / "golden" / "sft" / "model";

std::string mistake_of(const char* json) {
  const auto transcript = read_transcript(*parse_json(json));
  return transcript ? "" : transcript.error().message();
}

// What tests write lies here until their process ends.
const fs::path& scratch() {
  static const envs::Scratch folder;
  return folder.path;
}

fs::path file_with(const std::string& name, const std::string& text) {
  const fs::path path = scratch() / name;
  std::ofstream(path) << text;
  return path;
}

TEST(Transcript, what_cannot_be_learned_from_is_named_with_its_message) {
  const std::pair<const char*, const char*> cases[] = {
      {R"([1])", "is not a JSON object"},
      {R"({"conversations": []})", "has neither messages (OpenAI's format), nor steps (ATIF), nor tokens (an episode)"},
      {R"({"messages": []})", "messages is not a list with at least one message"},
      {R"({"messages": [{"role": "user", "content": "hi"}]})",
       "has no assistant message: there is nothing to learn from"},
      {R"({"messages": [{"role": "assistent", "content": "hi"}]})",
       "messages[0] (assistent): role \"assistent\" is not known; did you mean \"assistant\"?"},
      {R"({"messages": [{"content": "hi"}]})", "messages[0]: has no role"},
      {R"({"messages": [{"role": "user"}, {"role": "assistant", "content": "a"}]})",
       "messages[0] (user): has no content"},
      {R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": null}]})",
       "messages[1] (assistant): says nothing: it has neither content nor tool_calls"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}, {"role": "assistant", "content": "a"}]})",
       "messages[0] (user): content has a part of type \"image_url\"; only text can be learned from"},
      {R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "tool_calls": [{"function":
       {"name": "grep", "arguments": "[1]"}}]}]})",
       "messages[1] (assistant): tool_calls[0]: the arguments of grep are no JSON object"},
      {R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "tool_calls": [{"function":
       {"name": "grep", "arguments": "{\"a\": "}}]}]})",
       "messages[1] (assistant): tool_calls[0]: the arguments of grep are no JSON object: "},
      {R"({"messages": [{"role": "assistant", "content": "a"}, {"role": "tool", "content": "r", "tool_call_id": "x"}]})",
       "messages[1] (tool): tool_call_id \"x\" is of no tool call in the messages before it"},
      {R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}], "tools": [{}]})",
       "tools[0] is not {\"type\": \"function\""},
      {R"({"schema_version": "2.0", "steps": []})", "schema_version is \"2.0\", not one of ATIF-v1"},
      {R"({"schema_version": "ATIF-v1.7", "steps": [{"source": "human", "message": "q"}]})",
       "steps[0]: source is \"human\", not system, user or agent"},
      {R"({"tokens": [1, 2], "sampled": [1]})", "tokens has 2 entries and sampled 1; they must be as many"},
      {R"({"tokens": [1, -2], "sampled": [0, 1]})", "tokens[1] is -2, not a token id"},
      {R"({"tokens": [1, 2], "sampled": [0, 2]})", "sampled[1] is 2, not 0 or 1"}};
  for (const auto& [json, expected] : cases) EXPECT_TRUE(mistake_of(json).starts_with(expected)) << mistake_of(json);
}

TEST(Transcript, a_session_in_atif_is_the_chat_that_it_was) {
  const Json atif = *parse_json(R"({"schema_version": "ATIF-v1.7", "agent": {"name": "a", "tool_definitions": [
    {"type": "function", "function": {"name": "grep"}}]}, "steps": [
    {"step_id": 1, "source": "system", "message": "s"}, {"step_id": 2, "source": "user", "message": "q"},
    {"step_id": 3, "source": "agent", "message": "I look.", "reasoning_content": "hm", "tool_calls": [
      {"tool_call_id": "c1", "function_name": "grep", "arguments": {"pattern": "x"}}],
     "observation": {"results": [{"source_call_id": "c1", "content": "a.txt"}]}},
    {"step_id": 4, "source": "agent", "message": "It is in a.txt."}]})");
  const Json openai = *parse_json(R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"},
    {"role": "assistant", "content": "I look.", "reasoning_content": "hm", "tool_calls": [{"id": "c1", "type": "function",
      "function": {"name": "grep", "arguments": "{\"pattern\": \"x\"}"}}]},
    {"role": "tool", "content": "a.txt", "tool_call_id": "c1"}, {"role": "assistant", "content": "It is in a.txt."}],
    "tools": [{"type": "function", "function": {"name": "grep"}}]})");
  const auto one = read_transcript(atif), other = read_transcript(openai);
  ASSERT_TRUE(one) << one.error().to_string();
  ASSERT_TRUE(other) << other.error().to_string();
  EXPECT_EQ(std::get<Chat>(*one).messages, std::get<Chat>(*other).messages);
  EXPECT_EQ(std::get<Chat>(*one).tools, std::get<Chat>(*other).tools);
}

TEST(Transcript, files_are_lines_or_one_document_and_an_empty_one_is_refused) {
  const auto read = [](const fs::path& file) {
    std::vector<std::pair<int, bool>> lines;
    const Status status = visit_transcripts(file, [&](int line, Result<Json> value) -> Status {
      lines.emplace_back(line, value.has_value());
      return {};
    });
    return std::pair(status, lines);
  };
  using Lines = std::vector<std::pair<int, bool>>;
  EXPECT_EQ(read(file_with("lines.jsonl", "{\"a\": 1}\n\n{\"a\": \n{}")).second,
            (Lines{{1, true}, {3, false}, {4, true}}));
  EXPECT_EQ(read(file_with("one.json", "{\n  \"a\": 1\n}\n")).second, (Lines{{1, true}}));
  EXPECT_NE(read(file_with("list.json", "[\n {}\n]\n")).first.to_string().find("jq -c '.[]'"), std::string::npos);
  EXPECT_NE(read(file_with("empty.jsonl", " \n\n")).first.message().find("is empty"), std::string::npos);
  EXPECT_EQ(read("/nowhere/x.jsonl").first.message(), "/nowhere/x.jsonl: No such file or directory");
}

Result<Sample> render(const fs::path& model, const char* json, const RenderingSettings& settings = {}) {
  const auto renderer = ChatRenderer::load(model, settings);
  EXPECT_TRUE(renderer) << renderer.error().to_string();
  return renderer->sample(std::get<Chat>(*read_transcript(*parse_json(json))));
}

fs::path model_with_template(const std::string& name, const std::string& chat_template) {
  const fs::path copy = scratch() / name;
  fs::remove_all(copy);
  fs::copy(kModel, copy, fs::copy_options::recursive);
  std::ofstream(copy / "chat_template.jinja") << chat_template;
  return copy;
}

std::string trained_text(const fs::path& model, const Sample& sample) {
  std::string text;
  const auto renderer = ChatRenderer::load(model, {});
  for (const auto& run : renderer->runs_of(sample)) text += run.trained ? fmt::format("[{}]", run.text) : run.text;
  return text;
}

constexpr const char* kTwoTurns =
    R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"},
    {"role": "user", "content": "r"}, {"role": "assistant", "content": "b"}]})";

TEST(Transcript, a_turn_is_told_also_where_the_last_one_is_written_in_another_way) {
  // As Qwen3's: an empty thought stands in the last turn alone.
  const fs::path model = model_with_template(
      "last-is-other",
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if loop.last and m.role == 'assistant' %}<think></think>{% "
      "endif %}{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif "
      "%}");
  const auto sample = render(model, kTwoTurns);
  ASSERT_TRUE(sample) << sample.error().to_string();
  EXPECT_EQ(trained_text(model, *sample),
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n[a<|im_end|>]\n<|im_start|>user\nr<|im_end|>\n"
            "<|im_start|>assistant\n[<think></think>b<|im_end|>]\n");
}

TEST(Transcript, what_clients_dump_as_null_and_content_in_parts_is_read_as_it_is_meant) {
  const fs::path model =
      model_with_template("plain",
                          "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
                          "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}");
  const auto sample = render(model, R"({"messages": [
      {"role": "user", "content": [{"type": "text", "text": "q"}, {"type": "input_text", "text": "r"}], "name": null},
      {"role": "assistant", "content": "a", "weight": null, "function_call": null, "tool_calls": null, "refusal": null}]})");
  ASSERT_TRUE(sample) << sample.error().to_string();
  EXPECT_EQ(trained_text(model, *sample), "<|im_start|>user\nqr<|im_end|>\n<|im_start|>assistant\n[a<|im_end|>]\n");
}

// As Qwen3's, which drops the thoughts of earlier questions.
TEST(Transcript, thoughts_that_the_template_leaves_out_are_an_error_with_their_message) {
  const fs::path last = model_with_template(
      "thoughts-of-the-last",
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.reasoning_content and loop.last %}<think>"
      "{{ m.reasoning_content }}</think>{% endif %}{{ m.content.split('</think>')[-1] if not loop.last else m.content "
      "}}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}");
  const auto chat = [](const char* first, const char* second) {
    return fmt::format(R"({{"messages": [{{"role": "user", "content": "q"}}, {{"role": "assistant", {}}},
        {{"role": "user", "content": "r"}}, {{"role": "assistant", {}}}]}})",
                       first, second);
  };
  constexpr const char* kField = R"("content": "a", "reasoning_content": "I think.")";
  constexpr const char* kInline = R"("content": "<think>I think.</think>a")";
  constexpr const char* kPlain = R"("content": "b")";
  for (const char* thought : {kField, kInline}) {
    const auto dropped = render(last, chat(thought, kPlain).c_str());
    ASSERT_FALSE(dropped) << thought;
    const std::string said = dropped.error().message();
    EXPECT_TRUE(said.starts_with("messages[1] (assistant): ")) << said;
    const bool field = std::string_view(thought) == kField;
    EXPECT_TRUE(!field || said.find("does not write its reasoning where more follows") != std::string::npos) << said;
    const auto written = render(last, chat(kPlain, thought).c_str());
    ASSERT_TRUE(written) << written.error().to_string();
    EXPECT_NE(trained_text(last, *written).find("I think."), std::string::npos);
  }
  const std::string muted = std::string(kField) + R"(, "weight": 0)";
  EXPECT_TRUE(render(last, chat(muted.c_str(), kPlain).c_str())) << "nothing of it is learned";
}

TEST(Transcript, an_end_token_within_an_answer_is_not_learned_as_its_end) {
  const auto chat = [](const char* message) {
    return fmt::format(R"({{"messages": [{{"role": "user", "content": "q <|im_end|>"}}, {}]}})", message);
  };
  for (const char* said :
       {R"({"role": "assistant", "content": "a <|im_end|> b"})",
        R"({"role": "assistant", "content": "a", "reasoning_content": "so <|im_end|>"})",
        R"({"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments":
           {"x": "<|im_end|>"}}}]})"}) {
    const auto sample = render(kModel, chat(said).c_str());
    ASSERT_FALSE(sample) << said;
    EXPECT_NE(sample.error().message().find("messages[1] (assistant): says the end token <|im_end|> within"),
              std::string::npos)
        << sample.error().message();
  }
  EXPECT_TRUE(render(kModel, chat(R"({"role": "assistant", "content": "a <|im_end b"})").c_str()));
}

// transformers marks the place where the macro began, and not what the block wrote.
TEST(Transcript, a_generation_block_within_a_macro_is_refused) {
  const fs::path model = model_with_template("macro",
                                             "{% macro say(m) %}{% generation %}{{ m.content }}<|im_end|>{% "
                                             "endgeneration %}{% endmacro %}{% for m in messages "
                                             "%}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}{{ say(m) }}{% "
                                             "else %}{{ m.content }}<|im_end|>{% endif "
                                             "%}\n{% endfor %}");
  const auto sample = render(model, kTwoTurns);
  ASSERT_FALSE(sample);
  EXPECT_NE(sample.error().message().find("{% generation %} within a macro"), std::string::npos)
      << sample.error().to_string();
}

TEST(Transcript, a_turn_that_cannot_be_told_is_an_error_with_its_message) {
  // What came before the last question is written without its line ends.
  const fs::path rewriting = model_with_template(
      "rewriting",
      "{% for m in messages %}<|im_start|>{{ m.role }}{{ ' ' if messages|length > 3 else '\n' }}{{ m.content "
      "}}<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant{{ ' ' if messages|length > 3 else "
      "'\n' }}{% endif %}");
  auto sample = render(rewriting, kTwoTurns);
  ASSERT_FALSE(sample);
  EXPECT_TRUE(sample.error().message().starts_with("messages[1] (assistant): the template writes what comes before it"))
      << sample.error().to_string();
  // The opening of a turn ends within a token.
  const fs::path joined =
      model_with_template("joined",
                          "{% for m in messages %}<|im_start|>{{ m.role }}\"{{ m.content }}<|im_end|>{% endfor %}"
                          "{% if add_generation_prompt %}<|im_start|>assistant\"{% endif %}");
  sample =
      render(joined, R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": ": x"}]})");
  ASSERT_FALSE(sample);
  EXPECT_EQ(sample.error().message(),
            "messages[1] (assistant): its first characters share a token with what comes before them");
  const fs::path raising = model_with_template("raising", "{{ raise_exception('roles must alternate') }}");
  sample = render(raising, kTwoTurns);
  ASSERT_FALSE(sample);
  EXPECT_EQ(sample.error().message(), "roles must alternate");
  const fs::path dated = model_with_template("dated", "{{ strftime_now('%Y') }}");
  sample = render(dated, kTwoTurns);
  ASSERT_FALSE(sample);
  EXPECT_NE(sample.error().hint().find("data.now"), std::string::npos);
}

TEST(Transcript, a_template_that_passes_over_calls_or_tools_is_not_learned_from_in_silence) {
  const fs::path model =
      model_with_template("no-calls",
                          "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
                          "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}");
  constexpr const char* kCall =
      R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "I look.",
    "tool_calls": [{"id": "c", "function": {"name": "grep", "arguments": "{\"pattern\": \"x\"}"}}, {"id": "d", "function":
    {"name": "ls", "arguments": "{}"}}]}, {"role": "tool", "content": "a.txt", "tool_call_id": "c"},
    {"role": "tool", "content": "b.txt", "tool_call_id": "d"}, {"role": "assistant", "content": "done"}]})";
  auto sample = render(model, kCall);
  ASSERT_FALSE(sample);
  EXPECT_EQ(sample.error().message(),
            "messages[1] (assistant): the model's chat template does not write the call of grep");
  EXPECT_NE(sample.error().hint().find("data.tool_calls=text"), std::string::npos);
  sample = render(model, kCall, {.calls = CallWriting::kText, .now = {}});
  ASSERT_TRUE(sample) << sample.error().to_string();
  EXPECT_EQ(
      trained_text(model, *sample),
      "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n[I look.\n<tool_call>{\"name\": \"grep\", "
      "\"arguments\": {\"pattern\": \"x\"}}</tool_call>\n<tool_call>{\"name\": \"ls\", \"arguments\": {}}</tool_call>"
      "<|im_end|>]\n<|im_start|>user\n<tool_response>\na.txt\n</tool_response>\n<tool_response>\nb.txt\n"
      "</tool_response><|im_end|>\n<|im_start|>assistant\n[done<|im_end|>]\n");
  sample = render(model, R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}],
    "tools": [{"type": "function", "function": {"name": "grep"}}]})");
  ASSERT_FALSE(sample);
  EXPECT_EQ(sample.error().message(), "has tools, which the model's chat template does not write");
}

TEST(Transcript, a_message_of_weight_0_is_seen_and_not_learned_from) {
  const fs::path model =
      model_with_template("weights",
                          "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
                          "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}");
  constexpr const char* kMuted =
      R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a",
    "weight": 0}, {"role": "user", "content": "r"}, {"role": "assistant", "content": "b", "weight": 1}]})";
  for (const fs::path& each : {model, kModel}) {
    const auto sample = render(each, kMuted);
    ASSERT_TRUE(sample) << sample.error().to_string();
    EXPECT_EQ(trained_text(each, *sample),
              "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n<|im_start|>user\nr<|im_end|>\n"
              "<|im_start|>assistant\n[b<|im_end|>]\n");
  }
}

std::string chat_line(int number, int length = 1) {
  std::string text;
  for (int i = 0; i < length; ++i) text += fmt::format("x{} ", number);
  return Json{{"messages", {{{"role", "user"}, {"content", "q"}}, {{"role", "assistant"}, {"content", text}}}}}
      .dump()
      .append("\n");
}

TEST(SampleReader, tells_the_first_mistakes_with_file_and_line_and_counts_the_rest) {
  const auto renderer = ChatRenderer::load(kModel, {});
  std::string lines = chat_line(1);
  for (int i = 0; i < 25; ++i) lines += "{\"messages\": []}\n";
  SampleReader reader(*renderer, {});
  const fs::path file = file_with("mistakes.jsonl", lines);
  reader.add_file(file, Purpose::kTrain);
  const auto set = reader.finish();
  ASSERT_FALSE(set);
  const std::string said = set.error().message();
  EXPECT_TRUE(said.starts_with("25 of what data names cannot be learned from:\n")) << said;
  EXPECT_NE(said.find(file.string() + ":2: messages is not a list"), std::string::npos) << said;
  EXPECT_NE(said.find(":21: "), std::string::npos);
  EXPECT_EQ(said.find(":22: "), std::string::npos);
  EXPECT_TRUE(said.ends_with("and 5 more")) << said;
}

TEST(SampleReader, leaves_out_what_cannot_be_learned_from_where_that_is_wanted_and_names_it) {
  const auto renderer = ChatRenderer::load(kModel, {});
  const auto read = [&](const std::string& lines, OnMistake on_mistake) {
    SampleReader reader(*renderer, {.on_mistake = on_mistake});
    reader.add_file(file_with("bad.jsonl", lines), Purpose::kTrain);
    return reader.finish();
  };
  const std::string bad = "{\"messages\": []}\nno JSON\n";
  EXPECT_FALSE(read(chat_line(1) + bad + chat_line(2), OnMistake::kStop));
  const auto set = read(chat_line(1) + bad + chat_line(2), OnMistake::kSkip);
  ASSERT_TRUE(set) << set.error().to_string();
  EXPECT_EQ(set->train.size(), 2u);
  EXPECT_EQ(set->mistaken, 2);
  ASSERT_EQ(set->mistakes.size(), 2u);
  EXPECT_NE(set->mistakes[0].find("bad.jsonl:2: messages is not a list"), std::string::npos) << set->mistakes[0];
  EXPECT_NE(set->mistakes[1].find("bad.jsonl:3: "), std::string::npos) << set->mistakes[1];
  const auto none = read(bad, OnMistake::kSkip);
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message().find("none of 2 transcripts can be learned from"), std::string::npos);
  // A file that is not there is no transcript to skip.
  SampleReader reader(*renderer, {.on_mistake = OnMistake::kSkip});
  reader.add_file("/nowhere/x.jsonl", Purpose::kTrain);
  reader.add_file(file_with("good.jsonl", chat_line(1)), Purpose::kTrain);
  EXPECT_FALSE(reader.finish());
}

TEST(SampleReader, leaves_out_chats_of_weight_0_throughout_and_counts_them) {
  const auto renderer = ChatRenderer::load(kModel, {});
  const std::string muted = R"({"messages": [{"role": "user", "content": "q"},
      {"role": "assistant", "content": "a", "weight": 0}]})";
  const auto read = [&](const std::string& lines) {
    SampleReader reader(*renderer, {});
    reader.add_file(file_with("muted.jsonl", lines), Purpose::kTrain);
    return reader.finish();
  };
  const std::string line = dump_json(*parse_json(muted)) + "\n";
  const auto set = read(chat_line(1) + line);
  ASSERT_TRUE(set) << set.error().to_string();
  EXPECT_EQ(set->train.size(), 1u);
  EXPECT_EQ(set->muted, 1);
  const auto none = read(line);
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message().find("every assistant message has weight 0"), std::string::npos);
}

TEST(SampleReader, leaves_out_what_is_too_long_badly_rewarded_or_held_out_and_counts_it) {
  const auto renderer = ChatRenderer::load(kModel, {});
  const auto read = [&](const std::string& lines, SampleSetSettings settings) {
    SampleReader reader(*renderer, settings);
    reader.add_file(file_with("some.jsonl", lines), Purpose::kTrain);
    return reader.finish();
  };
  auto set = read(chat_line(1) + chat_line(2, 40), {.max_tokens = 64});
  ASSERT_TRUE(set) << set.error().to_string();
  EXPECT_EQ(set->train.size(), 1u);
  EXPECT_EQ(set->too_long, 1);
  set = read(chat_line(2, 40), {.max_tokens = 64});
  ASSERT_FALSE(set);
  EXPECT_TRUE(set.error().message().starts_with("every transcript to train on is longer than data.max_tokens=64"));

  const std::string episodes =
      "{\"tokens\": [5, 6, 2], \"sampled\": [0, 1, 1], \"reward\": 1, \"split\": \"train\"}\n"
      "{\"tokens\": [5, 7, 2], \"sampled\": [0, 1, 1], \"reward\": 0.5, \"split\": \"train\"}\n"
      "{\"tokens\": [5, 8, 2], \"sampled\": [0, 1, 1], \"reward\": 1, \"split\": \"heldout\"}\n"
      "{\"tokens\": [5, 9, 2], \"sampled\": [0, 1, 1], \"reward\": null, \"split\": \"train\"}\n";
  set = read(episodes, {});
  ASSERT_TRUE(set) << set.error().to_string();
  ASSERT_EQ(set->train.size(), 1u);
  EXPECT_EQ(set->train[0].sample.tokens, (std::vector<int32_t>{5, 6, 2}));
  EXPECT_EQ(set->low_reward + set->heldout + set->without_reward, 3);
  EXPECT_EQ(read(episodes, {.min_reward = 0.5})->train.size(), 2u);
  // The longest segment is what has to fit, and nothing of it is learned that nothing stands before.
  const std::string summed_up = "{\"tokens\": [5, 6, 2, 5, 7, 2], \"sampled\": [0, 1, 1, 1, 1, 1], \"reward\": 1, ";
  set = read(summed_up + "\"later_segments\": [3]}\n", {.max_tokens = 3});
  ASSERT_TRUE(set) << set.error().to_string();
  EXPECT_EQ(set->train.at(0).sample.later_segments, std::vector<uint32_t>{3});
  EXPECT_EQ(set->train[0].sample.trained, (std::vector<uint8_t>{0, 1, 1, 0, 1, 1}));
  for (const char* wrong : {"[6]", "[0]", "[-1]", "[3, 2]", "[1.5]"})
    EXPECT_FALSE(read(summed_up + "\"later_segments\": " + wrong + "}\n", {})) << wrong;
  set = read("{\"tokens\": [5, 49000], \"sampled\": [0, 1], \"reward\": 1}\n", {});
  ASSERT_FALSE(set);
  EXPECT_NE(set.error().message().find("has token 49000, and the model's vocabulary ends at"), std::string::npos);
}

TEST(SampleReader, holds_out_by_the_hash_of_the_content_so_copies_fall_on_one_side) {
  const auto renderer = ChatRenderer::load(kModel, {});
  std::string once, twice;
  for (int i = 0; i < 60; ++i) once += chat_line(i);
  for (int i = 59; i >= 0; --i) twice += chat_line(i) + chat_line(i);
  const auto read = [&](const std::string& lines) {
    SampleReader reader(*renderer, {.validation_share = 0.25});
    reader.add_file(file_with("shares.jsonl", lines), Purpose::kTrain);
    return *reader.finish();
  };
  const SampleSet one = read(once), two = read(twice);
  EXPECT_EQ(one.train.size() + one.validation.size(), 60u);
  EXPECT_NEAR(static_cast<double>(one.validation.size()), 15, 10);
  EXPECT_EQ(two.validation.size(), 2 * one.validation.size());
  EXPECT_NE(one.digest(), two.digest());
  EXPECT_EQ(one.digest(), read(once).digest());
}

TEST(SampleOrder, an_epoch_is_every_sample_once_in_steps_of_bounded_size_and_each_epoch_another_order) {
  std::vector<int> lengths;
  for (int i = 0; i < 100; ++i) lengths.push_back(i == 7 ? 500 : 10 + i);
  SampleOrder order(lengths, 200, 3), again(lengths, 200, 3);
  const int64_t per_epoch = order.steps_of(1);
  std::vector<std::vector<uint32_t>> epochs(2);
  for (int64_t step = 1; step <= order.steps_of(2); ++step) {
    const auto [samples, epoch] = order.step(step);
    EXPECT_EQ(epoch, step > per_epoch);
    int tokens = 0;
    for (const uint32_t index : samples) tokens += lengths[index];
    EXPECT_TRUE(tokens <= 200 || samples.size() == 1) << tokens;
    EXPECT_FALSE(samples.empty());
    epochs[static_cast<size_t>(epoch)].insert(epochs[static_cast<size_t>(epoch)].end(), samples.begin(), samples.end());
  }
  EXPECT_NE(epochs[0], epochs[1]);
  for (auto& epoch : epochs) {
    std::sort(epoch.begin(), epoch.end());
    for (uint32_t i = 0; i < 100; ++i) EXPECT_EQ(epoch[i], i);
  }
  // A step is found without those before it.
  const auto late = again.step(per_epoch + 2).samples, expected = order.step(per_epoch + 2).samples;
  EXPECT_TRUE(std::equal(late.begin(), late.end(), expected.begin(), expected.end()));
}

TEST(Validations, the_best_is_kept_and_patience_counts_those_since) {
  Validations v;
  EXPECT_TRUE(v.add(10, 2.0));
  EXPECT_TRUE(v.add(20, 1.5));
  EXPECT_FALSE(v.add(30, 1.5));
  EXPECT_FALSE(v.exhausted(2));
  EXPECT_FALSE(v.add(40, 1.6));
  EXPECT_TRUE(v.exhausted(2));
  EXPECT_FALSE(v.exhausted(0));
  EXPECT_EQ(v.best_step, 20);
  EXPECT_FALSE(v.add(50, std::nan("")));
}

}  // namespace
}  // namespace tandem::trainer
