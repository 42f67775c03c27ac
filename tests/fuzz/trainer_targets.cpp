// Transcripts and pairs of answers to learn from, in files that somebody else wrote.
#include "tests/fuzz/targets.h"
#include "trainer/sft/preference.h"
#include "trainer/sft/transcript.h"
#include "trainer/sft/transcript_file.h"

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
          R"("content":"q"},{"role":"assistant","content":"b"}]})"};
}

constexpr Target kTrainerTargets[] = {{"transcripts", transcripts, transcripts_seeds}};

}  // namespace

std::span<const Target> trainer_targets() { return kTrainerTargets; }

}  // namespace tandem::fuzz
