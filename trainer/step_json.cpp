#include "trainer/step_json.h"

namespace tandem::trainer {

namespace {

Json list_of(const std::vector<UpdateMetrics>& updates) {
  Json list = Json::array();
  for (const UpdateMetrics& u : updates) {
    list.push_back({{"epoch", u.epoch},
                    {"minibatch", u.minibatch},
                    {"taken", u.taken},
                    {"tokens", u.tokens},
                    {"loss", u.loss},
                    {"grad_norm", u.taken ? Json(u.grad_norm) : Json()},
                    {"ratio_mean", u.ratio_mean},
                    {"ratio_max", u.ratio_max},
                    {"clip_fraction", u.clip_fraction},
                    {"approx_kl", u.approx_kl}});
    if (u.spike) list.back()["spike"] = true;
  }
  return list;
}

}  // namespace

Json to_json(const StepMetrics& m) {
  Json json = {{"loss", m.loss},
               {"grad_norm", m.grad_norm},
               {"learning_rate", m.learning_rate},
               {"entropy", m.entropy},
               {"mismatch_kl", m.mismatch_kl},
               {"clip_fraction", m.clip_fraction},
               {"kl", m.kl},
               {"correction_mean", m.correction_mean},
               {"dropped_fraction", m.dropped_fraction},
               {"ratio_mean", m.ratio_mean},
               {"ratio_max", m.ratio_max},
               {"trained_tokens", m.trained_tokens},
               {"sample_tokens", m.sample_tokens},
               {"tree_tokens", m.tree_tokens},
               {"max_abs_logprob_diff", m.max_abs_logprob_diff},
               {"compared_tokens", m.compared_tokens}};
  if (m.routes_taken > 0) {
    json["routes_taken"] = m.routes_taken;
    json["routes_changed"] = static_cast<double>(m.routes_changed) / static_cast<double>(m.routes_taken);
  }
  if (m.kept_of > 0) {
    json["truncated_share"] = static_cast<double>(m.truncated) / static_cast<double>(m.kept_of);
    if (m.truncated > 0) json["kept_tokens"] = static_cast<double>(m.kept) / static_cast<double>(m.truncated);
  }
  if (m.skipped_spikes > 0) json["skipped_spikes"] = m.skipped_spikes;
  if (!m.of_loss.empty()) json["loss_metrics"] = m.of_loss;
  if (!m.parts.empty()) json["algorithms"] = m.parts;
  if (m.updates.empty()) return json;
  json["updates"] = list_of(m.updates);
  json["stopped_by_kl"] = !m.updates.back().taken;
  return json;
}

}  // namespace tandem::trainer
