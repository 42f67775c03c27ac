#include "trainer/learn/lora_fields.h"

namespace tandem::trainer {

void add_lora_fields(Schema& schema, LowRankSettings& lora) {
  schema.add("lora.rank", lora.rank, "Of the factors that learn in place of the weights (LoRA); 0: all weights learn",
             0, 4096);
  schema.add("lora.alpha", lora.alpha, "The product of the factors counts alpha / rank", 0, 1e6);
  schema.add("lora.use_rslora", lora.use_rslora, "It counts alpha / sqrt(rank)");
  schema.add("lora.targets", lora.targets,
             "Matrices that have factors, such as q_proj; empty: all of the layers but routers");
  schema.add("lora.start", lora.start, "Directory of the adapter to go on with, in PEFT's format; empty: a new one");
}

}  // namespace tandem::trainer
