#include "envs/network/allow_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::envs {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

AllowList list_of(const std::vector<std::string>& entries) {
  auto list = AllowList::parse(entries);
  EXPECT_TRUE(list.has_value()) << list.error().to_string();
  return list.value_or(AllowList());
}

std::string mistake(const std::string& entry) {
  const auto list = AllowList::parse(std::vector{entry});
  return list ? "" : list.error().message();
}

TEST(Address, is_one_value_however_it_is_written) {
  for (const char* text : {"127.0.0.1", "127.1", "0x7f.1", "2130706433", "0177.0.0.1", "::ffff:127.0.0.1"}) {
    const auto address = parse_address(text);
    ASSERT_TRUE(address.has_value()) << text;
    EXPECT_EQ(to_string(*address), "127.0.0.1") << text;
  }
  EXPECT_EQ(to_string(*parse_address("2001:0db8:0:0::1")), "2001:db8::1");
  for (const char* text : {"", "example.org", "1.2.3.4.5", "1.2.3.4 ", "fe80::1%eth0", "[::1]", "1.2.3.256"}) {
    EXPECT_FALSE(parse_address(text).has_value()) << text;
  }
}

TEST(Address, what_is_not_of_the_open_internet_is_known) {
  for (const char* text : {"0.0.0.0",
                           "10.1.2.3",
                           "100.64.0.1",
                           "100.100.100.200",
                           "127.0.0.1",
                           "169.254.169.254",
                           "172.16.0.1",
                           "172.31.255.255",
                           "192.0.0.192",
                           "192.168.1.1",
                           "198.18.0.1",
                           "224.0.0.1",
                           "255.255.255.255",
                           "::",
                           "::1",
                           "fe80::1",
                           "fd00:ec2::254",
                           "fc00::1",
                           "ff02::1",
                           "64:ff9b::a9fe:a9fe",
                           "2002:a9fe:a9fe::1",
                           "2001::1",
                           "::ffff:169.254.169.254",
                           "::ffff:10.0.0.1",
                           "::169.254.169.254"}) {
    EXPECT_NE(why_not_public(*parse_address(text)), "") << text;
  }
  for (const char* text : {"1.1.1.1", "172.15.0.1", "172.32.0.1", "169.253.0.1", "100.128.0.1", "2606:4700::1111"}) {
    EXPECT_EQ(why_not_public(*parse_address(text)), "") << text;
  }
}

TEST(AllowList, names_hosts_and_what_lies_below_them_by_port) {
  const auto list =
      list_of({"example.org", "*.Example.net", "api.example.com:8443", "192.0.2.7:81", "[2001:db8::1]:82"});
  EXPECT_EQ(list.why_refused("example.org", 443), "");
  EXPECT_EQ(list.why_refused("EXAMPLE.org.", 80), "");
  EXPECT_EQ(list.why_refused("a.b.example.net", 80), "");
  EXPECT_EQ(list.why_refused("api.example.com", 8443), "");
  EXPECT_EQ(list.why_refused("192.0.2.7", 81), "");
  EXPECT_EQ(list.why_refused("0xc0000207", 81), "");  // the same address
  EXPECT_EQ(list.why_refused("2001:db8:0::1", 82), "");
  for (const auto& [host, port] : std::vector<std::pair<std::string, uint16_t>>{{"example.org", 22},
                                                                                {"www.example.org", 80},
                                                                                {"example.net", 80},
                                                                                {"notexample.net", 80},
                                                                                {"api.example.com", 443},
                                                                                {"example.org.evil.example", 80},
                                                                                {"192.0.2.7", 80},
                                                                                {"192.0.2.8", 81},
                                                                                {"169.254.169.254", 80}}) {
    EXPECT_NE(list.why_refused(host, port), "") << host << ":" << port;
  }
  EXPECT_EQ(list_of({"a.example"}).why_refused("b.example", 80), "not among the hosts that are open here: a.example");
  EXPECT_EQ(list.why_refused("169.254.1.1", 80), "a link-local address, where clouds serve their metadata");
  EXPECT_EQ(list.why_refused("exa mple.org", 80), "not the name of a host");
  EXPECT_NE(AllowList().why_refused("example.org", 80), "");
}

TEST(AllowList, an_address_that_a_name_leads_to_is_public_or_named) {
  const auto list = list_of({"example.org", "10.0.0.7:8080"});
  EXPECT_EQ(list.why_refused(*parse_address("1.1.1.1"), 80), "");
  EXPECT_EQ(list.why_refused(*parse_address("10.0.0.7"), 8080), "");
  EXPECT_EQ(list.why_refused(*parse_address("10.0.0.7"), 80), "10.0.0.7 is a private address");
  EXPECT_THAT(list.why_refused(*parse_address("169.254.169.254"), 80), StartsWith("169.254.169.254 is a link-local"));
  EXPECT_THAT(list.why_refused(*parse_address("::1"), 80), HasSubstr("loopback"));
}

TEST(AllowList, an_entry_that_is_none_is_named_with_what_is_wrong) {
  EXPECT_EQ(mistake("example.org:0"), "\"example.org:0\" has no port from 1 to 65535 behind its colon");
  for (const char* entry :
       {"http://example.org", "example.org/path", "*", "*.", "", "a b", "*.*.org", "-:99999", "12"}) {
    EXPECT_NE(mistake(entry), "") << entry;
  }
  for (const char* entry : {"169.254.169.254", "169.254.169.254:80", "fe80::1", "fd00:ec2::254", "[fd00:ec2::254]:80",
                            "100.100.100.200", "::ffff:169.254.169.254"}) {
    EXPECT_THAT(mistake(entry), HasSubstr("stays closed")) << entry;
  }
  EXPECT_NE(AllowList::parse(std::vector<std::string>(65, "a.example")).has_value(), true);
}

TEST(AllowList, a_task_opens_addresses_of_the_open_internet_alone) {
  EXPECT_TRUE(list_of({"example.org", "1.1.1.1:53"}).check_public());
  EXPECT_EQ(list_of({"example.org", "127.0.0.1:80"}).check_public().message(),
            "\"127.0.0.1:80\" is a loopback address, which a task cannot open; who runs it can, by env.network");
}

TEST(AllowList, two_lists_are_joined_without_saying_anything_twice) {
  const auto both = list_of({"a.example", "b.example"}).with(list_of({"b.example", "c.example"}));
  ASSERT_TRUE(both.has_value());
  EXPECT_EQ(both->entries(), (std::vector<std::string>{"a.example", "b.example", "c.example"}));
}

}  // namespace
}  // namespace tandem::envs
