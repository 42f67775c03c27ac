#include "model/same_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/tokenizer.h"

namespace tandem::model {

Status check_same_tokenizer(const fs::path& other, const fs::path& model, std::string_view what) {
  constexpr const char* kFile = "tokenizer.json";
  const auto theirs = read_file(other / kFile), ours = read_file(model / kFile);
  if (theirs && ours && *theirs == *ours) return {};
  const auto of_other = TRY(Tokenizer::load(other)), of_model = TRY(Tokenizer::load(model));
  for (int id = 0; id < std::max(of_other.size(), of_model.size()); ++id) {
    if (of_other.name_of(id) == of_model.name_of(id)) continue;
    return Status::invalid(fmt::format("the {} {} has another tokenizer than the model {}: token {} is \"{}\" of {} in "
                                       "the {}'s, \"{}\" of {} in the model's",
                                       what, other.string(), model.string(), id, of_other.name_of(id), of_other.size(),
                                       what, of_model.name_of(id), of_model.size()))
        .hint(fmt::format("a {} has the tokenizer of the model; models of one family often share it", what));
  }
  return {};
}

}  // namespace tandem::model
