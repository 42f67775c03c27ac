// A bucket as an ObjectStore, by path-style requests with signatures of version 4.
#pragma once

#include "weights_sync/object_store.h"

namespace tandem::weights_sync {

// `settings` as check_store() takes them. kUnfit where the key is not in the environment.
Result<std::unique_ptr<ObjectStore>> open_bucket(const StoreSettings& settings);

}  // namespace tandem::weights_sync
