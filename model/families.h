// The families of models, as config.json names them.
#pragma once

#include <array>
#include <string_view>

namespace tandem::model {

struct Family {
  std::string_view name;          // model_type
  std::string_view architecture;  // the class of transformers
};

constexpr std::array<Family, 9> kFamilies = {{{"llama", "LlamaForCausalLM"},
                                              {"mistral", "MistralForCausalLM"},
                                              {"qwen2", "Qwen2ForCausalLM"},
                                              {"qwen3", "Qwen3ForCausalLM"},
                                              {"qwen3_moe", "Qwen3MoeForCausalLM"},
                                              {"glm4", "Glm4ForCausalLM"},
                                              {"glm4_moe", "Glm4MoeForCausalLM"},
                                              {"deepseek_v3", "DeepseekV3ForCausalLM"},
                                              {"kimi_k2", "DeepseekV3ForCausalLM"}}};

// Null where there is none of that name.
constexpr const Family* family_named(std::string_view name) {
  for (const Family& family : kFamilies) {
    if (family.name == name) return &family;
  }
  return nullptr;
}

}  // namespace tandem::model
