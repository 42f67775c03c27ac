#include "trainer/learn/lora_fields.h"

namespace tandem::trainer {

void add_lora_fields(Schema& schema, LowRankSettings& lora) {
  schema.add("lora.rank", lora.rank, "Rank of LoRA; 0: no LoRA, all weights are trained", 0, 4096);
  schema.add("lora.alpha", lora.alpha, "LoRA's alpha: the product of the factors is scaled by alpha / rank", 0, 1e6);
  schema.add("lora.use_rslora", lora.use_rslora, "Scale by alpha / sqrt(rank)");
  schema.add("lora.targets", lora.targets,
             "Matrices with LoRA factors, such as q_proj; empty: all of the layers except routers");
  schema.add("lora.start", lora.start, "Directory of the adapter to continue from, in PEFT's format; empty: a new one");
}

}  // namespace tandem::trainer
