#include "trainer/remote_teacher.h"

#include <spdlog/spdlog.h>

namespace tandem::trainer {

Status RemoteTeacher::teach(Loaded& loaded, const std::stop_token& stop) {
  const Status known = read_teacher_record(run_dir_, loaded.step, loaded.samples);
  if (known.ok()) return {};
  if (known.code() != Code::kNotFound) spdlog::warn("{}; asking the teacher again", known.message());
  const Time start = clock_.now();
  const TeacherUse before = client_.use();
  const bool is_first = !client_.form();
  const TeacherQuestions questions = questions_of(loaded.samples);
  const auto answers = client_.logprobs(questions.sequences, stop);
  loaded.teacher = {.requests = client_.use().requests - before.requests,
                    .failed = client_.use().failed - before.failed};
  loaded.teacher_seconds = to_seconds(clock_.now() - start);
  if (is_first && client_.form()) spdlog::info("the teacher is asked by \"{}\"", to_string(*client_.form()));
  if (!answers) {
    const Status& failed = answers.error();
    if (failed.code() == Code::kCancelled) return failed;
    const Code code = failed.code() == Code::kInvalid ? Code::kInvalid : Code::kUnfit;
    return Status(code, failed.message())
        .hint(!failed.hint().empty()
                  ? failed.hint()
                  : "the run ends here, since a step is not taken without its teacher; `tandem run CONFIG --resume` "
                    "goes on once it answers");
  }
  if (loaded.teacher.failed > 0)
    spdlog::warn("step {}: {} of {} requests to the teacher failed and were sent again", loaded.step,
                 loaded.teacher.failed, loaded.teacher.requests);
  put_answers(questions, *answers, loaded.samples);
  TRY(write_teacher_record(run_dir_, loaded.step, loaded.samples));
  if (standby_ == nullptr) return {};
  return standby_->wait(TRY(standby_->put(teacher_record_name(loaded.step).string())));
}

}  // namespace tandem::trainer
