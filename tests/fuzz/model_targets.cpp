// What comes with a checkpoint, and what a model says.
#include <cstring>

#include "base/utf8.h"
#include "model/chat_template.h"
#include "model/config.h"
#include "model/constraint/constraint.h"
#include "model/constraint/matcher.h"
#include "model/constraint/validator.h"
#include "model/encoder_config.h"
#include "model/gguf.h"
#include "model/gguf_tokenizer.h"
#include "model/message_format.h"
#include "model/precompiled.h"
#include "model/regex.h"
#include "model/reward_head.h"
#include "model/safetensors.h"
#include "model/tokenizer.h"
#include "model/tool_dialect.h"
#include "model/tool_stream.h"
#include "tests/fuzz/targets.h"

namespace tandem::fuzz {
namespace {

void touch(std::span<const std::byte> bytes) {
  volatile std::byte seen{};
  if (!bytes.empty()) seen = bytes.front() ^ bytes.back();
  (void)seen;
}

template <typename T>
void put(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void safetensors(std::string_view bytes) {
  const MemoryFile file(bytes);
  const auto opened = model::Safetensors::open(file.path());
  if (!opened) return;
  for (const auto& [name, tensor] : opened->tensors()) touch(tensor.bytes);
}

std::vector<std::string> safetensors_seeds() {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
      R"("b":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]}})";
  std::string bytes;
  put(bytes, uint64_t{header.size()});
  return {bytes + header + std::string(22, '\1')};
}

void reward_head(std::string_view bytes) {
  static Folder folder;
  folder.put(model::kRewardHeadFile, bytes);
  const auto head = model::read_reward_head(folder.path(), 2);
  if (head && *head && (*head)->weight.size() != 3) __builtin_trap();
}

std::vector<std::string> reward_head_seeds() {
  const std::string header = R"({"__metadata__":{"format":"pt","tandem.tool_calls":"text"},)"
                             R"("weight":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
                             R"("bias":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})";
  std::string bytes;
  put(bytes, uint64_t{header.size()});
  return {bytes + header + std::string(12, '\1')};
}

void gguf(std::string_view bytes) {
  const MemoryFile file(bytes);
  const auto opened = model::Gguf::open(file.path());
  if (!opened) return;
  for (const auto& [name, tensor] : opened->tensors()) {
    touch(tensor.bytes);
    if (tensor.elements() > 1 << 16) continue;
    std::vector<float> values(static_cast<size_t>(tensor.elements()));
    model::dequantise(tensor, values);
  }
  (void)model::tokenizer_files(*opened, 128);
}

std::vector<std::string> gguf_seeds() {
  std::string bytes = "GGUF";
  put(bytes, uint32_t{3});
  put(bytes, uint64_t{2});  // tensors
  put(bytes, uint64_t{3});  // metadata
  const auto text = [&](std::string_view value) {
    put(bytes, uint64_t{value.size()});
    bytes += value;
  };
  text("general.architecture");
  put(bytes, uint32_t{8});
  text("llama");
  text("llama.block_count");
  put(bytes, uint32_t{4});
  put(bytes, uint32_t{1});
  text("tokenizer.ggml.tokens");
  put(bytes, uint32_t{9});
  put(bytes, uint32_t{8});
  put(bytes, uint64_t{2});
  text("a");
  text("b");
  for (const auto& [name, type, offset] :
       {std::tuple{"x", uint32_t{0}, uint64_t{0}}, {"y", uint32_t{8}, uint64_t{128}}}) {
    text(name);
    put(bytes, uint32_t{1});
    put(bytes, uint64_t{32});
    put(bytes, type);
    put(bytes, offset);
  }
  bytes.resize((bytes.size() + 31) / 32 * 32 + 128 + 34, '\2');
  return {bytes};
}

void tokenizer(std::string_view bytes) {
  const auto read = model::Tokenizer::from_json(bytes);
  if (!read) return;
  for (const char* text : {"", "Hello, w\xc3\xb6rld 42!\n", "  a\t\xe2\x96\x81 <s> \xf0\x9f\x98\x80\xff"}) {
    const auto ids = read->encode(text, model::AddSpecial::kYes);
    if (ids) (void)read->decode(*ids);
  }
}

std::vector<std::string> tokenizer_seeds() {
  return {
      R"({"added_tokens":[{"id":4,"content":"<s>","special":true,"lstrip":false,"rstrip":true,"normalized":false,)"
      R"("single_word":false}],"normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Replace",)"
      R"("pattern":{"String":" "},"content":"_"}]},"pre_tokenizer":{"type":"Split","pattern":{"Regex":"\\w+|[^\\w]"},)"
      R"("behavior":"Isolated","invert":false},"post_processor":null,"decoder":{"type":"Sequence","decoders":[)"
      R"({"type":"Replace","pattern":{"String":"_"},"content":" "},{"type":"Fuse"}]},"model":{"type":"BPE",)"
      R"("vocab":{"a":0,"b":1,"ab":2,"_":3},"merges":[["a","b"]],"byte_fallback":false}})",
      R"({"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":true},"decoder":{"type":"ByteLevel"},)"
      R"("model":{"type":"BPE","vocab":{"H":0,"e":1,"He":2,"l":3},"merges":["H e"]}})",
      R"({"normalizer":{"type":"BertNormalizer","lowercase":true},"pre_tokenizer":{"type":"BertPreTokenizer"},)"
      R"("decoder":{"type":"WordPiece","prefix":"##"},"model":{"type":"WordPiece","unk_token":"[UNK]",)"
      R"("vocab":{"[UNK]":0,"hello":1,"##o":2,"w":3}}})",
      R"({"normalizer":{"type":"Sequence","normalizers":[{"type":"Precompiled","precompiled_charsmap":"BAAAAAAAAAAA"},)"
      R"({"type":"Nmt"},{"type":"StripAccents"},{"type":"Strip","strip_left":true,"strip_right":true},)"
      R"({"type":"Replace","pattern":{"Regex":" {2,}"},"content":" "}]},"pre_tokenizer":{"type":"Sequence",)"
      R"("pretokenizers":[{"type":"WhitespaceSplit"},{"type":"Metaspace","replacement":"\u2581","prepend_scheme":"always",)"
      R"("split":true}]},"decoder":{"type":"Metaspace","replacement":"\u2581","prepend_scheme":"always"},)"
      R"("model":{"type":"Unigram","unk_id":0,"byte_fallback":true,)"
      R"("vocab":[["<unk>",0],["\u2581Hello",-1.5],["l",-2.25],["<0x0A>",0]]}})"};
}

// Reads the table's bytes, which a change in tokenizer.json would mostly leave broken as base64.
void precompiled(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string base64;
  for (size_t at = 0; at + 3 <= bytes.size(); at += 3) {
    uint32_t bits = 0;
    for (size_t i = 0; i < 3; ++i) bits = bits << 8 | static_cast<uint8_t>(bytes[at + i]);
    for (int shift = 18; shift >= 0; shift -= 6) base64 += kDigits[bits >> shift & 63];
  }
  const auto table = model::Precompiled::create(base64);
  if (!table) return;
  for (const char* text : {"", "Hello\r\n", "  a\t\xe2\x96\x81 e\xcc\x81 \xf0\x9f\x98\x80"}) (void)table->apply(text);
}

// One entry: "a" becomes "b".
std::vector<std::string> precompiled_seeds() {
  std::vector<uint32_t> units(256);
  units[0] = 1U << 10;
  units[1 ^ 'a'] = 'a' | 1U << 8 | 2U << 10;
  units[(1 ^ 'a') ^ 2] = 0;
  const auto size = static_cast<uint32_t>(units.size() * sizeof units[0]);
  std::string bytes(reinterpret_cast<const char*>(&size), sizeof size);
  bytes.append(reinterpret_cast<const char*>(units.data()), size).append("b");
  bytes.resize((bytes.size() + 2) / 3 * 3, '\0');
  return {bytes};
}

void regex(std::string_view bytes) {
  const size_t end = std::min(bytes.find('\n'), bytes.size());
  const auto compiled = model::Regex::compile(bytes.substr(0, end));
  (void)compiled;
}
std::vector<std::string> regex_seeds() { return {R"((?i:'s|'t)|\p{L}+|\s+(?!\S)|[^\s\p{L}]{1,3})"}; }

void chat_template(std::string_view bytes) {
  static const Json kMessages = Json::parse(
      R"([{"role":"system","content":"s"},{"role":"user","content":"hi"},{"role":"assistant","content":"",)"
      R"("tool_calls":[{"type":"function","id":"1","function":{"name":"f","arguments":{"x":[1,2.5,null]}}}]},)"
      R"({"role":"tool","content":"ok"}])");
  static const Json kTools = Json::parse(
      R"([{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{}}}}])");
  const auto parsed = model::ChatTemplate::parse(bytes, {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  if (!parsed) return;
  (void)parsed->render(kMessages, kTools, {.add_generation_prompt = true});
}

std::vector<std::string> chat_template_seeds() {
  return {
      "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m['content'] | trim }}{% if not loop.last %}\n{% endif "
      "%}"
      "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}",
      "{%- macro show(x, y=2) -%}{{ x|tojson }}{{ y }}{%- endmacro -%}{% set ns = namespace(n=0) %}{% for t in tools %}"
      "{% set ns.n = ns.n + 1 %}{{ show(t.function, y=ns.n) }}{% endfor %}{{ messages|selectattr('role', 'equalto', "
      "'user')|list|length }}{{ messages[1:][::-1]|map(attribute='role')|join(', ') }}",
      "{% if tools is defined and tools %}{{ raise_exception('no') }}{% elif messages[0].role == 'system' %}{{ "
      "'%s-%d' % ('a', 3) ~ [1, 2][0] }}{% else %}{{ range(3)|list }}{% endif %}"};
}

// In pieces, a message gives what it gives as a whole.
void message_stream(std::string_view bytes) {
  static const Json kOffered = Json::parse(
      R"([{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"x":{"type":"integer"},)"
      R"("y":{"type":["array","null"]}}}}}])");
  if (!is_valid_utf8(bytes)) return;
  for (const auto dialect : model::kToolDialects) {
    for (const Json& tools : {kOffered, Json(), Json::array()}) {
      const model::MessageFormat format = {.dialect = dialect, .begins_in_reasoning = bytes.size() % 2 == 0};
      model::MessageStream stream(format, tools);
      std::string reasoning, content;
      size_t calls = 0, errors = 0;
      const auto take = [&](const model::MessageStream::Parts& parts) {
        reasoning += parts.reasoning;
        for (const auto& event : parts.events) {
          if (event.kind == model::ToolEvent::kText) content += event.text;
          calls += event.kind == model::ToolEvent::kCallEnded;
          errors += event.kind == model::ToolEvent::kError;
        }
      };
      uint32_t state = 7;
      for (std::string_view rest = bytes; !rest.empty();) {
        state = state * 1664525 + 1013904223;
        const size_t length = std::min<size_t>(rest.size(), 1 + (state >> 28));
        take(stream.push(rest.substr(0, length)));
        rest.remove_prefix(length);
      }
      take(stream.finish());
      const auto whole = model::parse_message(format, bytes, tools);
      if (reasoning != whole.reasoning || content != whole.content) __builtin_trap();
      if (calls != whole.calls.size() || errors != whole.errors.size()) __builtin_trap();
      for (const auto& call : whole.calls)
        if (call.begin > call.end || call.end > bytes.size()) __builtin_trap();
    }
  }
}

std::vector<std::string> message_stream_seeds() {
  std::vector<std::string> seeds = {
      "<think>a <tool_call> b</think>\n\n<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1}}</tool_call>",
      "{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}} and",
      "x {\"a\": 1}\n</tool_call> [TOOL_CALLS]f[CALL_ID]a[ARGS]{\"x\": 1}[TOOL_CALLS][{\"name\": \"f\"}]",
      "<function=f>\n<parameter=x>\n1\n<parameter=y>\n[]\n</parameter>\n</function>\n</"
      "tool_call>\n<tool_call>\n<function=f>"};
  for (const auto dialect : model::kToolDialects)
    seeds.push_back("<think>hm</think> So: " +
                    model::format_tool_call(dialect, "f", {{"x", 3}, {"y", Json::array({"a\n", nullptr})}}));
  return seeds;
}

void tool_calls(std::string_view bytes) {
  static const Json kTools = Json::parse(
      R"([{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"x":{"type":"integer"},)"
      R"("y":{"type":["array","null"]}}}}}])");
  for (const auto dialect : model::kToolDialects) {
    auto parsed = model::parse_tool_calls(dialect, bytes);
    model::give_types(kTools, parsed.calls);
    for (const auto& call : parsed.calls) {
      if (call.begin > call.end || call.end > bytes.size() || !call.arguments.is_object()) __builtin_trap();
      (void)model::format_tool_call(dialect, call.name, call.arguments);
    }
    for (const auto& error : parsed.errors) {
      if (error.begin > error.end || error.end > bytes.size()) __builtin_trap();
    }
    if (parsed.order.size() != parsed.calls.size() + parsed.errors.size()) __builtin_trap();
  }
}

std::vector<std::string> tool_calls_seeds() {
  std::vector<std::string> seeds = {
      "no call at all", "[TOOL_CALLS] {\"name\": \"f\"}",
      "<|python_tag|>f.call(x=3, y=['\\u00e9', (None,)], z={\"k\": 1e3}); g.call()<|python_tag|>print('é')"};
  const Json arguments = {{"x", 3}, {"y", Json::array({"a\n", nullptr})}, {"z", "</tool_call>"}};
  for (const auto dialect : model::kToolDialects)
    seeds.push_back("text " + model::format_tool_call(dialect, "f", arguments));
  // What was read of a call before its arguments were refused is let go.
  for (const auto dialect : {model::ToolDialect::kKimiK2, model::ToolDialect::kDeepseekV31})
    seeds.push_back(model::format_tool_call(dialect, "a_name_that_is_too_long_to_be_kept_in_place", "no object"));
  return seeds;
}

// A schema, and behind a line end a text that is read by it; then a walk along the masks.
void json_schema(std::string_view bytes) {
  namespace c = model::constraint;
  static const auto kVocabulary = [] {
    std::vector<std::string> tokens = {"{\"", "\": \"", "\", \"", "\"}", "],", "ab", "12", "\\u00", "  "};
    for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
    return *c::Vocabulary::from_bytes(tokens);
  }();
  const size_t end = std::min(bytes.find('\n'), bytes.size());
  const auto schema = parse_json(bytes.substr(0, end));
  if (!schema) return;
  (void)c::tool_grammar(model::ToolDialect::kHermes, *schema, "auto");
  const auto grammar = c::schema_grammar(*schema);
  if (!grammar) return;
  const std::string_view text = bytes.substr(std::min(end + 1, bytes.size())).substr(0, 4096);
  c::Matcher reader(*grammar, kVocabulary);
  const bool read = reader.accept_text(text).ok();
  if (read && reader.complete() && !parse_json(text)) __builtin_trap();
  c::Matcher matcher(*grammar, kVocabulary);
  std::vector<uint64_t> mask(kVocabulary->mask_words());
  for (uint32_t step = 0; step < 40; ++step) {
    matcher.mask(mask);
    std::vector<model::TokenId> allowed;
    for (model::TokenId t = 0; t < 265; ++t)
      if ((mask[t / 64] >> (t % 64) & 1) != 0) allowed.push_back(t);
    if (allowed.empty()) {
      if (!matcher.complete()) __builtin_trap();
      return;
    }
    const auto choice = text.empty() ? step * 7 : static_cast<uint8_t>(text[step % text.size()]);
    if (matcher.accept(allowed[choice % allowed.size()]).code() == Code::kInvalid) __builtin_trap();
  }
}

std::vector<std::string> json_schema_seeds() {
  return {
      R"({"type":"object","properties":{"a":{"type":"integer","minimum":-3,"maximum":12},"b":{"enum":["x",1,null]}},)"
      R"("required":["a"],"additionalProperties":{"type":"string","maxLength":5}})"
      "\n{\"a\": 7, \"c\": \"\\u00e9\"}",
      R"({"$defs":{"n":{"type":"array","items":{"$ref":"#/$defs/n"},"prefixItems":[{"const":1}],"minItems":1}},)"
      R"("anyOf":[{"$ref":"#/$defs/n"},{"type":"string","pattern":"^[a-f]+(-\\d{2,4})?$"}]})"
      "\n[1, [1]]",
      R"({"oneOf":[{"type":"number","exclusiveMinimum":0.5},{"type":"string","format":"date-time"}]})"
      "\n1.25",
      R"([{"type":"function","function":{"name":"f","parameters":{"allOf":[{"type":"object"},{"required":["p"]}]}}}])"};
}

// A schema, and behind a line end a value: what a grammar lets through is valid by the validator's word, too.
void schema_values(std::string_view bytes) {
  namespace c = model::constraint;
  const size_t end = std::min(bytes.find('\n'), bytes.size());
  const auto schema = parse_json(bytes.substr(0, end));
  const auto value = parse_json(bytes.substr(std::min(end + 1, bytes.size())));
  if (!schema || !value) return;
  const auto errors = c::schema_errors(*schema, *value);
  static const auto kBytes = [] {
    std::vector<std::string> tokens;
    for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
    return *c::Vocabulary::from_bytes(tokens);
  }();
  const auto grammar = c::schema_grammar(*schema);
  if (!errors || !grammar) return;
  c::Matcher reader(*grammar, kBytes);
  if (reader.accept_text(dump_json(*value)).ok() && reader.complete() && !errors->empty()) __builtin_trap();
}

// In pieces, the text gives what it gives as a whole.
void tool_stream(std::string_view bytes) {
  for (const auto dialect : model::kToolDialects) {
    model::ToolStream stream(dialect);
    std::string content;
    size_t calls = 0, errors = 0;
    std::vector<std::string> arguments;
    const auto take = [&](const std::vector<model::ToolEvent>& events) {
      for (const auto& event : events) {
        if (event.kind == model::ToolEvent::kText) content += event.text;
        arguments.resize(std::max(arguments.size(), event.number + 1));
        if (event.kind == model::ToolEvent::kArguments) arguments[event.number] += event.text;
        errors += event.kind == model::ToolEvent::kError;
        if (event.kind != model::ToolEvent::kCallEnded) continue;
        ++calls;
        const auto json = parse_json(arguments[event.number]);
        if (is_valid_utf8(bytes) && (!json || *json != event.call.arguments)) __builtin_trap();
      }
    };
    uint32_t state = 1;
    for (std::string_view rest = bytes; !rest.empty();) {
      state = state * 1664525 + 1013904223;
      const size_t length = std::min<size_t>(rest.size(), 1 + (state >> 28));
      take(stream.push(rest.substr(0, length)));
      rest.remove_prefix(length);
    }
    take(stream.finish());
    const auto whole = model::parse_tool_calls(dialect, bytes);
    if (calls != whole.calls.size() || errors != whole.errors.size()) __builtin_trap();
    const size_t first = std::min(whole.content.find_first_not_of(" \t\r\n"), whole.content.size());
    if (content != std::string_view(whole.content).substr(first)) __builtin_trap();
  }
}

void configuration(std::string_view bytes) {
  const auto json = parse_json(bytes);
  if (!json) return;
  if (const auto config = model::config_from_json(*json)) {
    const auto again = model::config_from_json(model::to_json(*config));
    if (!again || !(*again == *config)) __builtin_trap();
  }
  (void)model::encoder_config_from_json(*json);
}

std::vector<std::string> configuration_seeds() {
  return {
      R"({"model_type":"llama","hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,)"
      R"("intermediate_size":128,"vocab_size":100,"rms_norm_eps":1e-5,"rope_theta":10000.0,"hidden_act":"silu",)"
      R"("max_position_embeddings":512,"tie_word_embeddings":true,"eos_token_id":[1,2],"rope_scaling":{"rope_type":)"
      R"("llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":64}})",
      R"({"model_type":"qwen3_moe","hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,"head_dim":32,)"
      R"("num_key_value_heads":2,"intermediate_size":128,"moe_intermediate_size":32,"num_experts":4,)"
      R"("num_experts_per_tok":2,"vocab_size":100,"rms_norm_eps":1e-6,"rope_theta":1e6,"hidden_act":"silu",)"
      R"("max_position_embeddings":512,"norm_topk_prob":true})",
      R"({"model_type":"bert","hidden_size":32,"num_hidden_layers":2,"num_attention_heads":4,"intermediate_size":64,)"
      R"("vocab_size":100,"max_position_embeddings":64,"type_vocab_size":2,"hidden_act":"gelu","layer_norm_eps":1e-12})"};
}

constexpr Target kModelTargets[] = {{"safetensors", safetensors, safetensors_seeds},
                                    {"reward_head", reward_head, reward_head_seeds},
                                    {"gguf", gguf, gguf_seeds},
                                    {"tokenizer", tokenizer, tokenizer_seeds},
                                    {"precompiled", precompiled, precompiled_seeds},
                                    {"regex", regex, regex_seeds},
                                    {"chat_template", chat_template, chat_template_seeds},
                                    {"tool_calls", tool_calls, tool_calls_seeds},
                                    {"tool_stream", tool_stream, tool_calls_seeds},
                                    {"message_stream", message_stream, message_stream_seeds},
                                    {"schema_values", schema_values, json_schema_seeds},
                                    {"json_schema", json_schema, json_schema_seeds},
                                    {"configuration", configuration, configuration_seeds}};

}  // namespace

std::span<const Target> model_targets() { return kModelTargets; }

}  // namespace tandem::fuzz
