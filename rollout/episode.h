// The life of an episode in a rollout, from its lease to the end of what this rollout has to do with it. A pure
// machine: events in, actions out; no sockets, engine, tokenizer, threads or clocks.
//
// An episode waits for one thing at a time. What is not answered in time is asked again or ends as a failure of the
// infrastructure; it never gets a reward that nobody gave. Events may be doubled, late or in another order: requests to
// the environment have a number (`ask`), and an answer to an earlier one changes nothing.
//
// Where its lease says so, an episode begins as one with others of its family (rollout/books/branching.h): one of them
// plays the trunk, and the others wait for it. With the last turn of the trunk they go on from where it stands, each in
// a sandbox of its own that begins with the trunk's files. One for which there is no trunk to go on from plays it by
// itself: it draws the same. Where the episode of the trunk ends before that turn, the others begin by their own seeds.
//
// Thread safety: none.
// Invariants:
// 1. Over is returned once, as the last action; afterwards, only sandboxes that come late are released.
// 2. An outcome of the policy is committed after the trainer has said that the trajectory is on disk.
// 3. The calls of a turn that were answered are not sent again.
// 4. A sandbox is released, or goes to another rollout with the episode; nothing is asked of it afterwards.
// 5. A conversation that is to be summed up gives one summary, which the environment does not see, and goes on from it.
// 6. What was offered to another rollout goes on here only when the coordinator has said so: whoever claims it first
//    has it, and an offer of before is void.
// 7. The sandbox of a trunk is asked nothing while others begin from it.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "rollout/agent/conversation.h"
#include "rollout/books/outcome.h"
#include "rollout/handover.h"

namespace tandem::rollout {

// The states of a waiting episode, in the order of its life.
enum class Waiting : uint8_t {
  kWeights,
  kSandbox,
  kTokens,
  kTools,
  kGrade,
  kTrainer,
  kCoordinator,
  kHandedOver,
  kClaim,
  kTrunk,    // of another episode of its family
  kBranches  // others of its family, which begin from its sandbox
};
std::string_view to_string(Waiting waiting);  // "for ...", in a sentence

class Episode {
 public:
  struct Settings {
    std::string numerics_id;    // of the engine
    RouteShape routes = {};     // that it records
    uint32_t vocabulary = 0;    // of the engine, of which kept tokens are
    Duration patience{};        // for an answer of the environment, then once more
    Duration grade_patience{};  // the same for a grade; zero: as for all else
  };
  Episode(LeaseTerms lease, const Settings& settings, Time now);
  // Goes on with another rollout's episode, which is not ours until the coordinator says so: claimed at the first Tick.
  Episode(Handover handover, const Settings& settings, Time now);

  // ---- Events ----

  struct Tick {            // a turn of the work loop
    uint64_t version = 0;  // of the weights that sample now
  };
  struct Asked {  // Acquire was carried out
    uint64_t ask = 0;
    std::optional<int> server;  // by rank; none: there was nobody to ask
  };
  struct Began {  // a sandbox is there; a server gives the same one to the same attempt, whichever ask it answers
    int server = 0;
    uint64_t sandbox = 0;  // its lease
    envs::Opening opening;
    uint32_t max_turns = 0;
  };
  struct Refused {  // the environment could not do what it was asked
    uint64_t ask = 0;
    Status why;                      // kExhausted: it has no room
    bool is_room_elsewhere = false;  // another server may have some
  };
  struct TurnOpened {  // Open or Continue was carried out
    std::vector<int32_t> tokens;
    bool is_retokenised = false;    // NextTurn's
    bool asks_for_summary = false;  // what is sampled now is a summary and no turn
  };
  struct TurnRefused {
    Status why;  // kExhausted: no room for them in the model's context
  };
  struct Sampled {
    int32_t token = 0;
    float logprob = 0;
    uint64_t version = 0;
    size_t routes_from = 0;            // where routes are recorded: the place of the segment that they begin at
    std::vector<uint8_t> routes = {};  // rows of base/expert_routes.h
    std::vector<int32_t> kept = {};    // where they are recorded: what it was drawn from; empty: all tokens
  };
  struct TurnEnded {
    Said said;            // turn_tokens(), read
    bool is_cut = false;  // at a limit
  };
  struct Called {
    uint64_t ask = 0;
    bool is_over = false;
    std::vector<std::string> results;        // one for each call
    std::optional<std::string> instruction;  // of the next step, after an answer
  };
  struct Scored {
    uint64_t ask = 0;
    double reward = 0;
    std::map<std::string, double> terms;
    std::vector<double> turn_rewards;  // one for each message of the model, or none
    std::string shown;                 // what a judge compares with its siblings
    std::string found = {};            // wrong with it, in words; empty: nothing
    std::optional<Behaviour> behaviour = {};
  };
  struct Stored {  // the trainer has the trajectory on disk
    EpisodeKey key;
  };
  struct Committed {  // the coordinator has the outcome in its log
    EpisodeKey key;
  };
  struct Revoked {  // the lease is lost
    EpisodeKey key;
  };
  struct Stolen {       // it is to go to another rollout, where it may
    std::string thief;  // address
  };
  struct NotHandedOver {};  // HandOver could not be carried out
  // Another rollout has it since claim number `claims`. An episode that came back after that claim stays.
  struct Gone {
    EpisodeKey key;
    uint32_t claims = 0;
  };
  struct Ours {  // the claim is granted, as the one of that number
    EpisodeKey key;
    uint32_t claims = 0;
  };
  // An environment server has another life: what was asked of the one before is asked again, so that a sandbox that
  // ended with it is refused at once.
  struct TrunkTaken {};  // another of its family plays the trunk; it has not begun itself
  struct TrunkFree {};   // nobody plays it any more
  struct TrunkEnded {};  // before the turn with which it would have branched
  struct Forked {        // the trunk, as it stands; its sandbox stays as it is until this has one
    Handover trunk;
  };
  struct BranchesBegun {};  // nobody needs the sandbox of the trunk as it is any more
  struct ServerRestarted {
    int server = 0;
  };
  struct ServerSilent {  // though another answers
    int server = 0;
  };
  struct ServerLost {  // with all of its sandboxes
    int server = 0;
  };
  using Event = std::variant<Tick, Asked, Began, Refused, TurnOpened, TurnRefused, Sampled, TurnEnded, Called, Scored,
                             Stored, Committed, Revoked, Stolen, NotHandedOver, Gone, Ours, TrunkTaken, TrunkFree,
                             TrunkEnded, Forked, BranchesBegun, ServerRestarted, ServerSilent, ServerLost>;

  // ---- Actions ----

  // Answered by Asked where `server` is none, which means the best one; then by Began or Refused.
  struct Trunk {  // a sandbox to begin from
    int server = 0;
    uint64_t sandbox = 0;
    uint32_t turn = 0;  // that it has played
  };
  struct Acquire {
    uint64_t ask = 0;
    std::optional<int> server;
    std::optional<Trunk> from;
  };
  struct Call {  // answered by Called or Refused
    uint64_t ask = 0;
    int server = 0;
    uint64_t sandbox = 0;
    uint32_t turn = 0;
    Said said;
  };
  struct Score {  // answered by Scored or Refused
    uint64_t ask = 0;
    int server = 0;
    uint64_t sandbox = 0;
    std::string answer;
    bool is_truncated = false;
  };
  struct Release {
    int server = 0;
    uint64_t sandbox = 0;
  };
  // The first turn of a segment, and one that follows calls: answered by TurnOpened or TurnRefused at once, then by
  // what is sampled. A later segment has the summary of the one before in its opening.
  struct Open {
    std::string summary;  // empty: the first segment
  };
  struct Continue {  // after turn_tokens(), which are said()
    Reply reply;
  };
  struct Resume {};          // the turn goes on after trajectory(); answered by TurnRefused where it cannot
  struct EndSampling {};     // the engine may forget the episode
  struct SendTrajectory {};  // trajectory(), to the trainer; answered by Stored
  struct SendCommit {        // to the coordinator; answered by Committed
    Commit commit;
  };
  struct HandOver {  // answered by NotHandedOver, or by Gone some time later
    std::string thief;
    Handover handover;
  };
  struct SendClaim {};  // lease().claims, to the coordinator; answered by Ours, Gone or Revoked
  struct Fork {         // to those of its family that wait; answered by BranchesBegun
    Handover trunk;
  };
  struct EndTrunk {};  // the others wait for nothing: TrunkEnded, to each
  struct Note {        // for the log
    std::string text;
  };
  enum class End : uint8_t { kCommitted, kRevoked, kHandedOver };
  struct Over {
    End end = End::kCommitted;
  };
  using Action = std::variant<Acquire, Call, Score, Release, Open, Continue, Resume, EndSampling, SendTrajectory,
                              SendCommit, HandOver, SendClaim, Fork, EndTrunk, Note, Over>;

  std::vector<Action> step(const Event& event, Time now);

  const EpisodeKey& key() const { return lease_.key; }
  const LeaseTerms& lease() const { return lease_; }
  Waiting waiting() const { return waiting_; }
  const Trajectory& trajectory() const { return trajectory_; }
  std::span<const int32_t> turn_tokens() const;         // what was sampled last
  const Said& said() const { return said_; }            // in the last turn
  const Json& tools() const { return opening_.tools; }  // that the model was told of, OpenAI's array
  const envs::Opening& opening() const { return opening_; }
  bool is_summarising() const { return is_summarising_; }  // what is sampled is a summary: TurnEnded has its text alone
  const std::string& found() const { return found_; }      // wrong with it, once it has a reward
  // The instruction of the step that it is at, where it is not the first of its task.
  const std::string& instruction() const { return instruction_; }
  uint32_t compactions() const {  // summaries that were made
    return static_cast<uint32_t>(trajectory_.later_segments.size()) + (begins_segment_ ? 1 : 0);
  }
  std::optional<int> server() const { return server_; }  // that has its sandbox, or was asked for one
  bool is_over() const { return is_over_; }
  // Whether it plays, or waits for, the trunk of its family.
  bool is_in_trunk() const { return in_trunk_; }
  // Whether it can continue from the trunk of another episode: it has not begun, and no trunk has failed it.
  bool may_wait_for_trunk() const { return in_trunk_ && waiting_ == Waiting::kWeights && !sandbox_ && !is_by_itself_; }
  // Whether it needs the sandbox of a trunk as it is.
  bool is_branching() const { return from_.has_value(); }
  // The seed of the tokens that it samples now.
  uint64_t seed() const { return in_trunk_ ? lease_.trunk->seed : lease_.sample_seed; }

 private:
  using Actions = std::vector<Action>;
  void on(const Tick& tick, Time now, Actions& actions);
  void on(const Asked& asked, Time now, Actions& actions);
  void on(const Began& began, Time now, Actions& actions);
  void on(const Refused& refused, Time now, Actions& actions);
  void on(const TurnOpened& opened, Time now, Actions& actions);
  void on(const TurnRefused& refused, Time now, Actions& actions);
  void on(const Sampled& sampled, Time now, Actions& actions);
  void on(const TurnEnded& turn, Time now, Actions& actions);
  void on(const Called& called, Time now, Actions& actions);
  void on(const Scored& scored, Time now, Actions& actions);
  void on(const Stored& stored, Time now, Actions& actions);
  void on(const Committed& committed, Time now, Actions& actions);
  void on(const Revoked& revoked, Time now, Actions& actions);
  void on(const Stolen& stolen, Time now, Actions& actions);
  void on(const NotHandedOver&, Time now, Actions& actions);
  void on(const Gone& gone, Time now, Actions& actions);
  void on(const Ours& ours, Time now, Actions& actions);
  void on(const TrunkTaken&, Time now, Actions& actions);
  void on(const TrunkFree&, Time now, Actions& actions);
  void on(const TrunkEnded&, Time now, Actions& actions);
  void on(const Forked& forked, Time now, Actions& actions);
  void on(const BranchesBegun&, Time now, Actions& actions);
  void on(const ServerRestarted& restarted, Time now, Actions& actions);
  void on(const ServerSilent& silent, Time now, Actions& actions);
  void on(const ServerLost& lost, Time now, Actions& actions);

  bool waits_for_env() const;
  bool answers(Waiting waiting, uint64_t ask) const { return waiting_ == waiting && sends_ > 0 && ask == ask_; }
  void start(Time now, Actions& actions);
  // Sends the current request under a new number; answers to earlier ones are ignored.
  void ask(Time now, Actions& actions);
  void send_ask(Time now, Actions& actions);
  // There is nobody to ask for a sandbox.
  void pause(Time now);
  void ask_for_grade(std::string answer, bool is_truncated, Time now, Actions& actions);
  void send(Waiting waiting, Time now, Actions& actions);  // trajectory, commit or claim, until it is heard
  // Ends the attempt as a failure of the infrastructure.
  // kCancelled is no failure of its own, and no attempt that counts.
  void give_up(const Status& why, Time now, Actions& actions);
  void give_up(const std::string& reason, Time now, Actions& actions) {
    give_up(Status::unavailable(reason), now, actions);
  }
  void release_sandbox(Actions& actions);
  void finish(End end, Actions& actions);
  Commit commit(Time now) const;
  Handover handover() const;
  // In rollout/episode_branches.cpp.
  Trajectory empty_trajectory() const;
  void begin_anew(bool in_trunk, Actions& actions);
  void play_trunk_alone(std::string_view why, Actions& actions);
  bool ends_trunk(Actions& actions);
  void fork(Actions& actions);

  const Duration patience_, grade_patience_;
  const std::string numerics_id_;
  const RouteShape routes_;
  const uint32_t vocabulary_;
  LeaseTerms lease_;
  Trajectory trajectory_;
  const Time started_;
  Waiting waiting_ = Waiting::kWeights;
  Time due_{};  // what is waited for is late from then on
  bool is_over_ = false;

  std::optional<uint64_t> sandbox_;
  std::optional<int> server_;
  uint64_t ask_ = 0;  // the newest
  int sends_ = 0;     // of it; 0: nobody was asked
  Time wanted_{};     // since when a sandbox has been asked for

  uint32_t turns_ = 0, max_turns_ = 0, tool_calls_ = 0, prompt_tokens_ = 0, steals_ = 0;
  uint32_t retokenised_turns_ = 0;
  envs::Opening opening_;
  std::string instruction_;
  bool is_summarising_ = false;
  bool begins_segment_ = false;  // with the next turn
  Said said_;                    // in the last turn
  std::string answer_;           // that is to be graded
  Outcome outcome_ = Outcome::kCompleted;
  std::string reason_;  // of an outcome that is not the policy's
  std::optional<double> reward_;
  std::map<std::string, double> terms_;
  std::vector<double> turn_rewards_;
  std::string shown_, found_;
  std::optional<Behaviour> behaviour_;
  uint64_t version_ = 0;  // of the weights at the last tick

  struct Parked {  // when it was handed over
    Waiting waiting = Waiting::kWeights;
    Time due{};
  };
  Parked parked_;
  bool in_trunk_ = false;
  bool is_by_itself_ = false;  // it waits for nobody's trunk any more
  std::optional<Trunk> from_;
  uint32_t inherited_tokens_ = 0, inherited_calls_ = 0;

  bool resumes_ = false;            // it came in the middle of a turn
  std::optional<uint64_t> shared_;  // the sandbox that came or went with a hand-over
};

}  // namespace tandem::rollout
