// Transcripts and pairs of answers to learn from, in files that somebody else wrote; and what a teacher behind an
// endpoint answers, or a run has kept of it.
#include "tests/fuzz/targets.h"
#include "trainer/sft/preference.h"
#include "trainer/sft/transcript.h"
#include "trainer/sft/transcript_file.h"
#include "trainer/teacher_answer.h"
#include "trainer/teacher_record.h"

namespace tandem::fuzz {
namespace {

void transcripts(std::string_view bytes) {
  const MemoryFile file(bytes);
  (void)trainer::visit_transcripts(file.path(), [](int, const Result<Json>& value) -> Status {
    if (value) (void)trainer::read_transcript(*value);
    if (value) (void)trainer::read_preference(*value);
    if (value) (void)trainer::read_margin(*value);
    if (value && value->is_object() && value->contains("messages"))
      (void)trainer::read_chat(*value, trainer::Reading::kAsItIs);
    return {};
  });
}
std::vector<std::string> transcripts_seeds() {
  return {R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"q"}]},)"
          R"({"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"grep",)"
          R"("arguments":"{\"pattern\":\"x\"}"}}]},{"role":"tool","content":"r","tool_call_id":"c"},)"
          R"({"role":"assistant","content":"a","weight":1}],"tools":[{"type":"function","function":{"name":"grep"}}],)"
          R"("chat_template_kwargs":{"enable_thinking":false}})"
          "\n\n"
          R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a","weight":0}]})",
          "{\n"
          R"("schema_version":"ATIF-v1.7","agent":{"tool_definitions":[{"function":{"name":"ls"}}]},"steps":[)"
          R"({"source":"user","message":"q"},{"source":"agent","message":"","reasoning_content":"t","tool_calls":)"
          R"([{"tool_call_id":"c","function_name":"ls","arguments":{}}],"observation":{"results":)"
          R"([{"source_call_id":"c","content":"a.txt"}]}},{"source":"agent","message":"a"}]})",
          R"({"tokens":[1,2,3],"sampled":[0,1,1],"reward":0.5,"split":"train"})",
          R"({"prompt":[{"role":"user","content":"q"}],"chosen":"a","rejected":{"role":"assistant","content":"b"}})"
          "\n"
          R"({"chosen":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}],"rejected":[{"role":"user",)"
          R"("content":"q"},{"role":"assistant","content":"b"}]})",
          R"({"prompt":"q","chosen":"a","rejected":{"role":"assistant","content":5}})"};
}

// Three words and a special token.
const model::Tokenizer& teacher_words() {
  static const auto tokenizer = model::Tokenizer::from_json(
      R"({"model":{"type":"WordPiece","unk_token":"u","continuing_subword_prefix":"##","max_input_chars_per_word":9,)"
      R"("vocab":{"u":0,"a":1,"b":2,"<e>":3}},"pre_tokenizer":{"type":"Whitespace"},)"
      R"("added_tokens":[{"id":3,"content":"<e>","special":true,"single_word":false,"lstrip":false,"rstrip":false,)"
      R"("normalized":false}]})");
  if (!tokenizer) __builtin_trap();
  return *tokenizer;
}

void teacher_answers(std::string_view bytes) {
  const int32_t tokens[] = {0, 1, 3};
  for (const auto form : trainer::kTeacherForms) {
    const auto logprobs = trainer::read_teacher_logprobs(form, bytes, tokens);
    if (logprobs && (logprobs->size() != 3 || !((*logprobs)[1] > -9999 && (*logprobs)[1] < 1))) __builtin_trap();
    (void)trainer::check_teacher_tokens(form, bytes, "u a b", teacher_words());
    (void)trainer::check_teacher_names(form, bytes, tokens, teacher_words());
  }
  if (const auto context = trainer::read_teacher_context(bytes, "m"); context && *context && **context <= 0)
    __builtin_trap();
}
std::vector<std::string> teacher_answers_seeds() {
  return {R"({"choices":[{"text":"x","prompt_logprobs":[null,{"1":{"logprob":-0.5,"rank":1,"decoded_token":"a"}},)"
          R"({"3":{"logprob":-1.5,"decoded_token":"<e>"},"2":{"logprob":-9999.0}}]}]})",
          R"({"choices":[{"logprobs":{"tokens":["u","a","b"],"token_logprobs":[null,-0.5,-1]}}]})",
          R"({"choices":[{}],"prompt_logprobs":[null,{"1":{"logprob":0}},{"3":{"logprob":-2}}]})",
          R"({"object":"list","data":[{"id":"m","max_model_len":4096},{"id":"n"}]})"};
}

std::vector<trainer::Sample> taught_samples() {
  std::vector<trainer::Sample> samples(1);
  samples[0] = {.tokens = {1, 2, 3}, .trained = {0, 1, 1}};
  return samples;
}
void teacher_records(std::string_view bytes) {
  auto samples = taught_samples();
  if (trainer::parse_teacher_record(bytes, 1, samples) && samples[0].teacher_logprobs.size() != 3) __builtin_trap();
}
std::vector<std::string> teacher_records_seeds() {
  auto samples = taught_samples();
  samples[0].teacher_logprobs = {0, -1, -2};
  Folder folder;
  if (!trainer::write_teacher_record(folder.path(), 1, samples)) __builtin_trap();
  return {*read_file(folder.path() / trainer::teacher_record_name(1))};
}

constexpr Target kTrainerTargets[] = {{"transcripts", transcripts, transcripts_seeds},
                                      {"teacher_answers", teacher_answers, teacher_answers_seeds},
                                      {"teacher_records", teacher_records, teacher_records_seeds}};

}  // namespace

std::span<const Target> trainer_targets() { return kTrainerTargets; }

}  // namespace tandem::fuzz
