#include "trainer/sft/tiny_template.h"

#include <algorithm>

namespace tandem::trainer {

namespace {

// Tools as NAME(ARGUMENTS): a tiny model has no room for their schemas.
#define TANDEM_TOOL_LINES                                                                                        \
  "{% for t in tools or [] %}{{ t.function.name ~ '(' ~ (t.function.parameters.properties | list | join(', ')) " \
  "~ ')\\n' }}{% endfor %}"

constexpr std::string_view kPlain =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + "
    "'\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

// ChatML, with calls as CALLS writes each `c`, of which `f` is the function.
std::string chatml(std::string_view calls) {
  std::string source =
      "{% for m in messages %}{% if m.role == 'tool' %}{% if messages[loop.index0 - 1].role != 'tool' %}"
      "{{ '<|im_start|>user' }}{% endif %}{{ '\\n<tool_response>\\n' ~ m.content ~ '\\n</tool_response>' }}"
      "{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\\n' }}{% endif %}{% else %}"
      "{{ '<|im_start|>' ~ m.role ~ '\\n' ~ m.content }}{% if m.role == 'system' and tools %}{{ '\\n' "
      "}}" TANDEM_TOOL_LINES
      "{{ '<tool_call>' }}{% endif %}{% for c in m.tool_calls or [] %}{% set f = c.function %}"
      "{{ '\\n' if m.content or not loop.first }}";
  source += calls;
  return source +
         "{% endfor %}{{ '<|im_end|>\\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}"
         "{{ '<|im_start|>assistant\\n' }}{% endif %}";
}

constexpr std::string_view kHermesCall =
    "{{ '<tool_call>\\n{\"name\": \"' ~ f.name ~ '\", \"arguments\": ' ~ (f.arguments | tojson) ~ '}\\n</tool_call>' "
    "}}";
constexpr std::string_view kCoderCall =
    "{{ '<tool_call>\\n<function=' ~ f.name ~ '>\\n' }}{% for k, v in f.arguments | items %}{{ '<parameter=' ~ k ~ "
    "'>\\n' "
    "~ (v if v is string else v | tojson) ~ '\\n</parameter>\\n' }}{% endfor %}{{ '</function>\\n</tool_call>' }}";

constexpr std::string_view kGlm4 =
    "[gMASK]<sop>{% if tools %}{{ '<|system|>\\n' }}" TANDEM_TOOL_LINES
    "{{ '<tool_call>' }}{% endif %}{% for m in messages %}{% if m.role == 'tool' %}"
    "{% if messages[loop.index0 - 1].role != 'tool' %}<|observation|>{% endif %}"
    "{{ '\\n<tool_response>\\n' ~ m.content ~ '\\n</tool_response>' }}{% elif m.role == 'assistant' %}<|assistant|>"
    "{{ '\\n' ~ m.content if m.content }}{% for c in m.tool_calls or [] %}{{ '\\n<tool_call>' ~ c.function.name ~ "
    "'\\n' }}"
    "{% for k, v in c.function.arguments | items %}{{ '<arg_key>' ~ k ~ '</arg_key>\\n<arg_value>' ~ "
    "(v if v is string else v | tojson) ~ '</arg_value>\\n' }}{% endfor %}{{ '</tool_call>' }}{% endfor %}{% else %}"
    "{{ '<|' ~ m.role ~ '|>\\n' ~ m.content }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}";

constexpr std::string_view kLlama3 =
    "{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' ~ ('ipython' if m.role == 'tool' else m.role) ~ "
    "'<|end_header_id|>\\n\\n' }}{% if m.role == 'user' and loop.index0 == 1 %}" TANDEM_TOOL_LINES
    "{% endif %}{% if m.tool_calls %}{% if m.tool_calls | length > 1 %}{{ raise_exception('one call in a message') }}"
    "{% endif %}{{ '{\"name\": \"' ~ m.tool_calls[0].function.name ~ '\", \"parameters\": ' ~ "
    "(m.tool_calls[0].function.arguments | tojson) ~ '}' }}{% else %}{{ m.content }}{% endif %}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}";

// CALL writes what stands in the marks of a call.
std::string deepseek(std::string_view call, std::string_view open, std::string_view list, std::string_view list_end) {
  std::string source =
      "{% set ns = namespace(answers=false) %}{{ bos_token }}{% for m in messages if m.role == 'system' %}"
      "{{ m.content ~ '\\n' }}{% endfor %}" TANDEM_TOOL_LINES
      "{% for m in messages %}{% if m.role == 'user' %}{{ '<｜User｜>' ~ m.content }}{% elif m.role == 'assistant' %}"
      "{% if not ns.answers %}<｜Assistant｜>";
  source.append(open).append(
      "{% endif %}{% set ns.answers = false %}{{ m.content }}{% if m.tool_calls %}<｜tool▁calls▁begin｜>"
      "{% for c in m.tool_calls %}<｜tool▁call▁begin｜>");
  source.append(call).append(
      "<｜tool▁call▁end｜>{% endfor %}<｜tool▁calls▁end｜>{% endif %}<｜end▁of▁sentence｜>{% elif m.role == 'tool' %}"
      "{% if not ns.answers %}");
  source.append(list).append(
      "{% endif %}{% set ns.answers = true %}{{ '<｜tool▁output▁begin｜>' ~ m.content ~ '<｜tool▁output▁end｜>' }}"
      "{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}");
  source.append(list_end).append(
      "{% endif %}{% endif %}{% endfor %}{% if add_generation_prompt and not ns.answers %}<｜Assistant｜>");
  return source.append(open).append("{% endif %}");
}

constexpr std::string_view kKimi =
    "{% if tools %}<|im_system|>tool_declare<|im_middle|>" TANDEM_TOOL_LINES
    "<|im_end|>{% endif %}{% for m in messages %}{% if m.role == 'tool' %}<|im_system|>tool<|im_middle|>"
    "{{ '## Return of ' ~ m.tool_call_id ~ '\\n' ~ m.content }}{% elif m.role == 'assistant' %}"
    "<|im_assistant|>assistant<|im_middle|>{{ m.content }}{% if m.tool_calls %}<|tool_calls_section_begin|>"
    "{% for c in m.tool_calls %}{{ '<|tool_call_begin|>' ~ c.id ~ '<|tool_call_argument_begin|>' ~ "
    "(c.function.arguments | tojson) ~ '<|tool_call_end|>' }}{% endfor %}<|tool_calls_section_end|>{% endif %}{% else "
    "%}"
    "{{ '<|im_' ~ m.role ~ '|>' ~ m.role ~ '<|im_middle|>' ~ m.content }}{% endif %}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_assistant|>assistant<|im_middle|>{% endif %}";

#undef TANDEM_TOOL_LINES

const std::vector<TinyTemplate>& templates() {
  static const std::vector<TinyTemplate> kTemplates = [] {
    const std::vector<std::string> chatml_marks = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
    const std::vector<std::string> deepseek_marks = {
        "<｜begin▁of▁sentence｜>",  "<｜end▁of▁sentence｜>",  "<｜User｜>",
        "<｜Assistant｜>",          "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>",
        "<｜tool▁call▁begin｜>",    "<｜tool▁call▁end｜>",    "<｜tool▁sep｜>",
        "<｜tool▁outputs▁begin｜>", "<｜tool▁outputs▁end｜>", "<｜tool▁output▁begin｜>",
        "<｜tool▁output▁end｜>"};
    const std::vector<std::string> deepseek_ends = {"<｜end▁of▁sentence｜>"};
    constexpr std::string_view kFenced =
        "{{ 'function<｜tool▁sep｜>' + c.function.name + '\\n```json\\n' + c.function.arguments + '\\n```' }}";
    constexpr std::string_view kBare = "{{ c.function.name + '<｜tool▁sep｜>' + c.function.arguments }}";
    return std::vector<TinyTemplate>{
        {std::string(kPlainTemplate), std::string(kPlain), chatml_marks, {"<|im_end|>"}},
        {"hermes", chatml(kHermesCall), chatml_marks, {"<|im_end|>"}},
        {"qwen3_coder", chatml(kCoderCall), chatml_marks, {"<|im_end|>"}},
        {"glm4",
         std::string(kGlm4),
         {"<|endoftext|>", "<|user|>", "<|observation|>", "<|assistant|>", "<|system|>", "[gMASK]", "<sop>"},
         {"<|user|>", "<|observation|>", "<|endoftext|>"}},
        {"llama3",
         std::string(kLlama3),
         {"<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|python_tag|>"},
         {"<|eot_id|>"},
         false,
         true},
        {"deepseek_v3", deepseek(kFenced, "", "<｜tool▁outputs▁begin｜>", "<｜tool▁outputs▁end｜>"), deepseek_marks,
         deepseek_ends, true},
        {"deepseek_v31", deepseek(kBare, "</think>", "", ""), deepseek_marks, deepseek_ends, true},
        {"kimi_k2",
         std::string(kKimi),
         {"[EOS]", "<|im_end|>", "<|im_system|>", "<|im_user|>", "<|im_assistant|>", "<|im_middle|>",
          "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>", "<|tool_call_end|>",
          "<|tool_call_argument_begin|>"},
         {"<|im_end|>"}},
    };
  }();
  return kTemplates;
}

}  // namespace

const TinyTemplate* find_tiny_template(std::string_view name) {
  const auto found = std::ranges::find(templates(), name, &TinyTemplate::name);
  return found == templates().end() ? nullptr : &*found;
}

std::vector<std::string> tiny_template_names() {
  std::vector<std::string> names;
  for (const auto& each : templates()) names.push_back(each.name);
  return names;
}

}  // namespace tandem::trainer
