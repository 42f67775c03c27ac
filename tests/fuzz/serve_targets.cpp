// Requests to a server, and what a model says in answer to them.
#include "serve/model_set.h"
#include "serve/request_reader.h"
#include "tests/fuzz/targets.h"

namespace tandem::fuzz {
namespace {

// A tokenizer of a few letters and a template of a few marks.
serve::TextSide text_side() {
  Json vocabulary = Json::object();
  int id = 0;
  for (const char c : std::string_view("abcdefghijklmnopqrstuvwxyz{}[]<>/_\":, 0123456789")) {
    vocabulary[c == ' ' ? std::string("Ġ") : std::string(1, c)] = id++;
  }
  const auto special = [&](const char* content) {
    return Json{{"id", id++},      {"content", content},  {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", false}, {"special", true}};
  };
  const Json added = Json::array({special("<|fim_prefix|>"), special("<|fim_suffix|>"), special("<|fim_middle|>")});
  const Json file = {{"version", "1.0"},
                     {"added_tokens", added},
                     {"normalizer", nullptr},
                     {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}},
                     {"post_processor", nullptr},
                     {"decoder", {{"type", "ByteLevel"}}},
                     {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", Json::array()}}}};
  serve::TextSide side;
  side.tokenizer = std::move(*model::Tokenizer::from_json(dump_json(file)));
  side.chat_template = std::move(*model::ChatTemplate::parse(
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% if m.tool_calls %}{% for c in m.tool_calls %}"
      "<tool_call>{{ c.function.arguments | tojson }}</tool_call>{% endfor %}{% endif %}{% endfor %}"
      "{% if tools %}{{ tools | tojson }}{% endif %}{% if add_generation_prompt %}<think>{% endif %}"
      "{# </think> #}"));
  return side;
}

const std::vector<serve::Endpoint>& endpoints() {
  static const std::vector<serve::Endpoint> all = {serve::chat_endpoint(), serve::completions_endpoint(),
                                                   serve::messages_endpoint(), serve::generate_endpoint(),
                                                   serve::responses_endpoint()};
  return all;
}

// What the tokens of the prompt would be as an answer.
void answer(const serve::Prepared& prepared, const model::Tokenizer& tokenizer) {
  const auto& generation = prepared.generation;
  std::vector<serve::Choice> choices;
  serve::EventWriter out;
  for (int i = 0; i < generation.answers(); ++i) choices.emplace_back(&tokenizer, generation.choice, "call_");
  const serve::AnswerView view{.prompts = generation.prompts, .choices = choices, .n = generation.n};
  prepared.shape->begin(view, out);
  for (size_t i = 0; i < choices.size(); ++i) {
    for (size_t at = 0; !choices[i].ended(); ++at) {
      rollout::SampledToken token;
      const auto& prompt = generation.prompts[0];
      token.token = prompt[at % prompt.size()];
      token.turn_ended = at > 200;
      token.end = rollout::TurnEnd::kLength;
      if (const auto piece = choices[i].take(token)) prepared.shape->piece(view, i, *piece, out);
    }
  }
  prepared.shape->end(view, out);
  (void)dump_json(prepared.shape->whole(view));
}

void serve_requests(std::string_view bytes) {
  if (bytes.empty()) return;
  static const serve::TextSide side = text_side();
  const auto& endpoint = endpoints()[static_cast<unsigned char>(bytes[0]) % endpoints().size()];
  const serve::FieldTable table(endpoint.fields);
  model::ModelConfig config;
  config.vocabulary = side.tokenizer->size();
  serve::Constraints constraints(side, config);
  const serve::ModelView view{
      .name = "m", .text = side, .config = config, .constraints = constraints, .max_tokens = 512};
  serve::Fields fields;
  const auto prepared = serve::shielded([&]() -> Result<serve::Prepared> {
    TRY(serve::read_fields(fields, table, endpoint.required, bytes.substr(1)));
    return endpoint.prepare(fields, view, "id", 0);
  });
  if (prepared && prepared->generation.answers() <= 64) answer(*prepared, *side.tokenizer);
}

std::vector<std::string> serve_requests_seeds() {
  return {
      R"(0{"model":"m","messages":[{"role":"user","content":"hi"}],"temperature":0.5,"n":2,"stop":["ab","c"]})",
      R"(0{"model":"m","messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"1","function":{"name":"f","arguments":"{\"a\":1}"}}]},)"
      R"({"role":"tool","content":"x"}],"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"},"strict":true}}],"tool_choice":"auto"})",
      R"(0{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a"}]}],"response_format":{"type":"json_schema","json_schema":{"schema":{"type":"object"}}}})",
      R"(1{"model":"m","prompt":["ab",[1,2]],"max_tokens":9,"echo":true,"logprobs":2,"logit_bias":{"3":-5}})",
      R"(1{"model":"m","prompt":"ab","suffix":"cd","stream_options":{"include_usage":true}})",
      R"(2{"model":"m","max_tokens":9,"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"r"}]}],)"
      R"("tools":[{"name":"f","input_schema":{"type":"object"}}],"tool_choice":{"type":"any"}})",
      R"(3{"token_ids":[1,2,3],"sampling_params":{"max_tokens":4,"seed":-1,"logprobs":1,"stop":"a"},"output_mode":"text"})",
      R"(4{"model":"m","instructions":"i","input":[{"role":"user","content":[{"type":"input_text","text":"a"}]},{"type":"function_call","call_id":"1","name":"f",)"
      R"("arguments":"{}"},{"type":"function_call_output","call_id":"1","output":"r"}],"tools":[{"type":"function","name":"f","parameters":{"type":"object"}}],"text":{"format":{"type":"text"}}})"};
}

constexpr Target kServeTargets[] = {{"serve_requests", serve_requests, serve_requests_seeds}};

}  // namespace

std::span<const Target> serve_targets() { return kServeTargets; }

}  // namespace tandem::fuzz
