#include <capnp/message.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "envs/fleet/messages.h"

namespace tandem::envs {
namespace {

Result<FleetQuery> sent(const FleetQuery& query) {
  capnp::MallocMessageBuilder message;
  write_query(query, message.initRoot<wire::FleetQuery>());
  return read_query(message.getRoot<wire::FleetQuery>().asReader());
}

Result<FleetAnswer> sent(const FleetAnswer& answer) {
  capnp::MallocMessageBuilder message;
  write_answer(answer, message.initRoot<wire::FleetAnswer>());
  return read_answer(message.getRoot<wire::FleetAnswer>().asReader());
}

std::string refusal(const std::function<void(wire::FleetQuery::Builder)>& write) {
  capnp::MallocMessageBuilder message;
  write(message.initRoot<wire::FleetQuery>());
  const auto query = read_query(message.getRoot<wire::FleetQuery>().asReader());
  return query ? "taken" : query.error().message();
}

ExecQuery a_look() { return {.sandbox = "h2kq-17", .request = {.argv = {"ls", "-l"}}}; }

TEST(FleetMessages, questions_arrive_as_they_were_asked) {
  const auto rows = sent(RowsQuery{.after = 9, .most = 3});
  ASSERT_TRUE(rows);
  EXPECT_EQ(std::get<RowsQuery>(*rows).after, 9u);
  EXPECT_EQ(std::get<RowsQuery>(*rows).most, 3u);
  const auto events = sent(EventsQuery{.sandbox = "h2kq-17", .after = 5, .most = 6, .last = true});
  ASSERT_TRUE(events);
  EXPECT_EQ(std::get<EventsQuery>(*events).sandbox, "h2kq-17");
  EXPECT_TRUE(std::get<EventsQuery>(*events).last);
  auto asked = a_look();
  asked.request.seconds = 2.5;
  asked.request.output_limit = 4096;
  const auto look = sent(FleetQuery(asked));
  ASSERT_TRUE(look);
  const auto& request = std::get<ExecQuery>(*look).request;
  EXPECT_EQ(request.argv, asked.request.argv);
  EXPECT_EQ(request.seconds, 2.5);
  EXPECT_EQ(request.output_limit, 4096u);
  EXPECT_EQ(std::get<KillQuery>(*sent(FleetQuery(KillQuery{"h2kq-17"}))).sandbox, "h2kq-17");
  EXPECT_TRUE(std::holds_alternative<FiguresQuery>(*sent(FleetQuery(FiguresQuery{}))));
}

TEST(FleetMessages, a_question_beyond_its_limits_is_refused_by_name) {
  using Query = wire::FleetQuery::Builder;
  const auto look = [](const std::function<void(wire::ExecQuery::Builder)>& change) {
    return refusal([&](Query query) {
      write_query(a_look(), query);
      change(query.getExec());
    });
  };
  EXPECT_EQ(look([](auto) {}), "taken");
  EXPECT_THAT(look([](auto in) { in.setSandbox("../../x"); }), testing::HasSubstr("sandbox"));
  EXPECT_THAT(look([](auto in) { in.setSandbox(std::string(33, 'a')); }), testing::HasSubstr("sandbox"));
  EXPECT_THAT(look([](auto in) { in.setSandbox(""); }), testing::HasSubstr("sandbox"));
  EXPECT_THAT(look([](auto in) { in.initArgv(0); }), testing::HasSubstr("argv"));
  EXPECT_THAT(look([](auto in) { in.initArgv(1); }), testing::HasSubstr("argv names no program"));
  EXPECT_THAT(look([](auto in) { in.initArgv(kMostExecWords + 1); }), testing::HasSubstr("argv"));
  EXPECT_THAT(look([](auto in) { in.initArgv(1).set(0, std::string(kMostExecBytes + 1, 'x')); }),
              testing::HasSubstr("argv"));
  EXPECT_THAT(look([](auto in) {
                auto argv = in.initArgv(3);
                for (unsigned i = 0; i < 3; ++i) argv.set(i, std::string(kMostExecBytes / 2, 'x'));
              }),
              testing::HasSubstr("argv"));
  EXPECT_THAT(look([](auto in) { in.initArgv(1).set(0, capnp::Text::Reader("a\0b", 3)); }),
              testing::HasSubstr("zero byte"));
  for (const double seconds : {0.0, -1.0, 1e9, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_THAT(look([&](auto in) { in.setSeconds(seconds); }), testing::HasSubstr("seconds"));
  EXPECT_THAT(look([](auto in) { in.setOutputBytes(0); }), testing::HasSubstr("outputBytes"));
  EXPECT_THAT(look([](auto in) { in.setOutputBytes(kMostExecOutput + 1); }), testing::HasSubstr("outputBytes"));

  EXPECT_THAT(refusal([](Query query) { query.initRows(); }), testing::HasSubstr("most"));
  EXPECT_THAT(refusal([](Query query) { query.initRows().setMost(kMostRows + 1); }), testing::HasSubstr("most"));
  EXPECT_THAT(refusal([](Query query) { query.initEvents().setMost(kMostPageEvents + 1); }),
              testing::HasSubstr("most"));
  EXPECT_THAT(refusal([](Query query) {
                query.initEvents().setMost(1);
                query.getEvents().setSandbox("A B");
              }),
              testing::HasSubstr("sandbox"));
  EXPECT_THAT(refusal([](Query query) { query.setKill("\x1b"); }), testing::HasSubstr("sandbox"));
}

TEST(FleetMessages, answers_arrive_as_they_were_given) {
  SandboxRow row;
  row.number = 17;
  row.id = "h2kq-17";
  row.state = SandboxState::kCalling;
  row.holder = {.lease = 3, .episode = 4, .attempt = 5, .task = "set"};
  row.kind = "256 processes";
  row.doing = "grep";
  row.age_seconds = 1.5;
  row.state_seconds = 0.5;
  row.lease_seconds = 170;
  row.usage = {.memory_bytes = 4096, .processes = 2};
  row.calls = 6;
  const auto page = sent(FleetAnswer(RowsPage{.rows = {row}, .total = 9}));
  ASSERT_TRUE(page) << page.error().message();
  const auto& got = std::get<RowsPage>(*page).rows.at(0);
  EXPECT_EQ(std::get<RowsPage>(*page).total, 9u);
  EXPECT_EQ(got.id, row.id);
  EXPECT_EQ(got.state, row.state);
  EXPECT_EQ(got.holder, row.holder);
  EXPECT_EQ(got.lease_seconds, 170);
  EXPECT_EQ(got.usage.memory_bytes, 4096u);
  EXPECT_EQ(got.calls, 6u);

  FleetEvent event{.number = 1, .unix_seconds = 2, .sandbox = "h2kq-17", .kind = FleetEventKind::kCall};
  event.what = "bash";
  event.exit_code = -1;
  const auto events = sent(FleetAnswer(Fleet::Events{.events = {event}, .seen = 8, .lost = 7}));
  ASSERT_TRUE(events) << events.error().message();
  EXPECT_EQ(std::get<Fleet::Events>(*events).events.at(0).exit_code, -1);
  EXPECT_EQ(std::get<Fleet::Events>(*events).lost, 7u);

  ServerFigures figures;
  figures.fleet.spawn_p99_ms = 12.5;
  figures.fleet.ended = {{EndReason::kOperator, 2}, {EndReason::kMemory, 1}};
  figures.queue = 4096;
  figures.known_reads = 8;
  figures.cached_reads = 6;
  figures.pressure = Pressure{.cpu = 0.5, .memory = 0, .io = 0.25};
  const auto read = sent(FleetAnswer(figures));
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(std::get<ServerFigures>(*read).fleet.ended, figures.fleet.ended);
  EXPECT_EQ(std::get<ServerFigures>(*read).fleet.spawn_p99_ms, 12.5);
  EXPECT_EQ(std::get<ServerFigures>(*read).queue, 4096u);
  EXPECT_EQ(std::get<ServerFigures>(*read).known_reads, 8u);
  EXPECT_EQ(std::get<ServerFigures>(*read).cached_reads, 6u);
  ASSERT_TRUE(std::get<ServerFigures>(*read).pressure);
  EXPECT_EQ(std::get<ServerFigures>(*read).pressure->io, 0.25);
  EXPECT_FALSE(std::get<ServerFigures>(*sent(FleetAnswer(ServerFigures{}))).pressure);

  const ExecOutcome outcome{.exit_code = 3, .truncated = true, .output = std::string("a\0b", 3), .errors = "e"};
  const auto looked = sent(FleetAnswer(outcome));
  ASSERT_TRUE(looked) << looked.error().message();
  EXPECT_EQ(std::get<ExecOutcome>(*looked).output, outcome.output);
  EXPECT_EQ(std::get<ExecOutcome>(*looked).exit_code, 3);
  EXPECT_TRUE(std::get<ExecOutcome>(*looked).truncated);
}

TEST(FleetMessages, an_answer_that_cannot_be_is_refused) {
  const auto refused = [](const std::function<void(wire::FleetAnswer::Builder)>& write) {
    capnp::MallocMessageBuilder message;
    write(message.initRoot<wire::FleetAnswer>());
    const auto answer = read_answer(message.getRoot<wire::FleetAnswer>().asReader());
    return answer ? "taken" : answer.error().message();
  };
  EXPECT_THAT(refused([](auto out) { out.initRows().initRows(kMostRows + 1); }), testing::HasSubstr("rows"));
  EXPECT_THAT(refused([](auto out) { out.initRows().initRows(1); }), testing::HasSubstr("sandbox"));
  EXPECT_THAT(refused([](auto out) { out.initKilled().setId("x"); }), testing::HasSubstr("state"));
  EXPECT_THAT(refused([](auto out) { out.initEvents().initEvents(1)[0].setKind("?"); }), testing::HasSubstr("kind"));
  EXPECT_THAT(refused([](auto out) { out.initFigures().initEnded(1)[0].setName("?"); }), testing::HasSubstr("ended"));
  EXPECT_THAT(refused([](auto out) { out.initFigures().setSpawnP50Ms(-1); }), testing::HasSubstr("spawnP50Ms"));
  EXPECT_THAT(refused([](auto out) { out.initExecAnswer().initOutput(kMostExecOutput * 2); }),
              testing::HasSubstr("output"));
}

}  // namespace
}  // namespace tandem::envs
