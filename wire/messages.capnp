# Every message between the roles of a run. A message is two frames, Header and Body, and bulk frames where Body says so.
# Fields are only ever added at the end; a number that stood for something never stands for something else.
@0xc2f7a1d35b0e9846;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("tandem::wire");

struct Header {
  protocol @0 :UInt16;     # kProtocolVersion of the sender; others are refused
  sender @1 :Text;         # "rollout-1"
  epoch @2 :UInt64;        # of the sender: one for each start of the process
  id @3 :UInt64;           # of the request; an answer carries the id of what it answers
  run @4 :UInt64;          # of the run; strangers are refused
  check @5 :UInt64;        # digest of the fields above and all other frames; 0: none was taken
}

struct Body {
  union {
    hello @0 :Hello;                        # anyone -> coordinator, at start and after the coordinator restarted; rollout -> env: who are you? operator -> coordinator: where is everybody?
    welcome @1 :Welcome;                    # the answer; an operator's is peers
    heartbeat @2 :Heartbeat;                # anyone -> coordinator, from the work loop
    pull @3 :Pull;                          # rollout -> coordinator
    grant @4 :Grant;                        # coordinator -> rollout
    commit @5 :Commit;                      # rollout -> coordinator
    commitAck @6 :EpisodeAttempt;           # coordinator -> rollout
    revoke @7 :EpisodeAttempt;              # coordinator -> rollout: the lease is gone, let go
    train @8 :TrainBatch;                   # coordinator -> trainer
    trained @9 :Trained;                    # trainer -> coordinator
    checkpointed @10 :UInt64;               # trainer -> coordinator: the step that a checkpoint holds
    trajectory @11 :Trajectory;             # rollout -> trainer; 4 bulk frames, 2 more with routes, 1 with kept tokens
    trajectoryAck @12 :EpisodeAttempt;      # trainer -> rollout: it is on disk
    weightsQuery @13 :Void;                 # no longer sent: weightsWanted
    weightsManifest @14 :WeightsManifest;   # trainer -> rollout
    chunkRequest @15 :ChunkRequest;         # rollout -> trainer
    chunk @16 :ChunkRequest;                # trainer -> rollout; 1 bulk frame
    acquire @17 :Acquire;                   # rollout -> env
    acquired @18 :Acquired;                 # env -> rollout
    call @19 :Call;                         # rollout -> env
    called @20 :Called;                     # env -> rollout
    score @21 :Score;                       # rollout -> env
    scored @22 :Scored;                     # env -> rollout
    release @23 :UInt64;                    # rollout -> env: a lease
    failed @24 :Failed;                     # the answer to any request that could not be met
    stop @25 :Stop;                         # coordinator -> anyone: finish and exit
    watch @26 :Void;                        # supervisor -> coordinator: send statusReport from now on
    statusReport @27 :Text;                 # coordinator -> supervisor; JSON
    finish @28 :Void;                       # supervisor -> coordinator: checkpoint, then stop
    steal @29 :Steal;                       # coordinator -> rollout: hand some of your episodes to another
    declined @30 :Text;                     # rollout -> coordinator: nothing more to hand to this address
    handover @31 :Handover;                 # rollout -> rollout; bulk frames as Trajectory
    claim @32 :EpisodeAttempt;              # rollout -> coordinator: I have it; and back: it is yours
    claimed @33 :EpisodeAttempt;            # coordinator -> rollout: what you handed over is another's now
    fleetQuery @34 :FleetQuery;             # operator -> env
    fleetAnswer @35 :FleetAnswer;           # env -> operator
    openRun @36 :Text;                      # supervisor -> env of many runs: can you serve this run directory? welcome, or failed
    closeRun @37 :Void;                     # supervisor -> env of many runs: the run is over, let go of all it has; welcome
    peers @38 :Peers;                       # coordinator -> rollout: where everybody is, at first and when that has changed; -> env: you have left; -> operator
    leave @39 :Void;                        # env -> coordinator: no new episodes to me any more
    hostRequest @40 :HostRequest;           # run -> host that lends its machine
    hostAnswer @41 :HostAnswer;             # host -> run
    weightsWanted @42 :WeightsWanted;       # rollout -> trainer: the newest weights, by who holds these
    copyRequest @43 :CopyRequest;           # a process with files of a run -> host that is the run's standby
    copyAnswer @44 :CopyAnswer;             # and back
  }
}

struct Peers {
  version @0 :UInt64;                  # grows with every change
  peers @1 :List(PeerEntry);           # each once
}

struct PeerEntry {
  peer @0 :Text;                       # "env-1"
  address @1 :Text;
  host @2 :Text;                       # "local": the machine that the run was started on
  epoch @3 :UInt64;                    # 0: not known
}

struct EpisodeAttempt {
  episode @0 :UInt64;
  attempt @1 :UInt32;
  claims @2 :UInt32;                   # of a claim: granted so far, as the rollout knows; in answers: with this one
}

struct Hello {
  role @0 :Text;
  name @1 :Text;
  pid @2 :Int32;
  numericsId @3 :Text;
  step @4 :UInt64;                     # trainer: steps that its checkpoint holds
  holding @5 :List(EpisodeAttempt);    # rollout: what it works on
  address @6 :Text;                    # where others reach it
  host @7 :Text;                       # its machine; "local" for the one that the run was started on
}

struct Welcome {
  step @0 :UInt64;
}

struct Heartbeat {
  doing @0 :Text;                      # "decoding 16 sequences", "waiting for weights 12"
  metrics @1 :Text;                    # JSON, small
}

struct Pull {
  credits @0 :UInt32;                  # episodes that would start at once
}

struct Lease {
  episode @0 :UInt64;
  attempt @1 :UInt32;
  group @2 :UInt64;
  kind @3 :Text;
  split @4 :Text;
  taskSeed @5 :UInt64;
  sampleSeed @6 :UInt64;
  temperature @7 :Float32;
  minVersion @8 :UInt64;               # of the weights that may sample it
  maxVersion @9 :UInt64;               # evaluations are of one version
  claims @10 :UInt32;                  # granted for this attempt
  trunkFamily @11 :UInt64;             # where trunkTurn is not 0: the first episode of those that begin as one
  trunkSeed @12 :UInt64;               # of what they draw until that turn is over
  trunkTurn @13 :UInt32;               # from 1; 0: it begins by itself
  topK @14 :UInt32;                    # what it is sampled from: 0, 1 and 0 for all
  topP @15 :Float32 = 1;
  minP @16 :Float32;
}

struct Grant {
  leases @0 :List(Lease);
}

struct Term {
  name @0 :Text;
  value @1 :Float64;
}

struct Commit {
  episode @0 :UInt64;
  attempt @1 :UInt32;
  outcome @2 :Text;
  reason @3 :Text;                     # of an outcome that is not the policy's
  reward @4 :Float64;                  # only where hasReward
  hasReward @5 :Bool;
  terms @6 :List(Term);
  firstVersion @7 :UInt64;
  lastVersion @8 :UInt64;
  turns @9 :UInt32;
  toolCalls @10 :UInt32;
  seconds @11 :Float64;
  promptTokens @12 :UInt32;
  sampledTokens @13 :UInt32;
  steals @14 :UInt32;
  retokenisedTurns @15 :UInt32;
  turnRewards @16 :List(Float64);      # one for each message of the model, or none
  shown @17 :Text;                     # what a judge compares with its siblings; empty: nothing
  compactions @18 :UInt32;
  branchTurn @19 :UInt32;              # with which its trunk ended; 0: it has none
  inheritedTokens @20 :UInt32;         # sampled by another episode of its family
  inheritedCalls @21 :UInt32;
  branchFamily @22 :UInt64;            # the first episode of those that began as one
  behaviour @23 :Text;                 # how it worked (base/behaviour.h), JSON; empty: not known
}

struct BatchEntry {
  episode @0 :UInt64;
  attempt @1 :UInt32;
  group @2 :UInt64;
  advantage @3 :Float64;
  turnRewards @4 :List(Float64);       # one for each message of the model, or none
  kind @5 :Text;                       # of the task, where the run has several algorithms
  metrics @6 :List(Term);              # of the episode, where a function of the user's own may take them
}

struct TrainBatch {
  step @0 :UInt64;                     # counts from 1
  entries @1 :List(BatchEntry);        # group by group; empty: no group had a signal
}

struct Trained {
  step @0 :UInt64;
  metrics @1 :Text;                    # JSON
}

# Bulk: tokens (int32), sampled (uint8), logprobs (float32), versions (uint64), as many of each; with routes also which
# tokens have some (uint8), and of each token layers * topK expert ids (uint8 up to 256 experts, else uint16); with kept
# tokens, at the end, keptBytes of base/keep_sets.h.
struct Trajectory {
  episode @0 :UInt64;
  attempt @1 :UInt32;
  group @2 :UInt64;
  count @3 :UInt32;
  digestLow @4 :UInt64;                # of the bulk frames, one after another
  digestHigh @5 :UInt64;
  numericsId @6 :Text;
  laterSegments @7 :List(UInt32);      # where they begin; empty: there is one
  routes @8 :RouteShape;               # layers 0: none were recorded
  trunkFamily @9 :UInt64;              # where trunkTokens is not 0
  trunkTokens @10 :UInt32;             # it shares so many from the beginning on with others of that family
  keptVocabulary @11 :UInt32;          # 0: which tokens were kept is not recorded
  keptBytes @12 :UInt32;
  hintAt @13 :UInt32;
  hintReplaced @14 :UInt32;
  hintTokens @15 :List(Int32);         # that may stand in the prompt; empty: there is no hint
}

# Of a mixture of experts.
struct RouteShape {
  layers @0 :UInt32;                   # that have experts
  topK @1 :UInt32;
  experts @2 :UInt32;                  # of a layer
}

struct ChunkDigest {
  low @0 :UInt64;
  high @1 :UInt64;
}

struct WeightsManifest {
  version @0 :UInt64;
  base @1 :UInt64;                     # of a delta; equal to version: whole
  format @2 :Text;                     # "bf16"
  bytes @3 :UInt64;                    # of what is sent
  chunkBytes @4 :UInt32;
  digests @5 :List(ChunkDigest);       # of the chunks
  baseDigest @6 :ChunkDigest;          # of a delta: of all bytes of its base
  parts @7 :List(ChunkDigest);         # of the version's bytes, by part
  newest @8 :UInt64;                   # version that there is
}

struct WeightsWanted {
  holds @0 :Bool;                      # some version, which the next two are of
  version @1 :UInt64;
  digest @2 :ChunkDigest;
}

struct ChunkRequest {
  version @0 :UInt64;
  index @1 :UInt32;
  base @2 :UInt64;                     # as in the manifest
}

struct Acquire {
  episode @0 :UInt64;
  attempt @1 :UInt32;
  kind @2 :Text;
  split @3 :Text;
  seed @4 :UInt64;
  runDir @5 :Text;                     # for a server of many runs: whose config and tasks these are
  toolsInMessages @6 :Bool;            # the model's chat template knows no tools
  branches @7 :Bool;                   # others are going to begin as it is after some turn
  trunkLease @8 :UInt64;               # begins as that episode is now; 0: as the task says
  trunkTurn @9 :UInt32;                # which has played so many turns
}

struct ChatMessage {
  role @0 :Text;
  content @1 :Text;
}

struct Acquired {
  lease @0 :UInt64;
  messages @1 :List(ChatMessage);
  maxTurns @2 :UInt32;
  episode @3 :UInt64;
  attempt @4 :UInt32;
  tools @5 :Text;                      # JSON: OpenAI's array
}

# A call as a model wrote it.
struct ToolCall {
  id @0 :Text;
  name @1 :Text;
  arguments @2 :Text;                  # JSON: an object
  error @3 :Text;                      # of a call that could not be read: the result that it gets
}

struct Call {
  lease @0 :UInt64;
  turn @1 :UInt32;                     # the same turn sent again is answered, not run again
  calls @2 :List(ToolCall);
  answer @3 :Text;                     # what was said, beside calls too
  reasoning @4 :Text;                  # before it
}

struct Called {
  over @0 :Bool;
  results @1 :List(Text);              # one for each call
  nextStep @2 :Bool;                   # the answer ended a step of the task
  instruction @3 :Text;                # of the next one
}

struct Score {
  lease @0 :UInt64;
  answer @1 :Text;
  truncated @2 :Bool;                  # a limit ended it
}

struct Scored {
  reward @0 :Float64;
  terms @1 :List(Term);
  turnRewards @2 :List(Float64);       # one for each message of the model, or none
  shown @3 :Text;                      # what a judge compares with its siblings; empty: nothing
  found @4 :Text;                      # wrong with it, in words; empty: nothing
  behaviour @5 :Text;                  # how it worked (base/behaviour.h), JSON
}

struct Failed {
  code @0 :Text;
  message @1 :Text;
}

struct Stop {
  reason @0 :Text;
}

struct Steal {
  count @0 :UInt32;                    # episodes to hand over, at most
  thief @1 :Text;                      # address
}

struct Handover {
  lease @0 :Lease;
  trajectory @1 :Trajectory;
  envLease @2 :UInt64;                 # 0: not begun
  said @3 :Said;                       # in the turn whose calls are running
  turns @4 :UInt32;
  maxTurns @5 :UInt32;
  toolCalls @6 :UInt32;
  steals @7 :UInt32;
  promptTokens @8 :UInt32;
  envServer @9 :UInt32;                # whose envLease it is, by its rank
  tools @10 :Text;                     # JSON: OpenAI's array
  retokenisedTurns @11 :UInt32;
  sampling @12 :Bool;                  # in the middle of a turn: the trajectory ends with what it has said so far
  openingMessages @13 :List(ChatMessage);   # as the environment gave them
  summarising @14 :Bool;               # the turn is a summary
  instruction @15 :Text;               # of the step that it is at, where the task has several
  pastTrunk @16 :Bool;                 # the lease's trunk is over for it
  inheritedTokens @17 :UInt32;
  inheritedCalls @18 :UInt32;
}

struct Said {
  text @0 :Text;
  reasoning @1 :Text;
  calls @2 :List(ToolCall);
}

# What an operator asks of an environment server: `tandem envs`.
struct FleetQuery {
  union {
    rows @0 :RowsQuery;
    events @1 :EventsQuery;
    figures @2 :Void;
    exec @3 :ExecQuery;
    kill @4 :Text;                     # a sandbox
  }
}

struct RowsQuery {
  after @0 :UInt64;                    # rows with numbers above it
  most @1 :UInt32;
}

struct EventsQuery {
  sandbox @0 :Text;                    # empty: of all
  after @1 :UInt64;                    # only where not last
  most @2 :UInt32;
  last @3 :Bool;                       # the last `most` of them
}

struct ExecQuery {
  sandbox @0 :Text;
  argv @1 :List(Text);
  seconds @2 :Float64;
  outputBytes @3 :UInt32;
}

struct FleetAnswer {
  union {
    rows @0 :RowsPage;
    events @1 :EventsPage;
    figures @2 :Figures;
    execAnswer @3 :ExecAnswer;
    killed @4 :SandboxRow;             # as it was just before
  }
}

struct SandboxRow {
  number @0 :UInt64;
  id @1 :Text;
  state @2 :Text;
  kind @3 :Text;
  doing @4 :Text;
  lease @5 :UInt64;                    # 0: nobody's
  episode @6 :UInt64;
  attempt @7 :UInt32;
  task @8 :Text;
  ageSeconds @9 :Float64;
  stateSeconds @10 :Float64;
  leaseSeconds @11 :Float64;           # below 0: no lease
  memoryBytes @12 :UInt64;
  processes @13 :UInt32;
  calls @14 :UInt32;
  run @15 :Text;                       # whose episode's; empty where the server has one run
}

struct RowsPage {
  rows @0 :List(SandboxRow);
  total @1 :UInt32;                    # sandboxes that there are
}

struct FleetEvent {
  number @0 :UInt64;
  unixSeconds @1 :Float64;
  sandbox @2 :Text;
  kind @3 :Text;
  lease @4 :UInt64;
  episode @5 :UInt64;
  attempt @6 :UInt32;
  task @7 :Text;
  what @8 :Text;
  seconds @9 :Float64;
  exitCode @10 :Int32;
}

struct EventsPage {
  events @0 :List(FleetEvent);
  seen @1 :UInt64;                     # ask for those after it next
  lost @2 :UInt64;
}

struct Figures {
  uptimeSeconds @0 :Float64;
  warm @1 :UInt32;
  leased @2 :UInt32;
  calling @3 :UInt32;
  grading @4 :UInt32;
  draining @5 :UInt32;
  made @6 :UInt64;
  notMade @7 :UInt64;
  takenWarm @8 :UInt64;
  madeOnDemand @9 :UInt64;
  calls @10 :UInt64;
  execs @11 :UInt64;
  spawnsPerSecond @12 :Float64;
  spawnP50Ms @13 :Float64;
  spawnP99Ms @14 :Float64;
  ended @15 :List(Term);               # by why
  episodes @16 :UInt64;                # that the server holds
  waiting @17 :UInt64;                 # requests
  queue @18 :UInt64;                   # requests that may wait
  failed @19 :UInt64;                  # requests, since the server began
  knownReads @20 :UInt64;              # calls that read what was known
  cachedReads @21 :UInt64;             # those of them answered from the cache
  cpuPressure @22 :Float64 = -1;       # shares of the last 10 s in which work waited; below 0 where that is not counted
  memoryPressure @23 :Float64 = -1;
  ioPressure @24 :Float64 = -1;
}

struct ExecAnswer {
  exitCode @0 :Int32;
  timedOut @1 :Bool;
  truncated @2 :Bool;
  output @3 :Data;
  errors @4 :Data;
  seconds @5 :Float64;
}

# What a run asks of a host that lends it a machine: `tandem host`.
struct HostRequest {
  session @0 :UInt64;                  # of one life of the run's supervisor; other sessions are other runs
  union {
    open @1 :HostOpen;
    offer @2 :List(HostFile);          # all files of the run's home there
    chunk @3 :HostChunk;               # 1 bulk frame
    settle @4 :List(HostText);         # the small files that are made for this host; then roles can be started
    beat @5 :HostBeat;
    close @6 :Void;                    # the run is over
    join @7 :Text;                     # host or operator -> run: the address of a host that it may use, too
    leave @8 :Text;                    # operator -> run: the name of a host that it is to give back
    silence @9 :Void;                  # a host -> another: for how long has the run of this message said nothing?
  }
}

struct HostOpen {
  version @0 :Text;                    # of the program
  weights @1 :Text;                    # number format whose numericsId is wanted
  run @2 :Text;                        # its name, for people
  epoch @3 :UInt64;                    # of the run: how often it was taken over, and one; 0 is 1
  holder @4 :Text;                     # where it was taken over, for people
}

struct HostFile {
  path @0 :Text;                       # below the home
  digestLow @1 :UInt64;
  digestHigh @2 :UInt64;
  bytes @3 :UInt64;
  executable @4 :Bool;
  link @5 :Text;                       # not empty: a symbolic link with this target, and nothing else
}

struct HostChunk {
  digestLow @0 :UInt64;
  digestHigh @1 :UInt64;
  offset @2 :UInt64;
}

struct HostText {
  path @0 :Text;
  content @1 :Data;
}

# All processes that are to run there. Others of the run are ended.
struct HostBeat {
  number @0 :UInt64;                   # grows
  jobs @1 :List(HostJob);
}

struct HostJob {
  number @0 :UInt64;
  arguments @1 :List(Text);
  log @2 :Text;                        # name of its log file
  end @3 :UInt8;                       # 0: it runs; 1: it is asked to end; 2: it is ended
  logOffset @4 :UInt64;                # bytes of its log that the run has
}

struct HostAnswer {
  session @0 :UInt64;
  union {
    opened @1 :HostOpened;
    missing @2 :List(UInt32);          # of the files that were offered, those that are not there
    took @3 :HostChunk;                # offset: bytes that are there of the file
    settled @4 :Void;
    state @5 :HostState;
    closed @6 :Void;
    refused @7 :Failed;
    fenced @8 :Fenced;
    silence @9 :HostSilence;
  }
}

struct HostSilence {
  seconds @0 :Float64;                 # since the run was heard last, or since the host began
  over @1 :Bool;                       # the run has given the host back
}

# The run has been taken over: whoever is of an older epoch has no say in it any more.
struct Fenced {
  epoch @0 :UInt64;                    # that it has now
  holder @1 :Text;                     # where it was taken over, for people
}

struct HostOpened {
  version @0 :Text;
  numericsId @1 :Text;
  home @2 :Text;                       # the run's folder there, absolute
  cores @3 :UInt32;
  memoryBytes @4 :UInt64;
}

struct HostState {
  beat @0 :UInt64;                     # that it answers
  known @1 :Bool;                      # false: the host has no such session, or not any more
  draining @2 :Bool;
  processes @3 :List(HostProcess);
}

struct HostProcess {
  number @0 :UInt64;
  pid @1 :Int32;
  running @2 :Bool;
  code @3 :Int32;                      # of one that has ended
  signal @4 :Int32;
  logOffset @5 :UInt64;                # where `log` begins
  log @6 :Data;
  logComplete @7 :Bool;                # nothing follows `log`, and it has ended
  failure @8 :Text;                    # why it could not be started
}

# What a process that writes files of a run has its standby do. Requests of one life are carried out in the order of
# their numbers, each once.
struct CopyRequest {
  epoch @0 :UInt64;                    # of the run
  life @1 :UInt64;                     # of this stream; grows
  number @2 :UInt64;                   # from 1 on
  run @3 :Text;                        # its name, for people
  union {
    survey @4 :List(Text);             # first of a life: what is there at and below these paths?
    extend @5 :CopyPart;               # the file has `offset` bytes and gets these; 1 bulk frame
    put @6 :CopyPart;                  # a part of a file that takes its place when all are there; 1 bulk frame
    link @7 :CopyLink;
    remove @8 :Text;                   # a file, or a folder with all that is below
    state @9 :CopyState;
  }
}

struct CopyPart {
  path @0 :Text;                       # below the run directory
  offset @1 :UInt64;
  total @2 :UInt64;                    # of put: bytes of the whole file
  digestLow @3 :UInt64;                # of extend: of the bytes here; of put: of the whole file
  digestHigh @4 :UInt64;
  executable @5 :Bool;
}

struct CopyLink {
  path @0 :Text;
  target @1 :Text;
}

struct CopyState {
  whole @0 :Bool;                      # whether all that this stream has acknowledged is there
}

struct CopyAnswer {
  life @0 :UInt64;
  number @1 :UInt64;                   # all up to it are carried out and on disk
  union {
    done @2 :Void;
    surveyed @3 :CopySurvey;
    unknown @4 :Void;                  # this life is not known, or cannot go on: begin another
    refused @5 :Failed;
    fenced @6 :Fenced;
  }
}

struct CopySurvey {
  folder @0 :Text;                     # of the copy, absolute
  files @1 :List(CopyFile);
}

struct CopyFile {
  path @0 :Text;
  bytes @1 :UInt64;
  digestLow @2 :UInt64;
  digestHigh @3 :UInt64;
  link @4 :Text;                       # not empty: a symbolic link with this target
}
