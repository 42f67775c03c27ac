// Whole numbers, literals, letters, formats and orders of templates, as jinja2 3.1 and Python 3.11 have them.
#include <gtest/gtest.h>

#include "model/chat_template.h"

namespace tandem::model {
namespace {

// The text of a template, or what is wrong with it.
std::string text_of_template(std::string_view source, const Json& variables = Json::object()) {
  const auto chat_template = ChatTemplate::parse(source);
  if (!chat_template) return chat_template.error().message();
  RenderOptions options;
  options.variables = variables;
  const auto rendered = chat_template->render(*parse_json(R"([{"role":"user","content":"x"}])"), nullptr, options);
  return rendered ? rendered->text : rendered.error().message();
}

TEST(JinjaNumbers, whole_numbers_of_any_size_are_computed_with) {
  const std::pair<const char*, const char*> cases[] = {
      {"9223372036854775807 + 1", "9223372036854775808"},
      {"-(2**63)", "-9223372036854775808"},
      {"(-2)**63", "-9223372036854775808"},
      {"(-2)**63 // -1", "9223372036854775808"},
      {"2**100", "1267650600228229401496703205376"},
      {"10**25 // 7", "1428571428571428571428571"},
      {"-(10**20) // 7", "-14285714285714285715"},
      {"-(10**20) % 7", "5"},
      {"10**20 % -7", "-5"},
      {"10**20 / 3", "3.333333333333333e+19"},
      {"'12345678901234567890123'|int + 1", "12345678901234567890124"},
      {"(-(10**20))|abs", "100000000000000000000"},
      {"[10**30, 2]|sum", "1000000000000000000000000000002"},
      {"[10**30, 2, 10**19]|sort", "[2, 10000000000000000000, 1000000000000000000000000000000]"},
      {"10**20 - 10**20 + 1 == 1", "True"},
      {"2**63 == 9223372036854775808.0", "True"},
      {"2**63 + 1 == 9223372036854775808.0", "False"},
      {"9007199254740993 > 9007199254740992.0", "True"},
      {"(10**20 + 500)|round(-3)", "100000000000000000000"},
      {"10**20 is even and 10**20 is divisibleby 4 and (10**20 + 1) is odd", "True"},
      {"[1, 2][:10**30]", "[1, 2]"},
      {"[1][10**30] is defined", "False"},
      {"'%x' % (2**70)", "400000000000000000"},
      {"'{:b}'.format(2**65)", "100000000000000000000000000000000000000000000000000000000000000000"},
      {"'{:X}'.format(255 * 2**70)", "3FC00000000000000000"},
      {"'ffffffffffffffffffff'|int(base=16)", "1208925819614629174706175"},
      {"(2**64)|tojson", "18446744073709551616"},
      {"2**-2", "0.25"},
  };
  for (const auto& [expression, expected] : cases)
    EXPECT_EQ(text_of_template("{{ " + std::string(expression) + " }}"), expected) << expression;
  const Json numbers = {{"n", *parse_json("12345678901234567890123")}};
  EXPECT_EQ(text_of_template("{{ n + 1 }} {{ -n }} {{ n * n }}", numbers),
            "12345678901234567890124 -12345678901234567890123 "
            "152415787532388367504942236884722755800955129");
}

TEST(JinjaNumbers, what_is_sorted_stands_in_the_order_of_python) {
  const std::string rows = "[{'a': 2, 'b': 'x'}, {'a': 1, 'b': 'Z'}, {'a': 1, 'b': 'y'}, {'b': 'w', 'a': 2}]";
  const std::pair<std::string, const char*> cases[] = {
      {rows + "|sort(attribute='a,b')|map(attribute='b')|join", "yZwx"},
      {rows + "|sort(attribute='a,b', reverse=true)|map(attribute='b')|join", "xwZy"},
      {rows + "|sort(attribute='b,a', case_sensitive=true)|map(attribute='b')|join", "Zwxy"},
      {rows + "|sort(attribute='a')|map(attribute='b')|join", "Zyxw"},
      {rows + "|sort(attribute='c')|map(attribute='b')|join", "xZyw"},
      {rows + "|sort(attribute='c,b')|map(attribute='b')|join", "wxyZ"},
      {"[[none, 2], [none, 1]]|sort", "[[None, 1], [None, 2]]"},
      {"[none, none]|sort", "[None, None]"},
      {"[[none, 1] < [none, 2], [{}, 1] < [{}], [1] < [1, 2], (1, 2) < (1, 2), [1, 'a'] < [2, 3]]",
       "[True, False, True, False, True]"},
      {"[[3, 'c'], [1, 'd'], [1, 'a']]|sort(attribute='0,1')", "[[1, 'a'], [1, 'd'], [3, 'c']]"},
      {"[[3, 'c'], [1, 'd'], [2, 'a']]|sort(attribute=1)", "[[2, 'a'], [3, 'c'], [1, 'd']]"},
      {"[{'a': {'b': 2}}, {'a': {'b': 1}}]|sort(attribute='a.b,c')", "[{'a': {'b': 1}}, {'a': {'b': 2}}]"},
      {"'bca'|sort", "['a', 'b', 'c']"},
      {"{'b': 1, 'a': 2}|sort", "['a', 'b']"},
  };
  for (const auto& [expression, expected] : cases)
    EXPECT_EQ(text_of_template("{{ " + expression + " }}"), expected) << expression;
  EXPECT_NE(text_of_template("{{ [none, 1]|sort }}").find("'<' not supported"), std::string::npos);
  EXPECT_NE(text_of_template("{{ [1, none] < [1, 2] }}").find("'<' not supported"), std::string::npos);
}

TEST(JinjaNumbers, numbers_of_more_digits_than_python_writes_are_refused) {
  for (const char* source : {"{{ 10**4300 }}", "{{ 2**(10**30) }}", "{{ (10**4000) * (10**4000) }}"})
    EXPECT_NE(text_of_template(source).find("more than 4300 digits"), std::string::npos) << source;
  EXPECT_EQ(text_of_template("{{ (10**4299)|string|length }}"), "4300");
  EXPECT_NE(text_of_template("{{ 10**400 * 1.0 }}").find("int too large to convert to float"), std::string::npos);
  EXPECT_NE(text_of_template("{{ 10**20 // 0 }}").find("by zero"), std::string::npos);
  EXPECT_NE(text_of_template("{% set ns = namespace(n=10**4000) %}{% for i in range(100000) %}{% set ns.n = ns.n + 1 %}"
                             "{% endfor %}")
                .find("steps"),
            std::string::npos);
}

TEST(JinjaNumbers, literals_are_those_of_jinja2) {
  EXPECT_EQ(text_of_template("{{ 0x1F }} {{ 0XaB_1 }} {{ 0b11 }} {{ 0o17 }} {{ 1_000 }} {{ 0_0 }} {{ 1_0.5_0e1_0 }} "
                             "{{ 1E3 }} {{ 9223372036854775807 }} {{ 123456789012345678901234567890 }}"),
            "31 2737 3 15 1000 0 105000000000.0 1000.0 9223372036854775807 123456789012345678901234567890");
  for (const char* source : {"{{ 012 }}", "{{ 1__0 }}", "{{ 0x }}", "{{ 0b2 }}", "{{ 1_ }}", "{{ 1.5_ }}"})
    EXPECT_NE(text_of_template(source).find("chat_template: line 1"), std::string::npos) << source;
}

TEST(JinjaNumbers, letters_are_small_and_capital_by_what_they_are) {
  EXPECT_EQ(text_of_template("{{ 'ª'.islower() }} {{ 'ʰ' is lower }} {{ 'Ⅷ'.isupper() }} {{ 'ǅ'.isupper() }} "
                             "{{ 'ǅ'.islower() }} {{ 'aǅ'.islower() }} {{ 'a1'.islower() }} {{ '1'.isupper() }} "
                             "{{ 'ĸ'.islower() }} {{ '𝐀' is upper }} {{ ''.islower() }}"),
            "True True True False False False True False True True False");
  EXPECT_EQ(text_of_template("{{ '\\u0345'.title() }} {{ '\\u0345'|capitalize }} {{ '\\u0345'.capitalize() }}"),
            "Ι Ι Ι");
}

TEST(JinjaNumbers, fields_of_a_format_are_numbered_in_one_way) {
  EXPECT_NE(text_of_template("{{ '{} {1}'.format(1, 2) }}").find("numbered"), std::string::npos);
  EXPECT_NE(text_of_template("{{ '{0} {}'.format(1, 2) }}").find("numbered"), std::string::npos);
  EXPECT_EQ(text_of_template("{{ '{} {a} {}'.format(1, 2, a=3) }} {{ '{1} {0}'.format(1, 2) }}"), "1 3 2 2 1");
  EXPECT_EQ(text_of_template("{{ '%c%c|%3c' % ('a', 233, 'z') }}"), "aé|  z");
  EXPECT_NE(text_of_template("{{ '%c' % 'ab' }}").find("%c requires int or char"), std::string::npos);
}

TEST(JinjaNumbers, a_specifier_of_a_format_has_fields_of_its_own) {
  EXPECT_EQ(text_of_template("{{ '{:>{w}}|{:{}.{}f}'.format('a', 2.5, 7, 2, w=3) }}"), "  a|   2.50");
  EXPECT_NE(text_of_template("{{ '{:{:{}}}'.format('a', 2, 3) }}").find("recursion"), std::string::npos);
  EXPECT_NE(text_of_template("{{ '{:{'.format('a', 2) }}").find("encountered"), std::string::npos);
}

TEST(JinjaNumbers, characters_have_names_and_whole_numbers_a_length_in_bits) {
  EXPECT_EQ(text_of_template("{{ '\\N{BULLET}\\N{greek small letter alpha}' }}"), "•α");
  EXPECT_NE(text_of_template("{{ '\\N{NO SUCH THING}' }}").find("of a character is not supported"), std::string::npos);
  EXPECT_NE(text_of_template("{{ '\\Nx' }}").find("of a character is not supported"), std::string::npos);
  EXPECT_EQ(text_of_template("{{ (5).bit_length() }} {{ 0 .bit_length() }} {{ (-(2**70)).bit_length() }}"), "3 0 71");
}

TEST(JinjaNumbers, specifiers_and_conversions_write_what_python_writes) {
  const std::pair<const char*, const char*> cases[] = {
      {"'{:<05d}'.format(4)", "40000"},
      {"'{:^05}'.format(-4)", "0-400"},
      {"'{:05}'.format('ab')", "ab000"},
      {"'{:x<05d}'.format(4)", "4xxxx"},
      {"'{:#.3g}'.format(1.0)", "1.00"},
      {"'{:#.0f}'.format(2.5)", "2."},
      {"'{:#g} {:#.0G}'.format(123456.789, 2.5)", "123457. 2."},
      {"'{:#.0e}'.format(1e20)", "1.e+20"},
      {"'{:#}'.format(1e20)", "1.e+20"},
      {"'{:#.0%}'.format(5)", "500.%"},
      {"'{:_x}'.format(1048576)", "10_0000"},
      {"'{:#_b}'.format(-77)", "-0b100_1101"},
      {"'{:_d}'.format(1048576)", "1_048_576"},
      {"'{:012,}'.format(1234)", "0,000,001,234"},
      {"'{:013,}'.format(1234)", "0,000,001,234"},
      {"'{:012,g}'.format(1)", "0,000,000,001"},
      {"'{:-012,.1f}'.format(-1.5)", "-0,000,001.5"},
      {"'{:012_b}'.format(-42)", "-0_0010_1010"},
      {"'{:<012,}'.format(1234)", "1,2340000000"},
      {"'{:c}|{:3c}|{:<3c}'.format(65, 233, 66)", "A|  é|B  "},
      {"'{:n} {:n}'.format(1234567, 0.5)", "1234567 0.5"},
      {"'{!a}'.format('é€😀')", "'\\xe9\\u20ac\\U0001f600'"},
      {"'%a' % 'xé'", "'x\\xe9'"},
      {"'%.3d|%+6.3d|%08.3d|%#.4x' % (5, 5, 5, 255)", "005|  +005|00000005|0x00ff"},
      {"'%d' % 1e25", "10000000000000000905969664"},
      {"'%i|%u' % (-1.9, 2.9)", "-1|2"},
      {"'%ld' % 3", "3"},
      {"'%05s|%-05d|%05c' % ('a', 3, 'b')", "    a|3    |    b"},
      {"'%#g|%#.0f' % (1, 2.5)", "1.00000|2."},
  };
  for (const auto& [expression, expected] : cases)
    EXPECT_EQ(text_of_template("{{ " + std::string(expression) + " }}"), expected) << expression;
  // What Python refuses is refused.
  for (const char* expression :
       {"'{:,x}'.format(5)", "'{:_c}'.format(5)", "'{:,n}'.format(5)", "'{:,}'.format('a')", "'{:+}'.format('a')",
        "'{:#}'.format('a')", "'{:0=5}'.format('a')", "'{:+c}'.format(65)", "'{!b}'.format(1)", "'%x' % 1.0",
        "'%d' % ('nan'|float)", "['a']|sum(start='')"})
    EXPECT_NE(text_of_template("{{ " + std::string(expression) + " }}").find("chat_template: line 1"),
              std::string::npos)
        << expression;
}

}  // namespace
}  // namespace tandem::model
