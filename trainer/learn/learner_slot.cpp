// The passes of one slot: forward over the trees of its samples, their gradients, and back.
#include <algorithm>

#include "model/routes.h"
#include "trainer/learn/learner.h"
#include "trainer/learn/routed_views.h"

namespace tandem::trainer {

namespace {

using View = std::span<const int32_t>;

// What they have in common at their beginnings.
size_t shared(View a, View b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

// Rows of a tree with these segments more; at most, as later ones may share more than the opening with each other.
int rows_with(const TreeRows& tree, std::span<const View> segments) {
  int rows = tree.rows_with(segments.front());
  for (const View later : segments.subspan(1)) rows += static_cast<int>(later.size() - shared(segments.front(), later));
  return rows;
}

}  // namespace

// Samples that follow each other share prefixes (they come group by group), so passes are cut between samples.
Result<Learner::PassCounts> Learner::run_slot(std::span<const Sample> samples, std::span<const size_t> places,
                                              const SampleGradients& gradients_of, const Slice& gradients,
                                              std::span<Outcome> outcomes, std::span<double> head_gradient,
                                              Asked asked) {
  PassCounts sum;
  std::vector<const Sample*> of_slot;
  for (const size_t place : places) of_slot.push_back(&samples[place]);
  const RoutedViews routed = TRY(RoutedViews::create(of_slot, model::route_shape(weights_->config())));
  for (size_t begin = 0; begin < places.size();) {
    std::vector<View> views;
    std::vector<size_t> first_views;  // of each sample
    TreeRows size;
    size_t end = begin;
    for (; end < places.size(); ++end) {
      const auto segments = routed.segments(end);
      if (end > begin && rows_with(size, segments) > settings_.max_pass_tokens) break;
      first_views.push_back(views.size());
      for (const View segment : segments) {
        size.add(segment);
        views.push_back(segment);
      }
    }
    first_views.push_back(views.size());
    TokenTree tree = merge(views);
    const TreeRoutes routes = routed.translate(tree);
    struct Wanted {
      TokenPick pick;
      size_t sample;  // of the pass
      size_t place;   // among the sample's trained tokens
      KeptTokens kept;
    };
    std::vector<Wanted> wanted;
    std::vector<size_t> counts(end - begin, 0);
    const size_t before = gives_rewards() ? 0 : 1;       // a token is drawn from the row before it
    std::vector<std::vector<double>> told(end - begin);  // what a teacher said that was asked elsewhere
    for (size_t s = begin; s < end; ++s) {
      const Sample& sample = samples[places[s]];
      const auto kept = sample.kept.sets();
      size_t first = 0;  // token of the segment
      for (size_t view = first_views[s - begin]; view < first_views[s - begin + 1]; ++view) {
        const auto rows = tree.rows_of(static_cast<int>(view), views[view].size());
        for (size_t i = 1; i < rows.size(); ++i) {
          if (!sample.trained[first + i]) continue;
          if (!sample.teacher_logprobs.empty()) told[s - begin].push_back(sample.teacher_logprobs[first + i]);
          const KeptTokens of_token = kept.empty() ? KeptTokens() : kept[first + i];
          wanted.push_back({{rows[i - before], sample.tokens[first + i]}, s - begin, counts[s - begin]++, of_token});
          sum.kept_of += kept.empty() ? 0 : 1;
          sum.truncated += of_token.empty() ? 0 : 1;
          sum.kept += static_cast<int64_t>(of_token.size());
        }
        first += rows.size();
      }
      sum.sample_tokens += static_cast<int64_t>(sample.tokens.size());
    }
    // Other versions of the weights may have cut the same distribution elsewhere: then a row has several of the head.
    std::stable_sort(wanted.begin(), wanted.end(), [](const Wanted& a, const Wanted& b) {
      if (a.pick.row != b.pick.row) return a.pick.row < b.pick.row;
      return std::ranges::lexicographical_compare(a.kept, b.kept);
    });
    std::vector<TokenPick> picks;
    std::vector<KeptTokens> kept;
    for (const Wanted& w : wanted) {
      picks.push_back(w.pick);
      kept.push_back(w.kept);
    }
    const auto head_rows = head_row_of(picks, kept);
    std::vector<TokenLogprobs> of_samples(counts.size());
    const auto hand_out = [&](const std::vector<float>& logprobs, std::vector<double> TokenLogprobs::*member) {
      for (size_t s = 0; s < counts.size(); ++s) (of_samples[s].*member).resize(counts[s]);
      for (size_t i = 0; i < wanted.size(); ++i) (of_samples[wanted[i].sample].*member)[wanted[i].place] = logprobs[i];
    };
    for (size_t s = 0; s < counts.size() && asked == Asked::kTeacher; ++s)
      of_samples[s].teacher_logprobs = std::move(told[s]);
    if (teacher_ && asked == Asked::kTeacher)
      hand_out(TRY(teacher_tape_->forward(stream_, *teacher_, tree, picks, nullptr, settings_.logit_scale, kept)),
               &TokenLogprobs::teacher_logprobs);
    // The tape keeps the last pass for the way back.
    if (reference_ && asked != Asked::kPolicyAlone)
      hand_out(TRY(tape_->forward(stream_, *reference_, tree, picks, nullptr, settings_.logit_scale, kept)),
               &TokenLogprobs::ref_logprobs);
    hand_out(TRY(tape_->forward(stream_, *weights_, tree, picks, routed.any() ? &routes : nullptr,
                                settings_.logit_scale, kept)),
             &TokenLogprobs::logprobs);
    const auto [taken, changed] = tape_->given_routes();
    sum.routes_taken += taken;
    sum.routes_changed += changed;
    // The row of the head's states that each sample's tokens read.
    std::vector<std::vector<size_t>> state_rows(critic_ ? counts.size() : 0);
    std::vector<float> states;
    if (critic_) {
      states = TRY(tape_->states());
      for (size_t s = 0; s < counts.size(); ++s) state_rows[s].resize(counts[s]);
      for (size_t i = 0; i < wanted.size(); ++i) state_rows[wanted[i].sample][wanted[i].place] = head_rows[i];
    }
    const auto width = static_cast<size_t>(weights_->config().width);
    const auto state_of = [&](size_t row) { return std::span(states).subspan(row * width, width); };
    for (size_t s = 0; s < state_rows.size(); ++s) {
      for (const size_t row : state_rows[s]) of_samples[s].values.push_back(critic_->value(state_of(row)));
    }
    std::vector<std::vector<double>> gradients_of_samples(counts.size());
    for (size_t s = 0; s < counts.size(); ++s) {
      gradients_of_samples[s].resize(counts[s]);
      gradients_of(places[begin + s], of_samples[s], gradients_of_samples[s], outcomes[places[begin + s]]);
    }
    std::vector<float> grad_logprobs(picks.size());
    bool any = false;
    for (size_t i = 0; i < wanted.size(); ++i) {
      grad_logprobs[i] = static_cast<float>(gradients_of_samples[wanted[i].sample][wanted[i].place]);
      any = any || grad_logprobs[i] != 0;
    }
    std::vector<float> grad_states;
    if (value_pass_) {
      if (value_pass_->trunk) grad_states.assign(states.size(), 0);
      for (size_t s = 0; s < counts.size(); ++s) {
        if (samples[places[begin + s]].part == kDemonstrationPart) continue;  // has no return
        for (size_t place = 0; place < counts[s]; ++place) {
          const double gradient = value_pass_->gradients[places[begin + s] * value_pass_->length + place];
          const size_t row = state_rows[s][place];
          critic_->add_gradient(state_of(row), gradient, head_gradient);
          if (!value_pass_->trunk) continue;
          critic_->add_to_state(gradient, std::span(grad_states).subspan(row * width, width));
          any = any || gradient != 0;
        }
      }
    }
    sum.trained_tokens += static_cast<int64_t>(picks.size());
    sum.tree_tokens += static_cast<int64_t>(tree.tokens.size());
    if (any) {
      std::vector<float> entropies;
      TRY(tape_->backward(grad_logprobs, gradients, &entropies, learned_, grad_states));
      sum.any = true;
      // Each sample is computed by itself, so that it does not matter beside which others.
      std::vector<uint8_t> moves(counts.size());
      for (size_t s = 0; s < counts.size(); ++s)
        moves[s] = std::ranges::any_of(gradients_of_samples[s], [](double g) { return static_cast<float>(g) != 0; });
      for (size_t i = 0; i < wanted.size(); ++i) {
        if (moves[wanted[i].sample] == 0) continue;
        Outcome& outcome = outcomes[places[begin + wanted[i].sample]];
        outcome.entropy += entropies[head_rows[i]];
        ++outcome.entropy_tokens;
      }
    }
    begin = end;
  }
  return sum;
}

}  // namespace tandem::trainer
