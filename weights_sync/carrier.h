// Versions over the wire: manifests and chunks as messages, and the answers of whoever hands them out.
#pragma once

#include "weights_sync/handout.h"
#include "wire/socket.h"

namespace tandem::weights_sync {

void write_manifest(const Manifest& manifest, wire::WeightsManifest::Builder out);
// kInvalid where the sizes are absurd; nothing is allocated by what a message claims.
Result<Manifest> read_manifest(wire::WeightsManifest::Reader in);

void write_wanted(const Wanted& wanted, wire::WeightsWanted::Builder out);
Wanted read_wanted(wire::WeightsWanted::Reader in);

// Tells a listener, or all of them, what they are to fetch next; nothing to those who have the newest version.
void announce(const Handout& handout, wire::Socket& socket, const std::string& listener);
void announce(const Handout& handout, wire::Socket& socket);
// Answers a message that is about weights, and returns the bytes of weights that were sent; nothing where it is not.
std::optional<size_t> answer(Handout& handout, wire::Socket& socket, const wire::Incoming& message, Time now);

}  // namespace tandem::weights_sync
