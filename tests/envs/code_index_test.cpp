// The index of a folder: what is embedded and what is kept, what is found, and what lies on disk.
#include "envs/search/code_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "envs/search/index_file.h"
#include "envs/search/shared_form.h"
#include "tests/envs/scratch.h"

namespace tandem::envs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr int kWidth = 8;
const IndexModel kModel{{1, 2}, kWidth};

// An encoder that knows four words: a text's vector has a place for each.
std::vector<float> vector_of(const std::string& text) {
  std::vector<float> vector(kWidth, 0);
  const char* words[] = {"apple", "banana", "cherry", "date"};
  for (int i = 0; i < 4; ++i) vector[i] = text.find(words[i]) != std::string::npos ? 1 : 0;
  vector[7] = 0.1f;
  return vector;
}

class CodeIndexTest : public testing::Test {
 protected:
  void look() {
    for (bool more = true; more;) {
      auto changes = changes_of_sources(scratch_.path, index_.known());
      more = changes->more;
      const auto applied = index_.apply(std::move(*changes));
      changed_.insert(changed_.end(), applied.changed.begin(), applied.changed.end());
    }
  }
  size_t embed(size_t most = SIZE_MAX) {
    texts_.clear();
    const auto count = index_.embed({.embed = [this](std::span<const std::string> texts) -> Result<std::vector<float>> {
                                       std::vector<float> vectors;
                                       for (const auto& text : texts) {
                                         texts_.push_back(text);
                                         const auto vector = vector_of(text);
                                         vectors.insert(vectors.end(), vector.begin(), vector.end());
                                       }
                                       return vectors;
                                     },
                                     .most = most});
    EXPECT_TRUE(count.has_value());
    return count.value_or(0);
  }
  size_t update() {
    look();
    return embed();
  }
  std::vector<std::string> found(const std::string& query, const std::vector<std::string>& folders = {}) {
    std::vector<std::string> paths;
    for (const auto& hit : index_.search(vector_of(query), query_words(query), folders, 10)) paths.push_back(hit.path);
    return paths;
  }

  Scratch scratch_;
  CodeIndex index_{kWidth};
  std::vector<std::string> texts_, changed_;
};

std::string function(const std::string& name, const std::string& word) {
  std::string text = "def " + name + "():\n";
  for (int i = 0; i < 30; ++i) text += "    use(" + word + ", " + std::to_string(i) + ")\n";
  return text + "\n";
}

TEST_F(CodeIndexTest, an_unchanged_folder_embeds_nothing_and_an_edit_its_pieces_alone) {
  scratch_.put("a.py", function("f", "apple") + function("g", "banana") + function("h", "cherry"));
  scratch_.put("b.py", function("i", "date"));
  EXPECT_EQ(update(), 4u);
  EXPECT_EQ(update(), 0u);
  scratch_.put("a.py", "import os\n\n" + function("f", "apple") + function("g", "cherry") + function("h", "cherry"));
  EXPECT_LE(update(), 2u);  // the import joins its neighbour
  EXPECT_THAT(texts_, testing::Contains(HasSubstr("def g():\n    use(cherry")));
  EXPECT_THAT(texts_, Not(testing::Contains(HasSubstr("def h()"))));
  fs::remove(scratch_.path / "b.py");
  EXPECT_EQ(update(), 0u);
  EXPECT_EQ(index_.files(), 1u);
  EXPECT_EQ(index_.waiting(), 0u);
}

TEST_F(CodeIndexTest, ranks_by_meaning_and_words_joined_and_within_folders) {
  scratch_.put("src/a.py", "apple pie\n");
  scratch_.put("src/b.py", "banana bread with frobnicate\n");
  scratch_.put("doc/c.md", "cherry\n");
  update();
  EXPECT_EQ(found("apple")[0], "src/a.py");
  EXPECT_EQ(found("frobnicate")[0], "src/b.py");  // no vector knows the word
  EXPECT_THAT(found("cherry", {"src"}), Not(testing::Contains("doc/c.md")));
  EXPECT_THAT(found("apple", {"doc"}), ElementsAre("doc/c.md"));
  EXPECT_THAT(found("apple", {"src/b.py"}), ElementsAre("src/b.py"));
  EXPECT_TRUE(lies_in("src/a.py", "src") && !lies_in("src2/a.py", "src"));
}

TEST_F(CodeIndexTest, pieces_that_wait_are_found_by_their_words) {
  scratch_.put("a.py", "apple\n");
  scratch_.put("b.py", "banana\n");
  look();
  EXPECT_EQ(embed(1), 1u);
  EXPECT_EQ(index_.waiting(), 1u);
  EXPECT_EQ(found("banana")[0], "b.py");
  EXPECT_EQ(embed(), 1u);
  EXPECT_EQ(index_.waiting(), 0u);
}

TEST_F(CodeIndexTest, a_copy_goes_its_own_way) {
  scratch_.put("a.py", "apple\n");
  update();
  CodeIndex copy = index_;
  scratch_.put("a.py", "banana\n");
  update();
  EXPECT_EQ(found("banana")[0], "a.py");
  EXPECT_EQ(copy.search({}, query_words("banana"), {}, 10).size(), 0u);
  EXPECT_EQ(copy.search({}, query_words("apple"), {}, 10).size(), 1u);
}

TEST_F(CodeIndexTest, comes_back_from_disk_with_everything_that_a_search_needs) {
  scratch_.put("a.py", function("f", "apple") + function("g", "banana"));
  scratch_.put("b.py", "cherry\n");
  scratch_.put("c.bin", std::string("\0", 1));
  Scratch elsewhere;
  const auto path = elsewhere.path / "deep" / "index";
  auto file = IndexFile::open(path, kModel, index_);
  ASSERT_TRUE(file.has_value()) << file.error().to_string();
  update();
  for (const auto& name : changed_) ASSERT_TRUE(file->save(index_, name));
  ASSERT_TRUE(file->finish(index_));
  auto back = read_index(path, kModel);
  ASSERT_TRUE(back.has_value()) << back.error().to_string();
  EXPECT_EQ(back->known(), index_.known());
  EXPECT_EQ(back->tree().root(), index_.tree().root());
  const auto query = query_words("banana");
  const auto hits = back->search(vector_of("banana"), query, {}, 3),
             expected = index_.search(vector_of("banana"), query, {}, 3);
  ASSERT_EQ(hits.size(), expected.size());
  for (size_t i = 0; i < hits.size(); ++i) EXPECT_EQ(hits[i].score, expected[i].score);
  // It goes on from there.
  index_ = std::move(*back);
  EXPECT_EQ(update(), 0u);
}

TEST_F(CodeIndexTest, an_index_of_another_model_or_a_damaged_one_is_refused_and_a_torn_end_is_not) {
  Scratch elsewhere;
  const auto path = elsewhere.path / "index";
  {
    auto file = IndexFile::open(path, kModel, index_);
    scratch_.put("a.py", "apple\n");
    scratch_.put("b.py", "banana\n");
    update();
    for (const auto& name : changed_) ASSERT_TRUE(file->save(index_, name));
    ASSERT_TRUE(file->finish(index_));
    CodeIndex second(kWidth);
    EXPECT_THAT(IndexFile::open(path, kModel, second).error().message(), HasSubstr("another process is writing it"));
  }
  const auto other = read_index(path, {{3, 4}, kWidth});
  ASSERT_FALSE(other.has_value());
  EXPECT_EQ(other.error().code(), Code::kInvalid);
  EXPECT_THAT(other.error().to_string(), HasSubstr("another model"));
  EXPECT_THAT(other.error().to_string(), HasSubstr("--rebuild"));
  EXPECT_EQ(read_index(elsewhere.path / "none", kModel).error().code(), Code::kNotFound);

  const auto whole = *read_file(path);
  ASSERT_TRUE(write_file(path, std::string_view(whole).substr(0, whole.size() - 3)));
  CodeIndex torn(kWidth);
  EXPECT_TRUE(IndexFile::open(path, kModel, torn).has_value());
  EXPECT_EQ(torn.known().size(), 1u);

  auto damaged = whole;
  damaged[150] ^= 1;
  ASSERT_TRUE(write_file(path, damaged));
  const auto read = read_index(path, kModel);
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().code(), Code::kInvalid) << read.error().to_string();
  EXPECT_THAT(read.error().to_string(), HasSubstr("damaged"));
}

TEST_F(CodeIndexTest, an_index_of_many_updates_does_not_grow_without_end) {
  Scratch elsewhere;
  const auto path = elsewhere.path / "index";
  auto file = IndexFile::open(path, kModel, index_);
  for (int i = 0; i < 40; ++i) {
    changed_.clear();
    std::string text;
    for (int k = 0; k < 120; ++k) text += function("f" + std::to_string(i) + "_" + std::to_string(k), "apple");
    scratch_.put("a.py", text);
    update();
    for (const auto& name : changed_) ASSERT_TRUE(file->save(index_, name));
    ASSERT_TRUE(file->finish(index_));
  }
  EXPECT_LT(fs::file_size(path), 2'000'000u);
  EXPECT_EQ(read_index(path, kModel)->known(), index_.known());
}

TEST_F(CodeIndexTest, the_shared_form_holds_no_path_and_no_text_and_gives_its_vectors_to_who_has_the_key) {
  scratch_.put("internal/payroll_secrets.py", function("compute_salary", "apple"));
  scratch_.put("b.py", "banana\n");
  update();
  const auto key = ShareKey::draw();
  const auto bytes = SharedForm::of(index_, kModel, key).encode();
  // Neither paths and texts nor their hashes, with which a guess could be tried.
  for (const char* word :
       {"internal", "payroll", "secrets", "compute_salary", "apple", "banana", "b.py", "def ", "use("})
    EXPECT_EQ(bytes.find(word), std::string::npos) << word;
  for (const auto& source : index_.known()) {
    EXPECT_EQ(bytes.find(std::string(reinterpret_cast<const char*>(&source.digest.low), 8)), std::string::npos);
    for (const auto& chunk : index_.file(source.path)->chunks)
      EXPECT_EQ(bytes.find(std::string(reinterpret_cast<const char*>(&chunk.text.low), 8)), std::string::npos);
  }
  EXPECT_LE(bytes.size(), 100 + index_.chunks() * (32 + kWidth * sizeof(float)));

  auto shared = SharedForm::decode(bytes, kModel);
  ASSERT_TRUE(shared.has_value()) << shared.error().to_string();
  CodeIndex other(kWidth);
  other.apply(*changes_of_sources(scratch_.path, {}));
  const auto none = [](std::span<const std::string>) -> Result<std::vector<float>> {
    return fail(Status::internal(""));
  };
  EXPECT_EQ(
      *other.embed({.embed = none, .find = [&](const Digest& piece) { return shared->find(key.name_of(piece)); }}), 0u);
  EXPECT_EQ(other.waiting(), 0u);
  EXPECT_EQ(shared->find(ShareKey::draw().name_of(index_.file("b.py")->chunks[0].text)), nullptr);

  EXPECT_THAT(SharedForm::decode(bytes, {{9, 9}, kWidth}).error().message(), HasSubstr("another model"));
  auto damaged = bytes;
  damaged[bytes.size() / 2] ^= 1;
  EXPECT_EQ(SharedForm::decode(damaged, kModel).error().code(), Code::kCorrupt);
}

TEST(ShareKey, is_written_once_for_its_owner_alone) {
  Scratch scratch;
  const auto path = scratch.path / "key";
  const auto key = ShareKey::draw();
  ASSERT_TRUE(key.write(path));
  EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(ShareKey::read(path)->name_of({1, 2}), key.name_of({1, 2}));
  EXPECT_EQ(key.write(path).code(), Code::kExists);
  scratch.put("bad", "abc\n");
  EXPECT_THAT(ShareKey::read(scratch.path / "bad").error().message(), HasSubstr("64 hexadecimal digits"));
}

}  // namespace
}  // namespace tandem::envs
