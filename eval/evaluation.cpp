#include "eval/evaluation.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "eval/tasks.h"

namespace tandem::eval {
namespace {

using namespace std::chrono_literals;

// Events for the schedule, from every thread.
class EvaluationInbox {
 public:
  struct Item {
    ScheduleEvent event;
    std::optional<Played> played;  // of SampleEnded
  };
  void put(Item item) {
    std::lock_guard lock(mutex_);
    items_.push_back(std::move(item));
    changed_.notify_one();
  }
  // The next one; ScheduleTime where none comes by `until`.
  Item take(Time until) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_until(lock, until, [&] { return !items_.empty(); })) return {ScheduleTime{}, {}};
    auto item = std::move(items_.front());
    items_.pop_front();
    return item;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;
};

class Evaluation {
 public:
  Evaluation(const EvaluationJob& job, EvaluationFolder& folder, const Clock& clock, PlayTerms terms)
      : job_(job), folder_(folder), clock_(clock), terms_(std::move(terms)) {
    open_ = open_samples(job.identity, job.suite.gates, folder.samples());
    for (const auto& task : job.tasks) tasks_.emplace(name_of_task(task), &task);
    progress_.total = job.identity.own_tasks().size() * static_cast<size_t>(job.identity.samples);
    progress_.done = progress_.total - open_.size();
    const std::set<SampleKey> again(open_.begin(), open_.end());
    for (const auto& [key, sample] : folder.samples()) {
      if (again.contains(key)) {
        used_.emplace(key, sample.use);
      } else {
        count(sample);
      }
    }
  }

  Result<ScheduleOver> run() {
    ScheduleSettings settings{.samples = {},
                              .concurrency = static_cast<size_t>(job_.suite.concurrency),
                              .total_tokens = job_.suite.limits.total_tokens};
    for (size_t i = 0; i < open_.size(); ++i) settings.samples.push_back(i);
    settings.failures_in_a_row = std::max(settings.failures_in_a_row, 3 * settings.concurrency);
    if (job_.suite.limits.total_seconds > 0) settings.total_time = from_seconds(job_.suite.limits.total_seconds);
    Schedule schedule(std::move(settings));
    const std::stop_callback on_stop(job_.stop, [this] { inbox_.put({ScheduleInterrupted{}, {}}); });
    std::unique_ptr<EndpointWatch> watch;
    if (job_.watch) watch = job_.watch([this](const std::string& why) { inbox_.put({ModelGone{why}, {}}); });
    began_ = clock_.now();
    carry_out(schedule.step(ScheduleBegins{}, clock_.now()));
    while (!over_) {
      const Time soon = clock_.now() + 200ms;
      auto item = inbox_.take(std::min(soon, schedule.deadline().value_or(soon)));
      if (auto* ended = std::get_if<SampleEnded>(&item.event)) {
        running_.erase(ended->sample);  // its thread is joined here
        ended_ = std::move(item.played);
        use_of(ended->sample) += ended_->result.use;
      }
      carry_out(schedule.step(item.event, clock_.now()));
      if (!written_.ok() && job_stopped_once()) carry_out(schedule.step(ScheduleInterrupted{}, clock_.now()));
      report(schedule.running());
    }
    TRY(written_);
    return *over_;
  }

 private:
  struct Running {
    std::jthread thread;
  };

  bool job_stopped_once() { return !std::exchange(stopped_, true); }

  // Of all attempts so far at a sample of open_.
  ComputeUse& use_of(size_t sample) { return used_.try_emplace(open_[sample], ComputeUse::none()).first->second; }

  void count(const SampleResult& sample) {
    progress_.verdicts += sample.has_verdict();
    progress_.passed += sample.passed();
  }

  void carry_out(const std::vector<ScheduleAction>& actions) {
    for (const auto& action : actions) {
      if (const auto* start = std::get_if<StartSample>(&action)) {
        start_sample(*start);
      } else if (const auto* stop = std::get_if<StopSample>(&action)) {
        running_.at(stop->sample).thread.request_stop();
      } else if (std::holds_alternative<KeepSample>(action)) {
        auto result = ended_->result;
        result.use = use_of(std::get<KeepSample>(action).sample);
        keep(std::move(result), ended_->transcript);
      } else if (const auto* given_up = std::get_if<GiveUpSample>(&action)) {
        SampleResult result{.task = open_[given_up->sample].first,
                            .sample = open_[given_up->sample].second,
                            .attempt = 0,
                            .outcome = given_up->outcome,
                            .why = given_up->why,
                            .began = clock_.unix_seconds(),
                            .use = use_of(given_up->sample)};
        keep(std::move(result), {});
      } else {
        over_ = std::get<ScheduleOver>(action);
      }
    }
  }

  void start_sample(const StartSample& start) {
    const auto [name, sample] = open_[start.sample];
    const envs::Task& task = *tasks_.at(name);
    const auto work = [this, start, &task, sample = sample](const std::stop_token& stop) {
      Played played = play(task, sample, job_.source, job_.backend, terms_, clock_, stop);
      played.result.attempt = start.attempt;
      const auto& result = played.result;
      SampleEnded ended{start.sample, result.outcome, result.why, result.tokens()};
      inbox_.put({std::move(ended), std::move(played)});
    };
    running_[start.sample] = {std::jthread(work)};
  }

  void keep(SampleResult result, const Json& transcript) {
    if (!written_.ok()) return;
    ++progress_.done;
    ++ended_here_;
    count(result);
    written_ = folder_.add(std::move(result), transcript);
  }

  void report(size_t running) {
    if (!job_.on_progress) return;
    progress_.running = running;
    if (ended_here_ > 0) {
      const double each = to_seconds(clock_.now() - began_) / static_cast<double>(ended_here_);
      progress_.seconds_left = each * static_cast<double>(progress_.total - progress_.done);
    }
    job_.on_progress(progress_);
  }

  const EvaluationJob& job_;
  EvaluationFolder& folder_;
  const Clock& clock_;
  const PlayTerms terms_;
  std::vector<SampleKey> open_;
  std::map<std::string, const envs::Task*> tasks_;
  EvaluationProgress progress_;
  size_t ended_here_ = 0;
  Time began_{};
  std::optional<Played> ended_;  // the last one
  std::map<SampleKey, ComputeUse> used_;
  std::optional<ScheduleOver> over_;
  Status written_;
  bool stopped_ = false;
  EvaluationInbox inbox_;
  std::map<size_t, Running> running_;  // uses what stands above
};

Result<PlayTerms> play_terms(const Suite& suite) {
  auto network = TRY(envs::AllowList::parse(suite.env.network));
  PlayTerms terms{.episode = {.output_limit = static_cast<size_t>(suite.profile.output_bytes),
                              .call_time_limit_s = suite.profile.call_seconds,
                              .test_time_limit_s = suite.profile.call_seconds,
                              .tools = suite.profile.tools,
                              .system = suite.profile.system,
                              .network = std::move(network)},
                  .turns = suite.limits.turns,
                  .time = from_seconds(suite.limits.seconds),
                  .tokens = static_cast<uint64_t>(suite.limits.tokens),
                  .seed = suite.seed};
  return terms;
}

}  // namespace

std::vector<SampleKey> open_samples(const Identity& identity, const Gates& gates,
                                    const std::map<SampleKey, SampleResult>& known) {
  std::vector<SampleKey> missing, undecided;
  const auto own = identity.own_tasks();
  // Every task once, then every task again: what is cut short still says something of each.
  for (int sample = 0; sample < identity.samples; ++sample) {
    for (const auto& task : own) {
      const auto found = known.find({task.task, sample});
      if (found == known.end()) missing.emplace_back(task.task, sample);
      if (found == known.end() || !found->second.has_verdict()) undecided.emplace_back(task.task, sample);
    }
  }
  const auto total = static_cast<double>(own.size()) * identity.samples;
  const bool too_many = static_cast<double>(undecided.size()) > gates.max_error_share * total;
  return missing.empty() && !too_many ? std::vector<SampleKey>() : undecided;
}

Result<ScheduleOver> evaluate(const EvaluationJob& job, EvaluationFolder& folder, const Clock& clock) {
  auto terms = TRY(play_terms(job.suite));
  envs::PreparedSnapshots prepared(uint64_t{256} << 20);
  terms.episode.prepared = &prepared;
  terms.episode.packages = job.packages;
  return Evaluation(job, folder, clock, std::move(terms)).run();
}

}  // namespace tandem::eval
