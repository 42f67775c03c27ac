#include "envs/tools/committed_files.h"

#include <cstdlib>
#include <optional>

#include "base/file.h"
#include "base/text.h"
#include "envs/tools/functions.h"
#include "envs/tools/process.h"

namespace tandem::envs {
namespace {

// The folder below the root, "" for the root itself, whose repository a file is in; none where it is in none.
std::optional<std::string> repository_of(const fs::path& root, const std::string& file) {
  std::error_code error;
  for (fs::path folder = fs::path(file).parent_path();; folder = folder.parent_path()) {
    if (fs::exists(root / folder / ".git", error)) return folder.string();
    if (folder.empty()) return std::nullopt;
  }
}

class Git {
 public:
  Git(const ToolContext& context, fs::path repository, const fs::path& index, Time deadline)
      : program_(find_program("git")), deadline_(deadline) {
    spec_.directory = std::move(repository);
    spec_.environment = clean_environment(context);
    spec_.environment.push_back("GIT_INDEX_FILE=" + index.string());
  }

  Result<std::string> run(const std::vector<std::string>& arguments) {
    if (program_.empty()) return fail(Status::unfit("git is not installed here"));
    // The workspace may belong to another user, and its settings may name programs that are not for this.
    spec_.argv = {program_, "-c", "safe.directory=*", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"};
    spec_.argv.insert(spec_.argv.end(), arguments.begin(), arguments.end());
    spec_.time_limit_s = to_seconds(deadline_ - SystemClock().now());
    if (spec_.time_limit_s <= 0) return fail(Status::deadline("git took too long"));
    auto result = TRY(run_process(spec_));
    if (result.timed_out) return fail(Status::deadline("git took too long"));
    if (result.exit_code == 0) return std::move(result.output);
    const auto said = trim(result.output);
    return fail(
        Status::unavailable("git failed: " + std::string(said.substr(0, std::min(said.find('\n'), size_t{300})))));
  }

 private:
  const std::string program_;
  const Time deadline_;
  ProcessSpec spec_;
};

}  // namespace

CommittedFiles::~CommittedFiles() {
  std::error_code ignored;
  if (!folder_.empty()) fs::remove_all(folder_, ignored);
}

Result<CommittedFiles> CommittedFiles::write_out(const ToolContext& context, const std::set<std::string>& files,
                                                 Time deadline) {
  std::set<std::string> repositories;
  for (const auto& file : files) {
    if (auto repository = repository_of(context.root, file)) repositories.insert(std::move(*repository));
  }
  if (repositories.empty()) return fail(Status::not_found("there is no git repository"));
  std::string folder = (fs::temp_directory_path() / "tandem-committed-XXXXXX").string();
  if (!mkdtemp(folder.data())) return fail(Status::from_errno(folder, errno));
  CommittedFiles committed(folder);
  const auto index = committed.folder_ / "index";
  for (const auto& repository : repositories) {
    Git git(context, context.root / repository, index, deadline);
    if (const auto head = git.run({"rev-parse", "--verify", "--quiet", "HEAD"}); !head) {
      if (head.error().code() != Code::kUnavailable) return fail(head.error());
      return fail(Status::not_found("there is no commit yet"));
    }
    TRY(git.run({"read-tree", "HEAD"}));
    TRY(git.run({"checkout-index", "--all", "--force", "--prefix=" + (committed.root() / repository).string() + "/"}));
    std::error_code ignored;
    fs::remove(index, ignored);
  }
  return committed;
}

}  // namespace tandem::envs
