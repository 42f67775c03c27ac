#include "serve/keys.h"

#include <gmock/gmock.h>

#include <fstream>

#include "serve/access.h"
#include "serve/rules.h"
#include "tests/envs/scratch.h"

namespace tandem::serve {
namespace {

using testing::HasSubstr;

class KeyBook : public testing::Test {
 protected:
  fs::path write(const std::string& text) {
    const fs::path path = folder_.path / "keys.yaml";
    std::ofstream(path) << text;
    return path;
  }
  std::string mistake(const std::string& text) {
    const auto keys = Keys::read_book(write(text));
    return keys ? "" : keys.error().to_string();
  }
  static wire::HttpRequest with_key(const std::string& key) {
    wire::HttpRequest request;
    request.headers.emplace("authorization", "Bearer " + key);
    return request;
  }
  envs::Scratch folder_;
};

// sha256 of "abc", of FIPS 180-2.
constexpr auto kAbc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

TEST_F(KeyBook, has_keys_by_their_sha256_with_what_they_may) {
  auto keys = *Keys::read_book(write(std::string("editor:\n  sha256: ") + kAbc +
                                     "\n  priority: agent\n  tokens_per_minute: 1e6\n  models: [coder]\n"));
  const auto terms = keys.terms_of(with_key("abc"));
  ASSERT_TRUE(terms);
  EXPECT_EQ(terms->name, "editor");
  EXPECT_EQ(terms->highest, Priority::kAgent);
  EXPECT_EQ(terms->tokens_per_minute, 1e6);
  EXPECT_EQ(terms->requests_per_minute, 0);
  EXPECT_FALSE(terms->admin);
  EXPECT_EQ(terms->models, std::vector<std::string>{"coder"});
  wire::HttpRequest request;
  request.headers["authorization"] = "bearer abc";
  EXPECT_TRUE(keys.terms_of(request)) << "names of schemes have letters of any size";
  request.headers["authorization"] = "Basic abc";
  EXPECT_FALSE(keys.terms_of(request));
  EXPECT_FALSE(keys.terms_of(with_key("abcd")));
  EXPECT_FALSE(keys.terms_of(with_key("")));
  EXPECT_FALSE(keys.terms_of({}));
}

TEST_F(KeyBook, its_mistakes_are_named_with_their_lines) {
  EXPECT_THAT(mistake("editor:\n  sha256: 12\n"), HasSubstr("editor.sha256 must have 64 hexadecimal digits"));
  EXPECT_THAT(mistake("editor:\n  sha265: 12\n"), HasSubstr("sha256"));
  EXPECT_THAT(mistake(std::string("a:\n  sha256: ") + kAbc + "\nb:\n  sha256: " + kAbc + "\n"),
              HasSubstr("a and b are one key"));
  EXPECT_THAT(mistake("a b:\n  sha256: 12\n"), HasSubstr("keys.yaml:1"));
  EXPECT_THAT(mistake("- a\n"), HasSubstr("a name for each key"));
  EXPECT_THAT(mistake(std::string("a:\n  sha256: ") + kAbc + "\n  priority: first\n"), HasSubstr("keys.yaml:3"));
  EXPECT_NE(mistake(""), "");
  EXPECT_NE(mistake("a: [\n"), "");
}

TEST_F(KeyBook, that_is_broken_leaves_the_keys_as_they_are) {
  auto keys = *Keys::read_book(write(std::string("editor:\n  sha256: ") + kAbc + "\n"));
  write("editor: [\n");
  EXPECT_FALSE(keys.refresh(true));
  EXPECT_TRUE(keys.terms_of(with_key("abc")));
  write(std::string("other:\n  sha256: ") + kAbc + "\n  admin: true\n");
  EXPECT_TRUE(*keys.refresh(true));
  EXPECT_EQ(keys.terms_of(with_key("abc"))->name, "other");
  EXPECT_TRUE(keys.has_admin());
}

TEST_F(KeyBook, a_new_key_is_the_one_of_its_entry) {
  const NewKey key = make_key();
  EXPECT_EQ(key.text.size(), 43u);
  EXPECT_NE(make_key().text, key.text);
  const auto keys = *Keys::read_book(write("new:\n  sha256: " + key.sha256 + "\n"));
  EXPECT_TRUE(keys.terms_of(with_key(key.text)));
}

TEST(Rules, concern_what_they_are_about_and_never_raise_a_class) {
  Rules rules;
  const std::vector<std::string> names = {"coder", "coder-latest"};
  const RuleSubject one{.key = "k", .session = "s", .models = names, .priority = Priority::kAgent};
  EXPECT_EQ(rules.refusing(one), nullptr);
  rules.set({.of = RuleOf::kModel, .name = "coder-latest", .action = RuleAction::kLower, .to = Priority::kBatch});
  EXPECT_EQ(rules.priority_of(one), Priority::kBatch);
  rules.set(
      {.of = RuleOf::kModel, .name = "coder-latest", .action = RuleAction::kLower, .to = Priority::kAutocomplete});
  EXPECT_EQ(rules.all().size(), 1u) << "in place of the first";
  EXPECT_EQ(rules.priority_of(one), Priority::kAgent);
  for (const auto& [of, name] : {std::pair(RuleOf::kKey, "k"), {RuleOf::kSession, "s"}, {RuleOf::kClass, "agent"}}) {
    rules.set({.of = of, .name = name, .action = RuleAction::kDrain});
    EXPECT_NE(rules.refusing(one), nullptr) << name;
    EXPECT_EQ(rules.refusing({.key = "x", .session = "y", .priority = Priority::kBatch}), nullptr);
    EXPECT_TRUE(rules.remove(of, name));
    EXPECT_FALSE(rules.remove(of, name));
  }
  EXPECT_EQ(rules.refusing(one), nullptr);
}

TEST_F(KeyBook, only_a_front_door_names_its_callers) {
  const fs::path front = folder_.path / "front", others = folder_.path / "others";
  std::ofstream(front) << "the-door\n";
  std::ofstream(others) << "the-door\nanother\n";
  const SystemClock clock;
  const auto access = Access::open({.key_file = others, .front_key_file = front}, clock);
  ASSERT_TRUE(access) << access.error().to_string();
  auto request = with_key("the-door");
  request.headers.emplace("x-tandem-caller", "editor");
  EXPECT_EQ((*access)->caller(request)->name, "editor");
  EXPECT_TRUE((*access)->may_have_key("editor"));
  request = with_key("another");
  request.headers.emplace("x-tandem-caller", "editor");
  EXPECT_EQ((*access)->caller(request)->name, "key 2");
  EXPECT_EQ((*access)->caller(with_key("the-door"))->name, "key 1");
}

}  // namespace
}  // namespace tandem::serve
