// The terms of a lease as a message, and back.
#pragma once

#include "rollout/books/ledger.h"
#include "wire/messages.capnp.h"

namespace tandem::rollout {

void write_lease(const LeaseTerms& terms, wire::Lease::Builder out);
LeaseTerms read_lease(wire::Lease::Reader in);

}  // namespace tandem::rollout
