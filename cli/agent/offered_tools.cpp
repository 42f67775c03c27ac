#include "cli/agent/offered_tools.h"

#include <algorithm>

#include "envs/tools/tool.h"

namespace tandem::cli {

void add_tools_option(CLI::App& command, std::vector<std::string>& names) {
  command
      .add_option("--tools", names,
                  "Offer these tools and no others, names with commas between them; `tandem tools list` has them all")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAME,...");
}

Result<std::vector<std::string>> offered_tools(const std::vector<std::string>& names, bool has_encoder,
                                               std::vector<std::string> usual) {
  if (names.empty()) return usual;
  const auto search = has_encoder ? envs::WithSearch::kYes : envs::WithSearch::kNo;
  auto chosen = envs::choose_tools(names, search);
  if (!chosen) return fail(std::move(chosen).error().at("--tools"));
  if (has_encoder && std::find(chosen->begin(), chosen->end(), envs::kSearchTool) == chosen->end()) {
    return fail(Status::invalid("--encoder is for codebase_search, which --tools does not name"));
  }
  return chosen;
}

}  // namespace tandem::cli
