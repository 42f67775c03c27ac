#include "hosts/protocol.h"

#include <gmock/gmock.h>

#include <cmath>

namespace tandem::hosts {
namespace {

using testing::HasSubstr;

Result<Request> through_wire(const Request& request) {
  wire::Outgoing message;
  write_request(1, request, message.body().initHostRequest());
  return read_request(message.body().asReader().getHostRequest());
}

TEST(HostProtocol, a_beat_and_a_state_come_as_they_were_said) {
  const auto beat = through_wire(Beat{
      5, {{.number = 3, .arguments = {"role", "env"}, .log = "env-0.log", .end = JobEnd::kAsk, .log_offset = 99}}});
  ASSERT_TRUE(beat);
  const HostJob& job = std::get<Beat>(*beat).jobs.at(0);
  EXPECT_EQ(job.arguments.at(1), "env");
  EXPECT_EQ(job.end, JobEnd::kAsk);
  EXPECT_EQ(job.log_offset, 99u);

  wire::Outgoing message;
  write_answer(1,
               HostState{.beat = 5,
                         .is_known = true,
                         .is_draining = true,
                         .processes = {{.number = 3, .signal = 9, .log = std::string("a\0b", 3), .failure = "f"}}},
               message.body().initHostAnswer());
  const auto answer = read_answer(message.body().asReader().getHostAnswer());
  ASSERT_TRUE(answer);
  const auto& state = std::get<HostState>(*answer);
  EXPECT_TRUE(state.is_draining);
  EXPECT_EQ(state.processes.at(0).log.size(), 3u);
  EXPECT_EQ(state.processes.at(0).signal, 9);
}

TEST(HostProtocol, a_silence_comes_as_it_was_said_and_is_a_time) {
  EXPECT_TRUE(std::holds_alternative<AskSilence>(*through_wire(AskSilence{})));
  const auto said = [](double seconds) {
    wire::Outgoing message;
    write_answer(1, Silence{.seconds = seconds, .is_over = true}, message.body().initHostAnswer());
    return read_answer(message.body().asReader().getHostAnswer());
  };
  const auto silence = said(2.5);
  ASSERT_TRUE(silence);
  EXPECT_EQ(std::get<Silence>(*silence).seconds, 2.5);
  EXPECT_TRUE(std::get<Silence>(*silence).is_over);
  for (const double wrong : {-1.0, std::nan(""), HUGE_VAL}) EXPECT_FALSE(said(wrong)) << wrong;
}

TEST(HostProtocol, paths_that_lead_out_of_the_home_and_too_much_of_anything_are_refused) {
  for (const char* path : {"", "/etc/passwd", "../x", "a/../../x", "./a", "a//b", "a/", "."}) {
    EXPECT_FALSE(check_home_path(path)) << path;
    EXPECT_FALSE(through_wire(Settle{{{.path = path, .content = ""}}})) << path;
    EXPECT_FALSE(through_wire(Offer{{{.path = path}}})) << path;
    EXPECT_FALSE(through_wire(Beat{1, {{.number = 1, .log = path}}})) << path;
  }
  for (const char* path : {"a", "model/b.safetensors", "tasks/..x/y", ".hidden"}) EXPECT_TRUE(check_home_path(path));
  EXPECT_THAT(through_wire(Beat{1, std::vector<HostJob>(kMostJobs + 1, {.log = "a"})}).error().message(),
              HasSubstr("512 processes at most"));
  EXPECT_FALSE(through_wire(Settle{{{.path = "a", .content = std::string(kMostTextBytes + 1, 'x')}}}));
}

}  // namespace
}  // namespace tandem::hosts
