// The section `lora` of the configs of `tandem sft` and `tandem run`.
#pragma once

#include "base/config.h"
#include "trainer/learn/low_rank.h"

namespace tandem::trainer {

void add_lora_fields(Schema& schema, LowRankSettings& lora);

}  // namespace tandem::trainer
