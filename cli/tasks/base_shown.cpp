#include "cli/tasks/base_shown.h"

#include <fmt/format.h>

#include "base/text.h"

namespace tandem::cli {
std::optional<envs::BaseTree> unpacked(const envs::TaskBase& base) {
  if (base.tree) return base.tree;
  if (!envs::is_prepared(base)) return std::nullopt;
  auto tree = envs::prepare_base(base);
  return tree ? std::optional(std::move(*tree)) : std::nullopt;
}

namespace {

const char* kind_of(const envs::TaskBase& base) {
  switch (base.kind) {
    case envs::TaskBase::Kind::kFolder:
      return "folder";
    case envs::TaskBase::Kind::kArchive:
      return "archive";
    case envs::TaskBase::Kind::kGit:
      return "git";
  }
  return "";
}

}  // namespace

Json json_of(const std::optional<envs::TaskBase>& base) {
  if (!base) return {};
  const auto tree = unpacked(*base);
  return {{"kind", kind_of(*base)},
          {"source", base->source.string()},
          {"commit", base->commit.empty() ? Json() : Json(base->commit)},
          {"digest", base->digest},
          {"files", tree ? Json(tree->files) : Json()},
          {"bytes", tree ? Json(tree->bytes) : Json()}};
}

std::string words_of(const envs::TaskBase& base) {
  const auto what = base.kind == envs::TaskBase::Kind::kGit
                        ? fmt::format("the commit {} of {}", base.commit, base.source.string())
                        : fmt::format("the {} {}", kind_of(base), base.source.string());
  const auto tree = unpacked(base);
  if (!tree) return what + " (not unpacked here yet)";
  return what + fmt::format(" ({} files, {})", tree->files, format_bytes(tree->bytes));
}

}  // namespace tandem::cli
