// Messages between roles, as a socket takes them in and roles read them; the ledger's log; and what servers of models
// answer.
#include <capnp/serialize.h>

#include <cstring>

#include "base/text.h"
#include "envs/episodes/call_messages.h"
#include "envs/fleet/messages.h"
#include "hosts/protocol.h"
#include "rollout/agent/chat_answer.h"
#include "rollout/books/lease.h"
#include "rollout/books/ledger.h"
#include "rollout/books/trajectory.h"
#include "rollout/handover.h"
#include "standby/protocol.h"
#include "tests/fuzz/targets.h"
#include "weights_sync/carrier.h"
#include "weights_sync/delta.h"
#include "wire/directory.h"
#include "wire/event_stream.h"
#include "wire/socket.h"

namespace tandem::fuzz {
namespace {

constexpr const char* kSender = "fuzz";

std::string flat(capnp::MessageBuilder& builder) {
  const auto words = capnp::messageToFlatArray(builder);
  const auto bytes = words.asBytes();
  return {reinterpret_cast<const char*>(bytes.begin()), bytes.size()};
}

std::string good_header() {
  capnp::MallocMessageBuilder head;
  auto header = head.initRoot<wire::Header>();
  header.setProtocol(wire::kProtocolVersion);
  header.setSender(kSender);
  return flat(head);
}

// A listening socket, and somebody who sends it whatever they like.
struct Line {
  zmq::context_t context;
  wire::Socket socket = *wire::Socket::listen(context, "inproc://fuzz", {.sender = "listener"});
  zmq::socket_t stranger{context, zmq::socket_type::dealer};
  Line() {
    stranger.set(zmq::sockopt::routing_id, kSender);
    stranger.set(zmq::sockopt::linger, 0);
    stranger.connect("inproc://fuzz");
  }
};

// What the roles do with a message of its kind.
void read(const wire::Incoming& message) {
  const auto body = message.body();
  if (body.isTrajectory()) (void)rollout::read_trajectory(body.getTrajectory(), message);
  if (body.isHandover()) (void)rollout::read_handover(message);
  if (body.isWeightsManifest()) (void)weights_sync::read_manifest(body.getWeightsManifest());
  if (body.isWeightsWanted()) (void)weights_sync::read_wanted(body.getWeightsWanted());
  if (body.isFleetQuery()) {
    if (const auto query = envs::read_query(body.getFleetQuery())) {
      wire::Outgoing again;
      envs::write_query(*query, again.body().initFleetQuery());
    }
  }
  if (body.isFleetAnswer()) {
    if (const auto answer = envs::read_answer(body.getFleetAnswer())) {
      wire::Outgoing again;
      envs::write_answer(*answer, again.body().initFleetAnswer());
    }
  }
  if (body.isFailed()) (void)wire::read_failure(body.getFailed());
  if (body.isGrant()) {
    for (const auto lease : body.getGrant().getLeases()) (void)rollout::read_lease(lease);
  }
  if (body.isCommit()) (void)rollout::read_commit(message.sender(), body.getCommit());
  if (body.isPeers()) {
    if (const auto directory = wire::Directory::read(body.getPeers())) {
      wire::Outgoing again;
      directory->write(again.body().initPeers());
    }
  }
  if (body.isHostRequest()) {
    if (const auto request = hosts::read_request(body.getHostRequest())) {
      wire::Outgoing again;
      hosts::write_request(1, *request, again.body().initHostRequest());
    }
  }
  if (body.isCopyRequest()) {
    if (const auto request = standby::read_request(message)) {
      wire::Outgoing again;
      standby::write_request(*request, {}, again.body().initCopyRequest());
    }
  }
  if (body.isCopyAnswer()) {
    wire::Outgoing again;
    standby::write_answer(standby::read_answer(body.getCopyAnswer()), again.body().initCopyAnswer());
  }
  if (body.isHostAnswer()) {
    if (const auto answer = hosts::read_answer(body.getHostAnswer())) {
      wire::Outgoing again;
      hosts::write_answer(1, *answer, again.body().initHostAnswer());
    }
  }
  if (body.isAcquired()) {
    for (const auto said : body.getAcquired().getMessages()) (void)std::string(said.getContent());
    (void)envs::read_tools(std::string(body.getAcquired().getTools()));
  }
  if (body.isCall()) {
    if (const auto calls = envs::read_calls(body.getCall().getCalls())) {
      wire::Outgoing again;
      envs::write_calls(*calls, again.body().initCall().initCalls(static_cast<unsigned>(calls->size())));
    }
  }
  if (body.isHello()) {
    (void)std::string(body.getHello().getAddress());
    for (const auto held : body.getHello().getHolding()) (void)held.getEpisode();
  }
}

// The first byte says how many of the frames that follow take the place of a good header: none or one. A frame is two
// bytes of size and the rest.
void messages(std::string_view bytes) {
  static Line line;
  if (bytes.empty()) return;
  std::vector<std::string> frames;
  if ((bytes[0] & 1) == 0) frames.push_back(good_header());
  bytes.remove_prefix(1);
  while (bytes.size() >= 2) {
    uint16_t size = 0;
    memcpy(&size, bytes.data(), 2);
    bytes.remove_prefix(2);
    frames.emplace_back(bytes.substr(0, size));
    bytes.remove_prefix(std::min<size_t>(size, bytes.size()));
  }
  for (size_t i = 0; i < frames.size(); ++i) {
    line.stranger.send(zmq::buffer(frames[i]),
                       i + 1 < frames.size() ? zmq::send_flags::sndmore : zmq::send_flags::none);
  }
  while (const auto message = line.socket.receive()) read(*message);
}

std::vector<std::string> messages_seeds() {
  std::vector<std::string> seeds;
  const auto add = [&](const std::function<void(wire::Body::Builder)>& write, const std::vector<std::string>& bulk) {
    capnp::MallocMessageBuilder builder;
    write(builder.initRoot<wire::Body>());
    std::vector<std::string> frames = {flat(builder)};
    frames.insert(frames.end(), bulk.begin(), bulk.end());
    std::string bytes(1, '\0');
    for (const auto& frame : frames) {
      const auto size = static_cast<uint16_t>(frame.size());
      bytes.append(reinterpret_cast<const char*>(&size), 2).append(frame);
    }
    seeds.push_back(bytes);
  };
  add(
      [](auto body) {
        auto hello = body.initHello();
        hello.setRole("rollout");
        hello.setName("rollout-1");
        hello.initHolding(2)[1].setEpisode(3);
      },
      {});
  add(
      [](auto body) {
        auto manifest = body.initWeightsManifest();
        manifest.setFormat("bf16");
        manifest.setBytes(5 << 20);
        manifest.setChunkBytes(4 << 20);
        manifest.initDigests(2);
      },
      {});
  add(
      [](auto body) {
        auto trajectory = body.initTrajectory();
        trajectory.setCount(2);
        trajectory.setNumericsId("x");
      },
      {std::string(8, '\1'), std::string(2, '\1'), std::string(8, '\0'), std::string(16, '\0')});
  KeepSets kept{.vocabulary = 0x02000000, .counts = {}, .ids = {}};
  kept.append({});
  kept.append(std::vector<int32_t>{5, 0x01010101});
  add(
      [&](auto body) {
        auto trajectory = body.initTrajectory();
        trajectory.setCount(2);
        trajectory.setKeptVocabulary(kept.vocabulary);
        trajectory.setKeptBytes(static_cast<uint32_t>(encode(kept).size()));
      },
      {std::string(8, '\1'), std::string(2, '\1'), std::string(8, '\0'), std::string(16, '\0'), encode(kept)});
  add(
      [](auto body) {
        auto trajectory = body.initTrajectory();
        trajectory.setCount(2);
        trajectory.setHintReplaced(1);
        trajectory.initHintTokens(2).set(1, 0x01010101);
      },
      {std::string(8, '\1'), std::string("\0\1", 2), std::string(8, '\0'), std::string(16, '\0')});
  add(
      [](auto body) {
        auto handover = body.initHandover();
        handover.setTools("[]");
        handover.initSaid().setText("text");
        auto call = handover.getSaid().initCalls(1)[0];
        call.setName("look");
        call.setArguments(R"({"at": [1, "x"]})");
        handover.initLease().setKind("set");
        handover.initTrajectory().setCount(0);
      },
      {"", "", "", ""});
  add(
      [](auto body) {
        auto commit = body.initCommit();
        commit.setOutcome("completed");
        commit.initTerms(1)[0].setName("files");
      },
      {});
  add(
      [](auto body) {
        auto peers = body.initPeers().initPeers(2);
        peers[0].setPeer("env-1");
        peers[0].setAddress("tcp://10.0.0.5:7070");
        peers[1].setPeer("rollout-0");
        peers[1].setAddress("ipc:///tmp/a");
      },
      {});
  add([](auto body) { body.initGrant().initLeases(2)[0].setSplit("train"); }, {});
  add(
      [](auto body) {
        auto acquired = body.initAcquired();
        acquired.initMessages(1)[0].setContent("hi");
        acquired.setTools(R"([{"type": "function", "function": {"name": "look"}}])");
      },
      {});
  add(
      [](auto body) {
        auto call = body.initCall();
        call.setAnswer("no");
        auto calls = call.initCalls(2);
        calls[0].setName("look");
        calls[0].setArguments("{}");
        calls[1].setError("Error: not JSON");
      },
      {});
  add([](auto body) { body.initFailed().setMessage("no"); }, {});
  add([](auto body) { envs::write_query(envs::RowsQuery{.after = 1}, body.initFleetQuery()); }, {});
  add([](auto body) { envs::write_query(envs::EventsQuery{.sandbox = "h2kq-1"}, body.initFleetQuery()); }, {});
  add([](auto body) { envs::write_query(envs::KillQuery{"h2kq-1"}, body.initFleetQuery()); }, {});
  add(
      [](auto body) {
        envs::write_query(envs::ExecQuery{.sandbox = "h2kq-1", .request = {.argv = {"ls", "-l"}}},
                          body.initFleetQuery());
      },
      {});
  envs::SandboxRow row;
  row.id = "h2kq-1";
  add([&](auto body) { envs::write_answer(envs::RowsPage{.rows = {row}, .total = 1}, body.initFleetAnswer()); }, {});
  add([&](auto body) { envs::write_answer(envs::Killed{row}, body.initFleetAnswer()); }, {});
  add(
      [](auto body) {
        envs::FleetEvent event{.number = 1, .sandbox = "h2kq-1", .kind = envs::FleetEventKind::kCall};
        envs::write_answer(envs::Fleet::Events{.events = {event}, .seen = 1}, body.initFleetAnswer());
      },
      {});
  add(
      [](auto body) {
        envs::ServerFigures figures;
        figures.fleet.ended[envs::EndReason::kLost] = 1;
        envs::write_answer(figures, body.initFleetAnswer());
      },
      {});
  add([](auto body) { envs::write_answer(envs::ExecOutcome{.output = "x"}, body.initFleetAnswer()); }, {});
  const std::vector<hosts::Request> requests = {
      hosts::Open{.version = "1", .weights = "bf16", .run = "r"},
      hosts::Offer{{{.path = "model/a", .bytes = 3}, {.path = "tasks/b", .link = "a"}}},
      hosts::Settle{{{.path = "config", .content = "{}"}}},
      hosts::Beat{1, {{.number = 1, .arguments = {"role", "env"}, .log = "env-0.log"}}}, hosts::Join{"tcp://a:1"}};
  for (const auto& request : requests)
    add([&](auto body) { hosts::write_request(1, request, body.initHostRequest()); }, {});
  const std::vector<hosts::Answer> answers = {
      hosts::Opened{.version = "1", .home = "/h"}, hosts::Missing{{0, 1}},
      hosts::HostState{.beat = 1, .is_known = true, .processes = {{.number = 1, .log = "said"}}},
      hosts::Refused{Status::unfit("no")}, hosts::Fenced{.epoch = 2, .holder = "h"}};
  for (const auto& answer : answers) add([&](auto body) { hosts::write_answer(1, answer, body.initHostAnswer()); }, {});
  const std::string part = "part";
  const std::vector<standby::Op> ops = {standby::Survey{{"ledger", "checkpoints"}},
                                        standby::Extend{.path = "ledger/events.log", .offset = 8, .bytes = part.size()},
                                        standby::Put{.path = "model/a", .bytes = part.size(), .total = 9},
                                        standby::Link{"checkpoints/latest", "step_1"},
                                        standby::Remove{"checkpoints/step_1"},
                                        standby::SetWhole{false}};
  for (const auto& op : ops) {
    const standby::Request request{.epoch = 2, .life = 1, .number = 1, .run = "r", .op = op};
    std::vector<std::string> bulk;
    if (standby::has_bytes(op)) bulk.push_back(part);
    add([&](auto body) { standby::write_request(request, std::as_bytes(std::span(part)), body.initCopyRequest()); },
        bulk);
  }
  const standby::Surveyed surveyed{.folder = "/c", .files = {{.path = "a", .bytes = 1}, {.path = "b", .link = "a"}}};
  for (const auto& answer :
       {standby::Answer{.life = 1, .number = 1, .what = surveyed}, standby::Answer{.what = standby::Done{}},
        standby::Answer{.what = standby::Refused{Status::unfit("no")}}}) {
    add([&](auto body) { standby::write_answer(answer, body.initCopyAnswer()); }, {});
  }
  return seeds;
}

void ledger(std::string_view bytes) {
  rollout::RunPlan plan;
  rollout::Ledger ledger(plan);
  for (const auto line : split(bytes, '\n')) {
    const auto json = parse_json(line);
    if (!json) continue;
    if (const auto event = rollout::event_from_json(*json)) (void)ledger.step(*event);
  }
  const auto books = ledger.books();
  if (books.admitted != books.trained + books.dropped_total() + books.in_flight) __builtin_trap();
}

std::vector<std::string> ledger_seeds() {
  std::string log;
  const rollout::EpisodeKey key{.episode = 0, .attempt = 1};
  for (const rollout::Event& event : std::initializer_list<rollout::Event>{
           rollout::WorkerJoined{"a", {}}, rollout::TrainerJoined{0}, rollout::Pull{"a", 4},
           rollout::Commit{.worker = "a", .key = key, .reward = 1.0, .terms = {{"files", 1.0}}}, rollout::Expired{key},
           rollout::WorkerLost{"a"}, rollout::FinishRequested{}, rollout::CoordinatorStarted{},
           rollout::PlanSet{{.kinds = {"a"}}}, rollout::Extended{9}, rollout::ConfigSet{{{"run.steps", 9}}},
           rollout::TakenOver{2, "h"}}) {
    log += dump_json(rollout::to_json(event)) + "\n";
  }
  return {log};
}

void use(const rollout::ChatAnswer& answer) {
  rollout::AgentTurn turn;
  rollout::put_calls(answer, 1, turn);
  (void)dump_json(rollout::message_of(answer, turn));
}

// The first byte says where the stream is cut.
void chat_stream(std::string_view bytes) {
  if (bytes.empty()) return;
  const size_t cut = 1 + static_cast<unsigned char>(bytes[0]) % bytes.size();
  wire::EventStreamDecoder decoder(1 << 16);
  rollout::ChatAnswerReader reader;
  for (const auto part : {bytes.substr(1, cut - 1), bytes.substr(cut)}) {
    const auto events = decoder.feed(part);
    if (!events) return;
    for (const auto& event : *events) {
      if (!reader.take(event.data)) return;
    }
  }
  if (const auto answer = std::move(reader).finish()) use(*answer);
}

std::vector<std::string> chat_stream_seeds() {
  return {
      "9: a comment\n\nevent: x\r\ndata: "
      "{\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"He\"}}]}\r\n"
      "\r\ndata: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"grep\","
      "\"arguments\":\"{\\\"pattern\\\"\"}}]}}]}\n\ndata: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,"
      "\"function\":{\"arguments\":\": 1}\"}}]},\"finish_reason\":\"tool_calls\"}],\"usage\":{\"prompt_tokens\":3,"
      "\"completion_tokens\":4}}\n\ndata: [DONE]\n\n",
      "\1data: {\"error\":{\"message\":\"no\",\"code\":429}}\n\n"};
}

void chat_answer(std::string_view bytes) {
  if (const auto answer = rollout::read_chat_answer(bytes)) use(*answer);
  (void)rollout::words_of_error(500, bytes);
}

std::vector<std::string> chat_answer_seeds() {
  return {R"({"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hi","reasoning_content":"r",)"
          R"("tool_calls":[{"id":"a","type":"function","function":{"name":"grep","arguments":"{}"}}]},)"
          R"("finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2}})",
          R"({"error":{"message":"too many","type":"x","code":"y"}})"};
}

// Weights of two parts, of which a delta comes.
const weights_sync::Blocks& small_blocks() {
  static const weights_sync::Blocks blocks({{.name = "codes", .begin = 0, .bytes = 500, .element_bytes = 1},
                                            {.name = "norm", .begin = 512, .bytes = 400, .element_bytes = 2}},
                                           912);
  return blocks;
}

void weight_deltas(std::string_view bytes) {
  static kernels::ThreadPool threads(1);
  const auto delta = weights_sync::Delta::read(small_blocks(), std::as_bytes(std::span(bytes)));
  if (!delta) return;
  std::vector<std::byte> weights(small_blocks().bytes());
  (void)delta->apply(small_blocks(), weights, threads);
  if (delta->base() == delta->version()) (void)delta->folded_with(*delta, small_blocks(), threads);
}

std::vector<std::string> weight_deltas_seeds() {
  std::vector<std::string> seeds;
  for (const size_t distance : {7, 1}) {
    weights_sync::Delta delta(3, distance == 7 ? 3 : 4);
    for (uint32_t i = 0; i < 2; ++i) {
      const auto& block = small_blocks().all()[i];
      const std::vector<std::byte> before(block.bytes());
      std::vector<std::byte> after = before;
      for (size_t at = 3; at < after.size(); at += distance) after[at] = std::byte{1};
      delta.add(i, weights_sync::encode(block, weights_sync::difference(block, before, after)));
    }
    const auto written = delta.write(small_blocks());
    seeds.emplace_back(reinterpret_cast<const char*>(written.data()), written.size());
  }
  return seeds;
}

constexpr Target kRolloutTargets[] = {{"messages", messages, messages_seeds},
                                      {"weight_deltas", weight_deltas, weight_deltas_seeds},
                                      {"ledger", ledger, ledger_seeds},
                                      {"chat_stream", chat_stream, chat_stream_seeds},
                                      {"chat_answer", chat_answer, chat_answer_seeds}};

}  // namespace

std::span<const Target> rollout_targets() { return kRolloutTargets; }

}  // namespace tandem::fuzz
