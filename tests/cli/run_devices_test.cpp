// Runs and commands on a device: what they end with is what a CPU with AVX2 ends with.
#include "tests/cli/run_fixture.h"

namespace tandem {
namespace {

class RunDevices : public RunTest {
 protected:
  static Arguments on(const Arguments& devices, int steps = 2) {
    Arguments all = {"run.deterministic=true", "run.seed=3",        "run.steps=" + std::to_string(steps),
                     "tasks.heldout=0",        "trainer.max_lag=0", "rollout.temperature=1.2"};
    all.insert(all.end(), devices.begin(), devices.end());
    return all;
  }
};

TEST_F(RunDevices, end_with_the_export_of_avx2_wherever_trainer_and_engines_are) {
  const fs::path cpu = root() / "on-cpu", device = root() / "on-device", apart = root() / "apart";
  ASSERT_EQ(run(on({"device=cpu:avx2"}), cpu), 0) << text(output());
  ASSERT_EQ(run(on({"device=emulated:0"}), device), 0) << text(output());
  ASSERT_EQ(run(on({"rollout.devices=[emulated:1,cpu]", "trainer.device=cpu"}), apart), 0) << text(output());
  EXPECT_EQ(export_digest(device), export_digest(cpu));
  EXPECT_EQ(export_digest(apart), export_digest(cpu));
  for (const fs::path& run_dir : {device, apart}) {
    const Json summary = json(run_dir / "summary.json");
    EXPECT_EQ(summary["numerics_id"], "v3-avx2-bf16");
    expect_same_logprobs(run_dir);
    expect_nothing_left(run_dir);
  }
}

// What a GPU's tensor cores would make of it: other bits than a processor's, the same ones of trainer and engines.
TEST_F(RunDevices, of_tensor_cores_agree_and_end_with_the_same_export_on_any_of_them) {
  const fs::path one = root() / "tensor", apart = root() / "tensor-apart";
  ASSERT_EQ(run(on({"device=emulated:0:tensor"}, 1), one), 0) << text(output());
  ASSERT_EQ(
      run(on({"rollout.devices=[emulated:1:tensor,emulated:2:tensor]", "trainer.device=emulated:0:tensor"}, 1), apart),
      0)
      << text(output());
  EXPECT_EQ(export_digest(apart), export_digest(one));
  for (const fs::path& run_dir : {one, apart}) {
    const Json summary = json(run_dir / "summary.json");
    EXPECT_EQ(summary["numerics_id"], "v3-hopper-bf16");
    expect_same_logprobs(run_dir);
    ASSERT_EQ(tandem({"replay", run_dir.string(), "--episode", "0"}), 0) << text(output());
    EXPECT_NE(text(output()).find("the same logprobs"), std::string::npos) << text(output());
  }
}

// Each life of an engine loses its device after so much work; one that begins again has it back.
TEST_F(RunDevices, that_are_lost_cost_a_life_of_the_engine_and_no_bit) {
  constexpr int kSteps = 6;  // of which some engine does more than its device lives for
  const fs::path cpu = root() / "not-lost", lost = root() / "lost";
  ASSERT_EQ(run(on({"device=cpu:avx2"}, kSteps), cpu), 0) << text(output());
  ::setenv("TANDEM_EMULATED", "lose_at=1500", 1);
  const int code = run(on({"rollout.devices=[emulated:0]", "run.max_restarts=50"}, kSteps), lost);
  ::unsetenv("TANDEM_EMULATED");
  ASSERT_EQ(code, 0) << text(output());
  EXPECT_EQ(export_digest(lost), export_digest(cpu));
  EXPECT_GT(json(lost / "summary.json")["restarts"]["rollout"].get<int>(), 0);
  EXPECT_NE(logs(lost).find("emulated:0: "), std::string::npos) << "the log names the device";
  expect_books_to_agree(lost);
  expect_nothing_trained_twice(lost);
  expect_nothing_left(lost);
}

// The emulated device whose memory the processes of a run have in common, until the object ends.
class SharedDevice {
 public:
  explicit SharedDevice(const std::string& memory) {
    const std::string number = std::to_string(::getpid());
    ::setenv("TANDEM_EMULATED", ("shared=" + number + ",memory=" + memory).c_str(), 1);
    file_ = "/dev/shm/emulated-device-" + number + "-0";
    fs::remove(file_);
  }
  ~SharedDevice() {
    ::unsetenv("TANDEM_EMULATED");
    fs::remove(file_);
  }
  SharedDevice(const SharedDevice&) = delete;
  SharedDevice& operator=(const SharedDevice&) = delete;

 private:
  fs::path file_;
};

// What trainer and engine need at once is more than the device has; what each needs in its turn is not.
TEST_F(RunDevices, whose_memory_is_taken_in_turns_fit_where_both_at_once_do_not) {
  const Arguments one = {"device=emulated:0", "rollout.workers=1", "run.max_restarts=2"};
  const fs::path cpu = root() / "turns-cpu", both = root() / "both", turns = root() / "turns";
  ASSERT_EQ(run(on({"device=cpu:avx2", "rollout.workers=1"}), cpu), 0) << text(output());
  constexpr const char* kMemory = "28m";
  {
    const SharedDevice device(kMemory);
    EXPECT_NE(run(on(one), both), 0) << "there is room for both: the test shows nothing";
  }
  Arguments asleep = one;
  asleep.push_back("rollout.sleep_while_training=true");
  const SharedDevice device(kMemory);
  ASSERT_EQ(run(on(asleep), turns), 0) << text(output());
  EXPECT_EQ(export_digest(turns), export_digest(cpu));
  expect_same_logprobs(turns);
  expect_nothing_left(turns);
}

TEST_F(RunDevices, that_are_none_are_not_there_or_do_not_fit_together_are_refused) {
  const auto refused = [&](const Arguments& devices, int code, const std::string& words) {
    SCOPED_TRACE(words);
    EXPECT_EQ(run(on(devices), root() / "refused"), code);
    EXPECT_NE(text(output()).find(words), std::string::npos) << text(output());
    EXPECT_FALSE(fs::exists(root() / "refused"));
  };
  refused({"device=cdua:0"}, 2, "\"cdua:0\" is no device; did you mean \"cuda:0\"?");
  refused({"device=emulated:70"}, 3, "there is no emulated:70");
  refused({"rollout.devices=[cuda:900]"}, 3, "there is no cuda:900");
  refused({"device=emulated:0", "trainer.device=cpu:avx512"}, 2, "do not compute the same bits");
  refused({"device=emulated:0:tensor", "trainer.device=cpu"}, 2, "do not compute the same bits");
  refused({"device=cpu", "rollout.sleep_while_training=true"}, 2, "no engine computes on a GPU that is the trainer's");
  refused({"device=emulated:0:fast"}, 2, "names no kernels of emulated:0");
}

}  // namespace
}  // namespace tandem
