#include "standby/source.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/overloaded.h"

namespace tandem::standby {
namespace {

using namespace std::chrono_literals;

constexpr Duration kLongestGap = 1s;   // between ticks; what is longer is our own absence
constexpr Duration kSendAgain = 1s;    // without an answer
constexpr Duration kSurveyAgain = 5s;  // it takes as long as reading all that is there
constexpr double kSurveySilence = 15;  // seconds
constexpr Duration kIdleWord = 1s;     // so that a standby that is lost is found without a want
constexpr Duration kAfterRefusal = 1s;
constexpr size_t kMostUnderWay = 64;
// Then the other side waits for something else than what is under way: it has begun anew, and a late survey made it
// take this life for a new one.
constexpr int kMostFruitless = 8;

}  // namespace

Source::Source(Terms terms) : terms_(std::move(terms)), life_(terms_.first_life) { begin(); }

uint64_t Source::extend(const std::string& path, uint64_t bytes) {
  auto [found, is_new] = wanted_.try_emplace(path);
  Wanted& log = found->second;
  const uint64_t before = log.bytes;
  if (is_new) log.order = ++order_;
  log.kind = Kind::kLog;
  log.bytes = std::max(before, bytes);
  ++mark_;
  if (!is_compared_) return mark_;
  if (!queue_.empty()) {
    // One job for what grows faster than it is sent.
    if (auto* last = std::get_if<Extend>(&queue_.back().op); last != nullptr && last->path == path) {
      last->bytes = log.bytes;
      queue_.back().mark = mark_;
      return mark_;
    }
  }
  enqueue(Extend{.path = path, .offset = before, .bytes = log.bytes});
  return mark_;
}

uint64_t Source::put(const std::string& path, uint64_t bytes, const Digest& digest, bool is_executable) {
  wanted_[path] = {.kind = Kind::kFile,
                   .bytes = bytes,
                   .digest = digest,
                   .is_executable = is_executable,
                   .target = {},
                   .order = ++order_};
  ++mark_;
  if (is_compared_) enqueue(Put{.path = path, .total = bytes, .digest = digest, .is_executable = is_executable});
  return mark_;
}

uint64_t Source::link(const std::string& path, const std::string& target) {
  wanted_[path] = {.kind = Kind::kLink, .target = target, .order = ++order_};
  ++mark_;
  if (is_compared_) enqueue(Link{path, target});
  return mark_;
}

uint64_t Source::remove(const std::string& path) {
  std::erase_if(wanted_, [&](const auto& entry) { return is_at_or_below(entry.first, path); });
  ++mark_;
  if (is_compared_) enqueue(Remove{path});
  return mark_;
}

void Source::enqueue(Op op) { queue_.push_back({.op = std::move(op), .mark = mark_}); }

// A new life: the other side says first what it has.
void Source::begin() {
  ++life_;
  number_ = 1;
  is_compared_ = false;
  queue_.clear();
  under_way_.clear();
  under_way_bytes_ = 0;
  under_way_.push_back({.number = 1, .op = Survey{terms_.paths}});
  begin_at_ = last_progress_ = {};
  fruitless_ = 0;
  if (state_ == State::kCopying || state_ == State::kWhole) state_ = State::kComparing;
}

Request Source::request_of(const Sent& sent) const {
  return {.epoch = terms_.epoch, .life = life_, .number = sent.number, .run = terms_.run, .op = sent.op};
}

Source::Turn Source::tick(Time now) {
  Turn turn;
  if (last_tick_ == Time{}) last_answer_ = last_tick_ = now;
  if (const Duration gap = now - last_tick_; gap > kLongestGap) last_answer_ += gap;
  last_tick_ = now;
  if (state_ == State::kFenced) return turn;
  const double silence = is_compared_ || state_ == State::kLost ? kSilence : kSurveySilence;
  if (state_ != State::kLost && silent_seconds(now) > silence) {
    state_ = State::kLost;
    was_lost_ = true;
    turn.news.push_back(fmt::format("the standby {} is lost: it has not answered for {:.1f} s; {}", terms_.name,
                                    silent_seconds(now),
                                    terms_.goes_on ? "the run goes on without it" : "the run waits for it"));
  }
  if (now < begin_at_) return turn;
  if (is_compared_ && under_way_.empty() && queue_.empty() && now - last_progress_ > kIdleWord)
    queue_.push_back({.op = SetWhole{true}, .mark = 0});
  send_again(now, turn);
  send(now, turn);
  return turn;
}

void Source::send_again(Time now, Turn& turn) {
  const Duration patience = is_compared_ ? kSendAgain : kSurveyAgain;
  const bool is_begun = last_progress_ != Time{};  // else nothing of this life was sent
  if (under_way_.empty() || (is_begun && now - last_progress_ < patience)) return;
  if (fruitless_ > kMostFruitless) begin();
  last_progress_ = now;
  for (const Sent& sent : under_way_) turn.requests.push_back(request_of(sent));
}

// The next part of the first job; the job goes with its last part.
std::optional<Source::Sent> Source::next_part() {
  if (queue_.empty()) return {};
  Job& job = queue_.front();
  Sent sent{.number = ++number_, .op = job.op};
  bool is_last = true;
  if (auto* extend = std::get_if<Extend>(&job.op)) {
    auto& part = std::get<Extend>(sent.op);
    part.bytes = sent.bytes = std::min<uint64_t>(kPartBytes, extend->bytes - extend->offset);
    extend->offset += sent.bytes;
    is_last = extend->offset >= extend->bytes;
  } else if (auto* put = std::get_if<Put>(&job.op)) {
    auto& part = std::get<Put>(sent.op);
    part.bytes = sent.bytes = std::min<uint64_t>(kPartBytes, put->total - put->offset);
    put->offset += sent.bytes;
    is_last = put->offset >= put->total;
  }
  if (is_last) {
    sent.mark = job.mark;
    queue_.pop_front();
  }
  return sent;
}

void Source::send(Time now, Turn& turn) {
  if (!is_compared_) return;
  while (under_way_bytes_ < kWindow && under_way_.size() < kMostUnderWay) {
    auto sent = next_part();
    if (!sent) return;
    if (under_way_.empty()) last_progress_ = now;
    under_way_bytes_ += sent->bytes;
    turn.requests.push_back(request_of(*sent));
    under_way_.push_back(std::move(*sent));
  }
}

Source::Turn Source::on(const Answer& answer, Time now) {
  Turn turn;
  if (state_ == State::kFenced || answer.life != life_) return turn;
  last_answer_ = now;
  has_answered_ = true;
  if (last_tick_ == Time{}) last_tick_ = now;
  if (const auto* fenced = std::get_if<Fenced>(&answer.what)) {
    if (fenced->epoch < terms_.epoch) return turn;
    fence_ = *fenced;
    state_ = State::kFenced;
    turn.news.push_back(fmt::format("the run was taken over at {}: it has epoch {} now, and this is epoch {}",
                                    fenced->holder, fenced->epoch, terms_.epoch));
    return turn;
  }
  if (std::holds_alternative<Unknown>(answer.what)) {
    begin();
    send_again(now, turn);
    return turn;
  }
  if (const auto* refused = std::get_if<Refused>(&answer.what)) {
    if (refused->why != trouble_)
      turn.news.push_back(fmt::format("the standby {} cannot keep the copy: {}", terms_.name, refused->why.message()));
    trouble_ = refused->why;
    begin();
    state_ = State::kLost;
    was_lost_ = true;
    begin_at_ = now + kAfterRefusal;
    return turn;
  }
  if (const auto* surveyed = std::get_if<Surveyed>(&answer.what); surveyed != nullptr && !is_compared_) {
    under_way_.clear();
    last_progress_ = now;
    compare(*surveyed);
  } else if (is_compared_) {
    if (!under_way_.empty() && under_way_.front().number > answer.number) ++fruitless_;
    while (!under_way_.empty() && under_way_.front().number <= answer.number) {
      fruitless_ = 0;
      held_ = std::max(held_, under_way_.front().mark);
      if (under_way_.front().bytes > 0) trouble_ = Status();
      under_way_bytes_ -= under_way_.front().bytes;
      last_progress_ = now;
      under_way_.pop_front();
    }
  }
  if (is_compared_) settle(turn);
  send(now, turn);
  return turn;
}

void Source::settle(Turn& turn) {
  // A host with a full disk answers, and takes what needs no room: it is back once it takes bytes again.
  if (!trouble_.ok() && held_ < mark_) return;
  trouble_ = Status();
  state_ = held_ >= mark_ ? State::kWhole : State::kCopying;
  if (state_ == State::kWhole && std::exchange(was_lost_, false))
    turn.news.push_back(fmt::format("the standby {} is back, and has everything again", terms_.name));
}

// What is there, against what is wanted.
void Source::compare(const Surveyed& surveyed) {
  is_compared_ = true;
  folder_ = surveyed.folder;
  std::map<std::string, const FoundFile*> there;
  for (const FoundFile& file : surveyed.files) {
    if (wanted_.contains(file.path))
      there[file.path] = &file;
    else
      enqueue(Remove{file.path});
  }
  std::vector<std::pair<const std::string, Wanted>*> all;
  for (auto& entry : wanted_) all.push_back(&entry);
  std::sort(all.begin(), all.end(), [](const auto* a, const auto* b) { return a->second.order < b->second.order; });
  bool is_behind = false;  // in what may have been acknowledged
  std::deque<Job> before = std::exchange(queue_, {});
  for (const auto* entry : all) {
    const auto& [path, want] = *entry;
    const auto found = there.find(path);
    const FoundFile* const file = found == there.end() ? nullptr : found->second;
    switch (want.kind) {
      case Kind::kLink:
        if (file == nullptr || file->link != want.target) enqueue(Link{path, want.target});
        break;
      case Kind::kFile:
        if (file == nullptr || !file->link.empty() || file->bytes != want.bytes || file->digest != want.digest)
          enqueue(Put{.path = path, .total = want.bytes, .digest = want.digest, .is_executable = want.is_executable});
        break;
      case Kind::kLog: {
        uint64_t from = 0;
        const bool is_beginning = file != nullptr && file->link.empty() && file->bytes <= want.bytes &&
                                  terms_.digest_of_log(path, file->bytes) == file->digest;
        if (is_beginning)
          from = file->bytes;
        else if (file != nullptr)
          enqueue(Remove{path});  // of what was cut here, or of another disk
        if (from < want.bytes) enqueue(Extend{.path = path, .offset = from, .bytes = want.bytes});
        is_behind = is_behind || from < want.bytes;
        break;
      }
    }
  }
  std::move(queue_.begin(), queue_.end(), std::back_inserter(before));
  queue_ = std::move(before);
  if (terms_.goes_on && is_behind) {
    queue_.push_front({.op = SetWhole{false}, .mark = 0});
    queue_.push_back({.op = SetWhole{true}, .mark = mark_});
  }
  // A mark is held when its job is done, and all that is missing belongs to the last.
  for (Job& job : queue_) job.mark = 0;
  if (queue_.empty())
    held_ = mark_;
  else
    queue_.back().mark = mark_;
}

Source::Turn Source::unreadable(const std::string& path, Time now) {
  Turn turn;
  if (state_ == State::kFenced) return turn;
  wanted_.erase(path);
  begin();
  send_again(now, turn);
  return turn;
}

std::string_view Source::shown_state() const {
  switch (state_) {
    case State::kComparing:
      return "comparing";
    case State::kCopying:
    case State::kWhole:
      return "up";
    case State::kLost:
      return "lost";
    case State::kFenced:
      return "taken over";
  }
  return "lost";
}

}  // namespace tandem::standby
