// Versions over the wire: manifests and chunks as messages.
#pragma once

#include "weights_sync/version.h"
#include "wire/socket.h"

namespace tandem::weights_sync {

void write_manifest(const Manifest& manifest, wire::WeightsManifest::Builder out);
// kInvalid where the sizes are absurd; nothing is allocated by what a message claims.
Result<Manifest> read_manifest(wire::WeightsManifest::Reader in);

}  // namespace tandem::weights_sync
