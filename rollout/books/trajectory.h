// The tokens of an episode: the trainer learns from them, and `tandem episodes --tokens` prints them.
//
// Token ids are those of the episode; no text is tokenised again. The four lists have one length. Logprobs and versions
// have a meaning only where `sampled` is 1.
//
// An episode whose conversation was summed up has several segments, one behind the other in the lists: each is a
// conversation from its first token on, and sees nothing of the segments before it. The model's last turn of a segment
// that another follows is the summary.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/expert_routes.h"
#include "base/keep_sets.h"
#include "base/prompt_hint.h"
#include "base/record_log.h"
#include "rollout/books/branching.h"
#include "rollout/books/ledger.h"
#include "wire/socket.h"

namespace tandem::rollout {

struct Trajectory {
  EpisodeKey key;
  uint64_t group = 0;
  std::string numerics_id;
  std::vector<int32_t> tokens;
  std::vector<uint8_t> sampled;
  std::vector<float> logprobs;
  std::vector<uint64_t> versions;
  std::vector<uint32_t> later_segments;  // where they begin, ascending; empty: there is one segment
  // In a mixture of experts, where they are recorded: the experts that each token went to when it was computed, for the
  // token after it or for the first time. As many rows as tokens; the last of a segment has none that is known.
  ExpertRoutes routes;
  SharedTrunk trunk;
  // Where sampling cuts some off: the tokens that each was drawn from. Logprobs are those among these alone.
  KeepSets kept;
  // Of the prompt, for the model as its own teacher (algorithm.teacher.hint).
  PromptHint hint;
  friend bool operator==(const Trajectory&, const Trajectory&) = default;

  void append(std::span<const int32_t> observed);
  void append_sampled(int32_t token, float logprob, uint64_t version, std::span<const int32_t> drawn_from = {});
  // Appends routes of the last segment from token `first` on. Known routes stay.
  void append_routes(size_t first, std::span<const uint8_t> rows) { routes.record(last_segment() + first, rows); }
  void begin_segment() { later_segments.push_back(static_cast<uint32_t>(tokens.size())); }
  // The start of the last segment, and its tokens.
  size_t last_segment() const { return later_segments.empty() ? 0 : later_segments.back(); }
  // The tokens before the first that was sampled.
  std::span<const int32_t> prompt() const;
  std::span<const int32_t> last_tokens() const { return std::span(tokens).subspan(last_segment()); }
};

// Bytes of its lists.
size_t bytes_of(const Trajectory& trajectory);

inline constexpr size_t kMostSegments = 256;  // of what is read

// As a message (header fields and four bulk frames, two more with routes, one with kept tokens) and back; kCorrupt
// where lengths or the digest do not fit, routes name experts that do not exist, or a token is none of those that were
// kept.
void write_trajectory(const Trajectory& trajectory, wire::Trajectory::Builder out, wire::Outgoing& message);
Result<Trajectory> read_trajectory(wire::Trajectory::Reader in, const wire::Incoming& message);

// All trajectories of a run, in RUN/trajectories/. Appending and reading by key; the last record of a key counts.
// kInvalid where a record is of a newer format.
// Thread safety: none; one process appends, others may open it to read.
class TrajectoryStore {
 public:
  static Result<TrajectoryStore> open(const fs::path& folder);  // to append
  static Result<TrajectoryStore> open_to_read(const fs::path& folder);

  // Durable on return, with one wait for the disk.
  Status append(const Trajectory& trajectory);
  Status append(std::span<const Trajectory* const> trajectories);
  bool contains(const EpisodeKey& key) const { return offsets_.contains(key); }
  Result<Trajectory> read(const EpisodeKey& key) const;
  size_t size() const { return offsets_.size(); }
  // The size of the log, where it is open to append.
  uint64_t bytes() const { return log_ ? log_->size() : 0; }

 private:
  TrajectoryStore() = default;
  Status index();
  fs::path path_;
  FileDescriptor file_;  // to read: a run directory may be moved away
  std::optional<RecordLog> log_;
  std::map<EpisodeKey, uint64_t> offsets_;
};

}  // namespace tandem::rollout
