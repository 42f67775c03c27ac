// A relay process: fetches each version of the weights once, and sends it on to rollouts and to other relays.
//
// It fetches as a rollout does, from the trainer or from a relay above it, and checks each chunk and every part. Only a
// version that passed is offered: whole, and as deltas that are made again from the checked bytes. The digests of its
// parts are the trainer's, so a rollout checks in the end what it would without a relay.
//
// It begins with version 0, which lies in its model folder. It has no state on disk: one that is started again fetches
// what it needs. Memory: the version that comes, two that are offered, deltas of one, and up to two more that somebody
// is in the middle of fetching whole.
#pragma once

#include <atomic>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/file.h"
#include "model/weight_format.h"
#include "weights_sync/history.h"
#include "wire/directory.h"
#include "wire/socket.h"

namespace tandem::rollout {

struct RelaySettings {
  wire::Identity identity;
  wire::Directory directory;           // of the run's topology; the coordinator tells what changes
  std::optional<wire::Secret> secret;  // of the run's connections, where they are between machines
  std::string address;                 // where it serves weights
  std::string host = {};               // this machine's name in the directory; empty: as the topology has it
  fs::path model;                      // version 0
  model::WeightFormat format = model::WeightFormat::kBf16;
  weights_sync::HistorySettings weights = {};
  std::optional<wire::Peer> above = {};  // the relay that it fetches from; nothing: the trainer
  double above_seconds = 10;             // patience with that one
  int threads = 1;                       // that check and compare
  int chunk_window = 8;                  // chunks asked for at once
};

// Runs until the coordinator says stop, or `stop` is set. After WeightsFeed::kMostFailures refused versions in a row it
// returns their error.
Status run_relay(const RelaySettings& settings, const Clock& clock, const std::atomic<bool>& stop);

}  // namespace tandem::rollout
