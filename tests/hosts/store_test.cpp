#include "hosts/store.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "hosts/bundle.h"
#include "run/layout.h"
#include "tests/run/temporary_run.h"

namespace tandem::hosts {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class StoreTest : public run::TemporaryRun {
 protected:
  Store open(uint64_t most = 1 << 20) {
    auto store = Store::open(root() / "store", most);
    EXPECT_TRUE(store) << store.error().to_string();
    return std::move(*store);
  }
  static HomeFile file(const std::string& path, const std::string& content, bool is_executable = false) {
    return {.path = path,
            .digest = digest_of(std::string_view(content)),
            .bytes = content.size(),
            .is_executable = is_executable};
  }
  static std::span<const std::byte> bytes(const std::string& text) { return std::as_bytes(std::span(text)); }
  size_t kept() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(root() / "store" / "files"), {}));
  }
};

TEST_F(StoreTest, files_come_once_and_are_in_the_home_of_every_later_run) {
  Store store = open();
  ASSERT_TRUE(store.make_home(7));
  const auto layout = run::RunLayout::open(store.home());
  ASSERT_TRUE(layout) << layout.error().to_string();
  EXPECT_EQ(layout->run_id(), 7u);
  EXPECT_EQ(layout->socket_folder(), store.home() / "sockets");
  const std::vector<HomeFile> files = {file("model/a", "first"), file("model/run.sh", "first", true),
                                       file("model/empty", "")};
  ASSERT_THAT(*store.offer(files), ElementsAre(0)) << "equal bytes come once, and none need not come";
  EXPECT_EQ(*store.add({files[0].digest, 0}, bytes("fir")), 3u);
  EXPECT_FALSE(fs::exists(store.home() / "model/a")) << "it is not whole";
  EXPECT_EQ(*store.add({files[0].digest, 3}, bytes("st")), 5u);
  EXPECT_EQ(*read_file(store.home() / "model/a"), "first");
  EXPECT_EQ(*read_file(store.home() / "model/empty"), "");
  struct stat info {};
  ASSERT_EQ(::stat((store.home() / "model/run.sh").c_str(), &info), 0);
  EXPECT_NE(info.st_mode & S_IXUSR, 0u);

  const fs::path former = store.home();
  ASSERT_TRUE(store.make_home(8));
  EXPECT_FALSE(fs::exists(former)) << store.home();
  EXPECT_THAT(*store.offer(files), IsEmpty());
  EXPECT_EQ(*read_file(store.home() / "model/a"), "first");
}

TEST_F(StoreTest, bytes_of_another_digest_are_refused_and_may_come_again) {
  Store store = open();
  ASSERT_TRUE(store.make_home(7));
  const HomeFile wanted = file("a", "right");
  ASSERT_TRUE(store.offer({wanted}));
  EXPECT_EQ(store.add({wanted.digest, 1}, bytes("r")).error().code(), Code::kInvalid) << "it does not begin there";
  EXPECT_EQ(store.add({wanted.digest, 0}, bytes("rights")).error().code(), Code::kInvalid) << "it is too long";
  EXPECT_EQ(store.add({wanted.digest, 0}, bytes("wrong")).error().code(), Code::kCorrupt);
  EXPECT_EQ(store.add({digest_of(std::string_view("x")), 0}, bytes("x")).error().code(), Code::kInvalid);
  EXPECT_EQ(*store.add({wanted.digest, 0}, bytes("right")), 5u);
  EXPECT_EQ(*read_file(store.home() / "a"), "right");
}

TEST_F(StoreTest, the_oldest_files_go_for_new_ones_and_a_run_that_is_too_large_is_refused) {
  Store store = open(10);
  const auto fill = [&](uint64_t run, const std::string& content) {
    ASSERT_TRUE(store.make_home(run));
    const HomeFile one = file("a", content);
    const auto missing = store.offer({one});
    ASSERT_TRUE(missing) << missing.error().to_string();
    if (missing->empty()) return;
    ASSERT_TRUE(store.add({one.digest, 0}, bytes(content)));
  };
  fill(1, "123456");
  fill(2, "abc");
  EXPECT_EQ(kept(), 2u);
  fill(3, "wxyz");
  EXPECT_EQ(kept(), 2u) << "the first one had to go";
  EXPECT_FALSE(fs::exists(root() / "store" / "files" / digest_of(std::string_view("123456")).hex()));
  const auto large = store.offer({file("a", "12345678901")});
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().code(), Code::kExhausted);
  EXPECT_THAT(large.error().hint(), HasSubstr("--store-gb"));
}

TEST_F(StoreTest, a_link_may_not_lead_out_of_the_home) {
  Store store = open();
  ASSERT_TRUE(store.make_home(7));
  EXPECT_TRUE(store.offer({{.path = "tasks/a", .link = "../model/b"}}));
  EXPECT_EQ(fs::read_symlink(store.home() / "tasks/a"), "../model/b");
  EXPECT_FALSE(store.offer({{.path = "tasks/a", .link = "../../other"}}));
  EXPECT_FALSE(store.offer({{.path = "tasks/a", .link = "/etc/passwd"}}));
}

TEST_F(StoreTest, homes_of_hosts_that_are_gone_are_removed_and_those_of_others_stay) {
  Store store = open();
  ASSERT_TRUE(store.make_home(7));
  ASSERT_TRUE(make_directories(root() / "store" / "homes" / "tandem-left"));
  const Store other = open();
  EXPECT_TRUE(fs::exists(store.home()));
  EXPECT_FALSE(fs::exists(root() / "store" / "homes" / "tandem-left"));
  const fs::path home = store.home();
  store.remove_home();
  EXPECT_FALSE(fs::exists(home));
}

TEST_F(StoreTest, small_files_are_private) {
  Store store = open();
  ASSERT_TRUE(store.make_home(7));
  ASSERT_TRUE(store.write({.path = "sockets/run.key", .content = "secret"}));
  struct stat info {};
  ASSERT_EQ(::stat((store.home() / "sockets/run.key").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(StoreTest, a_folder_is_sent_with_its_own_links_and_without_those_that_lead_elsewhere) {
  const fs::path folder = root() / "model", elsewhere = root() / "blob";
  ASSERT_TRUE(make_directories(folder / "sub"));
  ASSERT_TRUE(write_file(elsewhere, "blob"));
  ASSERT_TRUE(write_file(folder / "sub" / "x", "x"));
  fs::create_symlink(elsewhere, folder / "weights");
  fs::create_symlink("sub/x", folder / "link");
  Bundle bundle;
  const Status added = add_folder(folder, "model", bundle);
  ASSERT_TRUE(added) << added.to_string();
  ASSERT_EQ(bundle.files.size(), 3u);
  EXPECT_EQ(bundle.files[0].path, "model/link");
  EXPECT_EQ(bundle.files[0].link, "sub/x");
  EXPECT_EQ(bundle.files[1], file("model/sub/x", "x"));
  EXPECT_EQ(bundle.files[2], file("model/weights", "blob"));
  fs::create_symlink(root(), folder / "out");
  const Status refused = add_folder(folder, "model", bundle);
  EXPECT_THAT(refused.message(), HasSubstr((folder / "out").string()));
}

}  // namespace
}  // namespace tandem::hosts
