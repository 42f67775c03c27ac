// Names of an algorithm's enum values, as configs write them.
//
// Thread safety: constants.
#pragma once

#include <fmt/format.h>

#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "trainer/learn/algorithm.h"

namespace tandem::trainer {

template <typename Enum, size_t N>
struct Names {
  std::array<std::pair<std::string_view, Enum>, N> entries;

  std::string_view name_of(Enum value) const {
    for (const auto& [name, entry] : entries) {
      if (entry == value) return name;
    }
    return "";
  }
  Result<Enum> find(std::string_view what, std::string_view wanted) const {
    std::vector<std::string_view> names;
    for (const auto& [name, entry] : entries) {
      if (name == wanted) return entry;
      names.push_back(name);
    }
    return fail(Status::invalid(fmt::format("{} \"{}\" is not known{}", what, wanted, did_you_mean(wanted, names))));
  }
};

inline constexpr Names<Aggregation, 4> kAggregations{{{{"token_mean", Aggregation::kTokenMean},
                                                       {"seq_mean_token_mean", Aggregation::kSeqMeanTokenMean},
                                                       {"seq_mean_token_sum", Aggregation::kSeqMeanTokenSum},
                                                       {"sum_over_length", Aggregation::kSumOverLength}}}};
inline constexpr Names<Correction::Kind, 4> kCorrections{{{{"none", Correction::Kind::kNone},
                                                           {"tis", Correction::Kind::kTis},
                                                           {"mis", Correction::Kind::kMis},
                                                           {"icepop", Correction::Kind::kIcePop}}}};
inline constexpr Names<bool, 2> kLevels{{{{"token", false}, {"sequence", true}}}};
inline constexpr Names<Kl::Estimator, 4> kEstimators{{{{"none", Kl::Estimator::kNone},
                                                       {"k1", Kl::Estimator::kK1},
                                                       {"k2", Kl::Estimator::kK2},
                                                       {"k3", Kl::Estimator::kK3}}}};

}  // namespace tandem::trainer
