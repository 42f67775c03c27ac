// Encodes and decodes messages about episodes between coordinator, rollouts and trainer.
#pragma once

#include "rollout/books/ledger.h"
#include "wire/messages.capnp.h"

namespace tandem::rollout {

void write_lease(const LeaseTerms& terms, wire::Lease::Builder out);
LeaseTerms read_lease(wire::Lease::Reader in);
void write_claim(const EpisodeKey& key, uint32_t claims, wire::EpisodeAttempt::Builder out);
// The sender of the message is the worker that commits.
void write_commit(const Commit& commit, wire::Commit::Builder out);
// An unknown outcome becomes kInfraError.
Commit read_commit(const std::string& worker, wire::Commit::Reader in);
// Nothing for an empty text, and for one that cannot be read: an episode counts without it.
std::optional<Behaviour> read_behaviour(std::string_view text);
void write_batch(const TrainBatch& batch, wire::TrainBatch::Builder out);

}  // namespace tandem::rollout
