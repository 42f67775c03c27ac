// Runs whose teacher is a `tandem serve`: they have the bits of a run with the same teacher as a directory, end with
// the reason when it goes, go on when it is back, and are replayed without it.
#include <fmt/format.h>

#include <memory>

#include "tests/cli/run_fixture.h"
#include "trainer/teacher_answer.h"
#include "wire/json_request.h"

namespace tandem {
namespace {

class TeacherEndpointRun : public RunTest {
 protected:
  // A run whose last step teaches.
  static fs::path teaching() {
    static const fs::path run_dir = [] {
      const fs::path path = root() / "teaching";
      EXPECT_EQ(run({"run.steps=2", "tasks.heldout=0", "run.seed=3"}, path), 0) << text(output());
      return path;
    }();
    return run_dir / "export";
  }
  // Serves a model under the name "big".
  void serve(const fs::path& model) {
    const fs::path said = root() / "serve.out";
    server_.reset();
    fs::remove(said);
    server_ = std::make_unique<Process>(
        Arguments{TANDEM_BINARY, "serve", "--model", "big=" + model.string(), "--port", "0"}, said);
    const auto url_said = [&] {
      const std::string all = text(said);
      for (const auto line : split_lines(all)) {
        const auto parsed = parse_json(line);
        if (parsed && parsed->is_object() && parsed->contains("url"))
          url_ = (*parsed)["url"].get<std::string>() + "/v1";
      }
      return !url_.empty();
    };
    url_.clear();
    ASSERT_TRUE(within(60s, [&] { return url_said() || !server_->running(); }));
    ASSERT_FALSE(url_.empty()) << text(said);
  }
  void kill_server() {
    server_->signal(SIGKILL);
    server_->wait();
  }
  static Arguments steps(int count, const Arguments& more) {
    Arguments arguments = {"run.deterministic=true",
                           "tasks.heldout=0",
                           "trainer.max_lag=0",
                           "trainer.checkpoint_every=3",
                           "trainer.keep_checkpoints=all",
                           "run.seed=3",
                           "algorithm.advantage=distill",
                           "run.steps=" + std::to_string(count)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  Arguments asked() const { return {"algorithm.teacher.url=" + url_, "algorithm.teacher.model=big"}; }
  Arguments asked(const Arguments& more) const {
    Arguments arguments = asked();
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  static std::string said() { return text(output()); }
  int dry_run(const Arguments& more) {
    Arguments arguments = {"run", TANDEM_SOURCE_DIR "/configs/tiny.yaml", "--dry-run",
                           "model.path=" + (root() / "model").string(), "algorithm.advantage=distill"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return tandem(arguments);
  }

  std::unique_ptr<Process> server_;
  std::string url_;
};

TEST_F(TeacherEndpointRun, has_the_bits_of_the_same_teacher_as_a_directory_and_is_replayed_without_it) {
  constexpr int kSteps = 6;
  const fs::path by_path = root() / "by-path", by_url = root() / "by-url", of_ranks = root() / "of-ranks";
  ASSERT_EQ(run(steps(kSteps, {"algorithm.teacher.path=" + teaching().string()}), by_path), 0) << said();
  serve(teaching());
  ASSERT_EQ(run(steps(kSteps, asked()), by_url), 0) << said();
  EXPECT_NE(said().find("teacher: big at " + url_ + ", asked by \"prompt_logprobs: 0\"; it has the model's tokens"),
            std::string::npos)
      << said();
  ASSERT_EQ(run(steps(kSteps, asked({"trainer.ranks=2", "algorithm.teacher.concurrency=1"})), of_ranks), 0) << said();
  kill_server();
  EXPECT_EQ(export_digest(by_url), export_digest(by_path));
  EXPECT_EQ(export_digest(of_ranks), export_digest(by_path));
  const std::string metrics = text(by_url / "metrics.jsonl");
  for (const auto line : split_lines(metrics)) {
    const Json step = *parse_json(line);
    EXPECT_TRUE(step["loss_metrics"].contains("teacher_kl")) << line;
    EXPECT_GT(step["teacher"]["requests"].get<int>(), 0) << line;
    EXPECT_EQ(step["teacher"]["failed"], 0) << line;
  }
  ASSERT_EQ(tandem({"replay", by_url.string(), "--step", "5"}), 0) << said();

  fs::remove(by_url / "trajectories" / "teacher" / "step_5");
  EXPECT_NE(tandem({"replay", by_url.string(), "--step", "5"}), 0);
  EXPECT_NE(said().find("trajectories/teacher/step_5: "), std::string::npos) << said();
}

TEST_F(TeacherEndpointRun, ends_with_the_reason_when_the_teacher_goes_and_goes_on_when_it_is_back) {
  constexpr int kSteps = 24;
  const fs::path whole = root() / "whole", cut = root() / "cut";
  ASSERT_EQ(run(steps(kSteps, {"algorithm.teacher.path=" + teaching().string()}), whole), 0) << said();
  serve(teaching());
  {
    Process process(command(steps(kSteps, asked({"algorithm.teacher.retries=1"})), cut), output());
    ASSERT_TRUE(reaches_step(process, cut, 2)) << said();
    kill_server();
    EXPECT_EQ(process.wait(), 1) << said();
  }
  EXPECT_LT(step_of(cut), kSteps);
  const std::string reason = json(cut / "failure.json")["reason"].get<std::string>();
  EXPECT_NE(reason.find("the teacher big at " + url_ + ": a sequence of "), std::string::npos) << reason;
  EXPECT_NE(reason.find("--resume"), std::string::npos) << reason;
  expect_nothing_left(cut);

  EXPECT_EQ(run({}, cut, true), 1) << "it is asked before the run begins";
  EXPECT_NE(said().find("algorithm.teacher.url: the teacher big at "), std::string::npos) << said();
  serve(teaching());  // at another port
  EXPECT_EQ(run({"algorithm.teacher.model=small"}, cut, true), 2);
  EXPECT_NE(said().find("algorithm.teacher.model is "), std::string::npos) << said();
  ASSERT_EQ(run({"algorithm.teacher.url=" + url_}, cut, true), 0) << said();
  EXPECT_EQ(export_digest(cut), export_digest(whole));
  expect_nothing_trained_twice(cut);
  kill_server();
  ASSERT_EQ(tandem({"replay", cut.string(), "--step", "24"}), 0) << said();
  expect_nothing_left(cut);
}

// It ended when all requests had been sent again as often as is allowed, minutes later.
TEST_F(TeacherEndpointRun, that_is_to_end_does_not_wait_for_a_teacher_that_hangs_and_goes_on_from_there) {
  constexpr int kSteps = 8;
  const fs::path whole = root() / "undisturbed", held = root() / "held";
  ASSERT_EQ(run(steps(kSteps, {"algorithm.teacher.path=" + teaching().string()}), whole), 0) << said();
  serve(teaching());
  {
    Process process(command(steps(kSteps, asked({"algorithm.teacher.seconds=600"})), held), output());
    ASSERT_TRUE(reaches_step(process, held, 2)) << said();
    server_->signal(SIGSTOP);
    process.signal(SIGTERM);
    EXPECT_TRUE(within(180s, [&] { return !process.running(); })) << said();
    server_->signal(SIGCONT);
    process.wait();
  }
  const int reached = step_of(held);
  EXPECT_LT(reached, kSteps);
  ASSERT_EQ(run({"algorithm.teacher.url=" + url_}, held, true), 0) << said();
  EXPECT_EQ(export_digest(held), export_digest(whole));
  expect_nothing_trained_twice(held);
}

TEST_F(TeacherEndpointRun, the_server_says_the_same_bits_in_each_form_and_at_any_temperature) {
  serve(root() / "model");
  const std::vector<int32_t> tokens = {40, 41, 42, 7, 300, 301, 9};
  const auto ask = [&](trainer::TeacherForm form, double temperature) {
    Json body = *parse_json(trainer::teacher_request(form, "big", tokens));
    body["temperature"] = temperature;
    const auto answer = wire::request_json({.url = url_ + "/completions", .body = dump_json(body), .seconds = 120});
    EXPECT_TRUE(answer) << answer.error().message();
    return trainer::read_teacher_logprobs(form, answer.value_or(""), tokens).value_or(std::vector<float>());
  };
  const auto expected = ask(trainer::TeacherForm::kPromptLogprobs, 1);
  ASSERT_EQ(expected.size(), tokens.size());
  for (const auto form : trainer::kTeacherForms) {
    EXPECT_EQ(ask(form, 1), expected) << to_string(form);
    EXPECT_EQ(ask(form, 0.3), expected) << to_string(form);
  }
}

TEST_F(TeacherEndpointRun, a_dry_run_says_whether_it_can_teach) {
  serve(teaching());
  ASSERT_EQ(dry_run(asked()), 0) << said();
  EXPECT_NE(said().find("teacher   big at " + url_ + ", asked by \"prompt_logprobs: 0\"; it has the model's tokens"),
            std::string::npos)
      << said();
  EXPECT_EQ(dry_run({"algorithm.teacher.url=" + url_, "algorithm.teacher.model=other"}), 2);
  EXPECT_NE(
      said().find("algorithm.teacher.url: the teacher other at " + url_ + ": has no model \"other\": it serves big"),
      std::string::npos)
      << said();
  EXPECT_EQ(dry_run(asked({"rollout.max_tokens=1024"})), 2);
  EXPECT_NE(said().find("takes sequences of 1024 tokens, and rollout.max_tokens is 1024"), std::string::npos) << said();
  kill_server();
  ASSERT_EQ(dry_run(asked()), 0) << said();
  EXPECT_NE(said().find("teacher   does not answer now, so nothing of it was checked: the teacher big at " + url_),
            std::string::npos)
      << said();

  // The same size of vocabulary, with two tokens exchanged.
  const fs::path other = root() / "other-tokens";
  fs::copy(root() / "model", other, fs::copy_options::recursive);
  Json tokenizer = *parse_json(text(other / "tokenizer.json"));
  Json& words = tokenizer["model"]["vocab"];
  std::swap(words["a"], words["b"]);
  fs::remove(other / "tokenizer.json");
  ASSERT_TRUE(write_file(other / "tokenizer.json", tokenizer.dump()));
  serve(other);
  EXPECT_EQ(dry_run(asked()), 2);
  EXPECT_NE(said().find("has another tokenizer: in "), std::string::npos) << said();
}

}  // namespace
}  // namespace tandem
