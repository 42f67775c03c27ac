#include "envs/search/code_searcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/text.h"
#include "envs/tools/functions.h"
#include "envs/tools/output.h"

namespace tandem::envs {
namespace {

constexpr size_t kMostResults = 10;
constexpr size_t kAnswerBytes = 12'000;        // of results that are shown with their lines
constexpr size_t kMostRemembered = 20'000;     // vectors, of each generation
constexpr int kCodeSearcherMostRounds = 1000;  // of answers within kMostContent
constexpr size_t kLongestQuery = 4000;         // bytes

// A folder as a model names it, relative to the workspace; nothing where it leads out.
std::optional<std::string> folder_of(std::string_view named, std::string_view shown_root) {
  if (named == shown_root) return "";
  if (named.starts_with(shown_root) && named[shown_root.size()] == '/') named.remove_prefix(shown_root.size() + 1);
  if (named.starts_with('/')) return std::nullopt;
  std::vector<std::string> names;
  for (const auto name : split(named, '/')) {
    if (name == "..") return std::nullopt;
    if (!name.empty() && name != ".") names.emplace_back(name);
  }
  return join(names, "/");
}

// What to say of a folder in which nothing is searched.
std::string nothing_in(const std::string& folder, const CodeIndex& view) {
  std::set<std::string> folders;
  for (const auto& source : view.known()) {
    for (size_t at = source.path.find('/'); at != std::string::npos; at = source.path.find('/', at + 1))
      folders.insert(source.path.substr(0, at));
  }
  const std::vector<std::string_view> names(folders.begin(), folders.end());
  const auto near = nearest(folder, names);
  return fmt::format("there is nothing to search in \"{}\"{}", folder,
                     near.empty() ? "; leave target_directories empty to search everything"
                                  : fmt::format("; did you mean \"{}\"?", near));
}

std::string numbered_lines(std::string_view text, uint64_t first) {
  auto lines = split(text, '\n');
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  std::string result;
  for (const auto line : lines) result += numbered(first++, line);
  return result;
}

// Results with their lines as long as there is room, then the first line of each.
std::string shown_hits(const std::vector<SearchHit>& hits, const std::vector<std::string>& texts, size_t room) {
  std::string text;
  bool short_now = false;
  for (size_t i = 0; i < hits.size(); ++i) {
    const auto& hit = hits[i];
    const auto head = fmt::format("{}:{}-{} (score {:.4f})\n", hit.path, hit.first_line, hit.last_line, hit.score);
    const auto lines = numbered_lines(texts[i], hit.first_line);
    short_now = short_now || text.size() + head.size() + lines.size() > room;
    if (!text.empty()) text += '\n';
    text += head;
    if (!short_now) {
      text += lines;
    } else {
      const auto end = lines.find('\n');
      text += lines.substr(0, end == std::string::npos ? lines.size() : end + 1);
    }
  }
  return text;
}

}  // namespace

Result<IndexModel> index_model_of(const fs::path& encoder) {
  const auto config = TRY(model::read_encoder_config(encoder));
  return IndexModel{.id = TRY(model::TextEncoder::identity(encoder)), .width = config.width};
}

Result<std::unique_ptr<CodeSearcher>> CodeSearcher::load(const fs::path& encoder, int threads) {
  const auto model = TRY(index_model_of(encoder));
  auto stream = TRY(kernels::Stream::cpu(threads));
  auto loaded = TRY(model::TextEncoder::load(encoder, stream));
  return std::unique_ptr<CodeSearcher>(new CodeSearcher(model, std::move(loaded), std::move(stream)));
}

const float* CodeSearcher::remembered(const Digest& digest) const {
  for (const auto* vectors : {&recent_, &older_}) {
    const auto found = vectors->find(digest.low);
    if (found != vectors->end() && found->second.first == digest) return found->second.second.data();
  }
  return nullptr;
}

void CodeSearcher::remember(const Digest& digest, const float* vector) {
  if (recent_.size() >= kMostRemembered) {
    older_ = std::move(recent_);
    recent_.clear();
  }
  recent_[digest.low] = {digest, std::vector<float>(vector, vector + model_.width)};
}

Result<std::vector<float>> CodeSearcher::embed(std::span<const std::string> texts) {
  std::lock_guard lock(mutex_);
  return encoder_.embed(stream_, texts);
}

Result<size_t> CodeSearcher::update(CodeIndex& view, const SourceAccess& access, size_t most) {
  size_t embedded = 0;
  for (int round = 0; round < kCodeSearcherMostRounds; ++round) {
    auto changes = TRY(access.changes(view.known()));
    const bool more = changes.more;
    view.apply(std::move(changes));
    if (view.waiting() > 0) {
      std::lock_guard lock(mutex_);
      embedded += TRY(
          view.embed({.embed = [this](std::span<const std::string> texts) { return encoder_.embed(stream_, texts); },
                      .find = [this](const Digest& piece) { return vectors_ ? vectors_->find(piece) : nullptr; },
                      .recall = [this](const Digest& piece) { return remembered(piece); },
                      .keep =
                          [this](const Digest& piece, const float* vector) {
                            ++computed_;
                            remember(piece, vector);
                          },
                      .most = most - embedded}));
    }
    if (!more) break;
  }
  return embedded;
}

Result<std::vector<SearchHit>> CodeSearcher::search(const CodeIndex& view, const std::string& query,
                                                    std::span<const std::string> folders, size_t limit) {
  const auto vector = TRY(embed(std::span(&query, 1)));
  return view.search(vector, query_words(query), folders, limit);
}

Result<ToolOutcome> CodeSearcher::answer(CodeIndex& view, const SourceAccess& access, const ToolContext& context,
                                         const Json& arguments) {
  const auto query = std::string(trim(arguments.at("query").get_ref<const std::string&>()));
  if (query.empty()) return ToolOutcome::refused("the query is empty; ask in words what you are looking for");
  if (query.size() > kLongestQuery)
    return ToolOutcome::refused(fmt::format("the query is longer than {} bytes; ask one question", kLongestQuery));
  std::vector<std::string> folders;
  for (const auto& named : arguments.value("target_directories", Json::array())) {
    const auto folder = folder_of(named.get_ref<const std::string&>(), context.shown_root);
    if (!folder) {
      return ToolOutcome::refused(fmt::format("\"{}\" is outside of the workspace; name a folder in it, such as src",
                                              named.get<std::string>()));
    }
    if (!folder->empty()) folders.push_back(*folder);
  }
  TRY(update(view, access));
  const auto known = view.known();
  for (const auto& folder : folders) {
    const bool searched = std::any_of(known.begin(), known.end(), [&](const KnownSource& source) {
      return source.left_out == LeftOut::kNot && lies_in(source.path, folder);
    });
    if (!searched) return ToolOutcome::refused(nothing_in(folder, view));
  }
  const auto hits = TRY(search(view, query, folders, kMostResults));
  if (hits.empty()) return ToolOutcome::done(fmt::format("Nothing was found for \"{}\".", query));
  std::vector<SourceLines> wanted;
  for (const auto& hit : hits) wanted.push_back({hit.path, hit.first_line, hit.last_line});
  const auto texts = TRY(access.lines(wanted));
  if (texts.size() != hits.size()) return fail(Status::unavailable("the sandbox did not answer what it was asked"));
  // The list of all results is worth more than all lines of the first: some room is for those that are not shown.
  const size_t room = std::min(kAnswerBytes, context.output_limit - std::min(context.output_limit / 3, size_t{2000}));
  auto text = shown_hits(hits, texts, room);
  if (view.waiting() > 0) {
    text += fmt::format("\n{} of {} pieces of code were compared by their words alone; search again to compare more.\n",
                        view.waiting(), view.chunks());
  }
  return ToolOutcome::done(std::move(text));
}

}  // namespace tandem::envs
