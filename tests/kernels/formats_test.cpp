// Conversions of the small formats over every code, every middle between neighbours and the floats beside them, against
// the definition of rounding and against ml_dtypes (tests/golden/make_formats.py).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <span>

#include "base/digest.h"
#include "base/file.h"
#include "base/json.h"
#include "base/random.h"
#include "base/text.h"
#include "kernels/formats/bf16.h"
#include "kernels/formats/e4m3.h"
#include "kernels/formats/e8m0.h"

namespace tandem::kernels {
namespace {

static_assert(to_e4m3(448).bits == 0x7e && to_e4m3(1e9f).bits == 0x7e && to_float(to_e4m3(-0.3f)) == -0.3125f);
static_assert(to_float(to_e8m0(1.0f)) == 1 && to_float(to_e8m0(1.0001f)) == 2);
static_assert(to_float(to_bf16(-1.5f)) == -1.5f);

// A format as the tests see it: codes are whole numbers.
struct Format {
  std::string name;
  uint32_t codes;    // how many there are
  uint32_t largest;  // code of the largest finite value; the codes from 0 to it ascend
  bool is_signed;
  float (*decode)(uint32_t);
  uint32_t (*encode)(float);
};

template <typename T>
float decode(uint32_t code) {
  return to_float(T{static_cast<decltype(T::bits)>(code)});
}

const Format kFormats[] = {
    {"bf16", 0x10000, 0x7f7f, true, decode<bf16>, [](float x) -> uint32_t { return to_bf16(x).bits; }},
    {"e4m3", 0x100, 0x7e, true, decode<e4m3>, [](float x) -> uint32_t { return to_e4m3(x).bits; }},
    {"e8m0", 0x100, 0xfe, false, decode<e8m0>, [](float x) -> uint32_t { return to_e8m0(x).bits; }},
};

class FormatTest : public testing::TestWithParam<Format> {};
INSTANTIATE_TEST_SUITE_P(Formats, FormatTest, testing::ValuesIn(kFormats),
                         [](const auto& info) { return info.param.name; });

TEST_P(FormatTest, every_finite_value_comes_back_as_the_code_it_was) {
  const Format& f = GetParam();
  for (uint32_t code = 0; code < f.codes; ++code) {
    const float value = f.decode(code);
    if (std::isfinite(value)) {
      ASSERT_EQ(f.encode(value), code) << value;
    }
    if (f.is_signed && code < f.codes / 2 && !std::isnan(value)) {
      ASSERT_EQ(f.decode(code + f.codes / 2), -value) << code;
    }
    if (code > 0 && code <= f.largest) {
      ASSERT_GT(value, f.decode(code - 1)) << code;
    }
  }
}

// What the header says, by search: the nearest value, of two the even code; E8M0 the least that is not below.
uint32_t by_definition(const Format& f, float x) {
  const double size = std::abs(x);
  uint32_t low = 0, high = f.largest;  // the last value that is not above |x|
  while (low < high) {
    const uint32_t middle = (low + high + 1) / 2;
    f.decode(middle) <= size ? low = middle : high = middle - 1;
  }
  uint32_t code = low;
  if (low < f.largest) {
    const double below = size - f.decode(low), above = f.decode(low + 1) - size;
    if (!f.is_signed)
      code += below > 0;
    else
      code += above < below || (above == below && low % 2 == 1);
  }
  return f.is_signed && std::signbit(x) ? code + f.codes / 2 : code;
}

TEST_P(FormatTest, any_float_between_two_values_becomes_the_nearer_one) {
  const Format& f = GetParam();
  Random random(1);
  for (int i = 0; i < 100000; ++i) {
    const auto code = static_cast<uint32_t>(random.below(f.largest));
    const double low = f.decode(code), high = f.decode(code + 1);
    const auto x = static_cast<float>(low + (high - low) * random.uniform());
    ASSERT_EQ(f.encode(x), by_definition(f, x)) << x;
    if (f.is_signed) {
      ASSERT_EQ(f.encode(-x), by_definition(f, -x)) << x;
    }
  }
}

// The order of make_formats.py.
std::vector<float> probes(const Format& f) {
  std::vector<uint32_t> bits;
  for (uint32_t code = 0; code <= f.largest; ++code) {
    const double value = f.decode(code);
    const double step = code < f.largest ? f.decode(code + 1) - value : value - f.decode(code - 1);
    for (const double point : {value, value + step / 2}) {
      const auto at = std::bit_cast<uint32_t>(static_cast<float>(point));
      bits.insert(bits.end(), {at > 0 ? at - 1 : 0, at, at + 1});
    }
  }
  bits.insert(bits.end(),
              {0x00000000, 0x00000001, 0x007fffff, 0x00800000, 0x7f7fffff, 0x7f800000, 0x7f800001, 0x7fc00000});
  const size_t count = bits.size();
  for (size_t i = 0; i < count; ++i) bits.push_back(bits[i] | 0x80000000u);
  std::vector<float> values;
  for (const uint32_t pattern : bits) values.push_back(std::bit_cast<float>(pattern));
  return values;
}

Json golden(const std::string& format) {
  const std::string lines = *read_file(TANDEM_SOURCE_DIR "/tests/golden/formats.jsonl");
  for (const auto line : split(trim(lines), '\n')) {
    Json json = *parse_json(line);
    if (json["format"] == format) return json;
  }
  return {};
}

TEST_P(FormatTest, agrees_with_ml_dtypes_on_every_code_and_beside_every_middle) {
  const Format& f = GetParam();
  const Json expected = golden(f.name);
  const auto points = probes(f);
  ASSERT_EQ(points.size(), expected["probes"].get<size_t>());
  std::vector<uint32_t> decoded(f.codes);
  for (uint32_t code = 0; code < f.codes; ++code) decoded[code] = std::bit_cast<uint32_t>(f.decode(code));
  if (f.name == "bf16") {
    std::vector<uint16_t> codes;
    for (const float x : points) codes.push_back(static_cast<uint16_t>(f.encode(x)));
    EXPECT_EQ(digest_of(std::as_bytes(std::span(decoded))).hex(), expected["decoded"]);
    EXPECT_EQ(digest_of(std::as_bytes(std::span(codes))).hex(), expected["encoded"]);
    return;
  }
  std::string values;
  for (const uint32_t bits : decoded) values += fmt::format("{}{:x}", values.empty() ? "" : " ", bits);
  EXPECT_EQ(values, expected["decoded"]);
  const std::string codes = expected["encoded"].get<std::string>();
  ASSERT_EQ(codes.size(), 2 * points.size());
  for (size_t i = 0; i < points.size(); ++i) {
    ASSERT_EQ(fmt::format("{:02x}", f.encode(points[i])), codes.substr(2 * i, 2)) << points[i];
  }
}

TEST(Formats, what_is_no_number_and_what_is_too_large_goes_where_the_headers_say) {
  for (const float nan : {std::nanf(""), -std::nanf("")}) {
    EXPECT_EQ(to_e4m3(nan).bits, 0x7f);
    EXPECT_EQ(to_e8m0(nan).bits, 0xff);
    EXPECT_TRUE(std::isnan(to_float(to_bf16(nan))));
  }
  EXPECT_EQ(to_float(to_e4m3(-INFINITY)), -448);
  EXPECT_EQ(to_float(to_e8m0(INFINITY)), 0x1p127f);
  EXPECT_EQ(to_e4m3(-0.0f).bits, 0x80);
  EXPECT_EQ(to_e8m0(0).bits, 0);
  EXPECT_EQ(to_e8m0(-1), kE8m0Nan);
  for (const uint8_t code : {0x7f, 0xff}) EXPECT_TRUE(std::isnan(to_float(e4m3{code})));
  EXPECT_TRUE(std::isnan(to_float(kE8m0Nan)));
}

}  // namespace
}  // namespace tandem::kernels
