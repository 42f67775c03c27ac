// The section `lora` of the configs of `tandem sft` and `tandem run`.
#pragma once

#include "base/config.h"
#include "trainer/low_rank.h"

namespace tandem::cli {

void add_lora_fields(Schema& schema, trainer::LowRankSettings& lora);

}  // namespace tandem::cli
