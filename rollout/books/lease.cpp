#include "rollout/books/lease.h"

namespace tandem::rollout {

void write_lease(const LeaseTerms& terms, wire::Lease::Builder out) {
  out.setEpisode(terms.key.episode);
  out.setAttempt(terms.key.attempt);
  out.setGroup(terms.group);
  out.setKind(terms.kind);
  out.setSplit(terms.split);
  out.setTaskSeed(terms.task_seed);
  out.setSampleSeed(terms.sample_seed);
  out.setTemperature(terms.temperature);
  out.setMinVersion(terms.min_version);
  out.setMaxVersion(terms.max_version);
}

LeaseTerms read_lease(wire::Lease::Reader in) {
  LeaseTerms terms;
  terms.key = {in.getEpisode(), in.getAttempt()};
  terms.group = in.getGroup();
  terms.kind = in.getKind();
  terms.split = in.getSplit();
  terms.task_seed = in.getTaskSeed();
  terms.sample_seed = in.getSampleSeed();
  terms.temperature = in.getTemperature();
  terms.min_version = in.getMinVersion();
  terms.max_version = in.getMaxVersion();
  return terms;
}

}  // namespace tandem::rollout
