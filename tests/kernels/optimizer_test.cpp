#include "kernels/optimizer.h"

#include <cstdlib>

#include "base/file.h"
#include "base/json.h"
#include "kernels/muon.h"
#include "kernels/reference/optimizer.h"
#include "tests/kernels/support.h"

namespace tandem::kernels {
namespace {

class OptimizerTest : public EachIsa {};
FOR_EACH_ISA(OptimizerTest);

TEST_P(OptimizerTest, adamw_takes_the_published_step) {
  Stream cpu = stream();
  const size_t count = 19;
  const auto grad = random_floats(count, 11), start = random_floats(count, 12);
  auto master = start;
  std::vector<float> first(count, 0.1f), second(count, 0.2f);
  std::vector<bf16> weight(count);
  const AdamW step{.grad = grad.data(),
                   .master = master.data(),
                   .first_moment = first.data(),
                   .second_moment = second.data(),
                   .weight = weight.data(),
                   .count = count,
                   .grad_scale = 0.5f,
                   .learning_rate = 0.01f,
                   .beta1 = 0.9f,
                   .beta2 = 0.95f,
                   .epsilon = 1e-8f,
                   .weight_decay = 0.1f,
                   .step = 3};
  ASSERT_TRUE(adamw(cpu, step));
  for (size_t i = 0; i < count; ++i) {
    const auto expected = reference::adamw(step, grad[i], {start[i], 0.1f, 0.2f});
    EXPECT_NEAR(master[i], expected.master, 1e-6);
    EXPECT_NEAR(first[i], expected.first_moment, 1e-6);
    EXPECT_NEAR(second[i], expected.second_moment, 1e-6);
    EXPECT_EQ(weight[i].bits, to_bf16(master[i]).bits);
  }
}

// Moments, masters and weights of a matrix of 150 x 137 over several steps.
template <typename Moment>
struct Trained {
  static constexpr int kRows = 150, kColumns = 137;
  static constexpr size_t kCount = size_t{kRows} * kColumns;
  std::vector<float> master = random_floats(kCount, 1);
  std::vector<Moment> first = std::vector<Moment>(kCount), second = std::vector<Moment>(kCount);
  std::vector<bf16> weight = std::vector<bf16>(kCount);

  static std::vector<float> grad(int step) { return random_floats(kCount, 100 + step, 0.1f); }
  BasicAdamW<Moment> arguments(const std::vector<float>& grad, int step) {
    return {.grad = grad.data(),
            .master = master.data(),
            .first_moment = first.data(),
            .second_moment = second.data(),
            .weight = weight.data(),
            .count = kCount,
            .learning_rate = 0.01f,
            .weight_decay = 0.1f,
            .step = step};
  }
};

TEST_P(OptimizerTest, bf16_moments_are_the_formula_s_rounded_once_a_step) {
  Stream cpu = stream();
  Trained<bf16> trained;
  std::vector<reference::AdamWState> states;
  for (const float value : trained.master) states.push_back({value, 0, 0});
  for (int step = 1; step <= 4; ++step) {
    const auto grad = trained.grad(step);
    const auto arguments = trained.arguments(grad, step);
    ASSERT_TRUE(adamw(cpu, arguments));
    for (size_t i = 0; i < trained.kCount; ++i) {
      const auto next = reference::adamw(arguments, grad[i], states[i]);
      ASSERT_NEAR(trained.master[i], next.master, 1e-5) << i;
      // Half of the last place, and what fp32 adds where the exact value lies close to the middle of two.
      ASSERT_NEAR(to_float(trained.first[i]), next.first_moment,
                  (0x1p-8 + 0x1p-16) * std::abs(next.first_moment) + 1e-9);
      ASSERT_NEAR(to_float(trained.second[i]), next.second_moment, (0x1p-8 + 0x1p-16) * next.second_moment + 1e-12);
      states[i] = {trained.master[i], to_float(trained.first[i]), to_float(trained.second[i])};
    }
  }
}

template <typename Moment>
void expect_codes_of_the_weight(Stream& one, Stream& three) {
  Trained<Moment> plain, coded;
  const size_t blocks = scale_blocks(plain.kRows, kScaleBlock) * scale_blocks(plain.kColumns, kScaleBlock);
  std::vector<e4m3> codes(plain.kCount), expected(plain.kCount);
  std::vector<e8m0> scales(blocks), expected_scales(blocks);
  for (int step = 1; step <= 2; ++step) {
    const auto grad = plain.grad(step);
    ASSERT_TRUE(adamw(one, plain.arguments(grad, step)));
    auto arguments = coded.arguments(grad, step);
    arguments.codes = codes.data();
    arguments.scales = scales.data();
    arguments.columns = plain.kColumns;
    ASSERT_TRUE(adamw(three, arguments));
  }
  EXPECT_EQ(coded.master, plain.master);
  EXPECT_TRUE(same_bits(coded.weight.data(), plain.weight.data(), plain.kCount));
  ASSERT_TRUE(
      quantize_weight(one, plain.weight.data(), plain.kRows, plain.kColumns, expected.data(), expected_scales.data()));
  EXPECT_EQ(codes, expected);
  EXPECT_EQ(scales, expected_scales);
}

TEST_P(OptimizerTest, codes_on_the_way_are_those_of_the_new_weight) {
  Stream one = stream(1), three = stream(3);
  expect_codes_of_the_weight<float>(one, three);
  expect_codes_of_the_weight<bf16>(one, three);
}

TEST_P(OptimizerTest, wrong_arguments_are_named) {
  Stream cpu = stream();
  Trained<bf16> trained;
  const auto grad = trained.grad(1);
  std::vector<e4m3> codes(trained.kCount);
  std::vector<e8m0> scales(4);
  const auto said = [&](auto change) {
    auto arguments = trained.arguments(grad, 1);
    change(arguments);
    return adamw(cpu, arguments).to_string();
  };
  const auto names = [](const std::string& message, const char* what) {
    return message.find(what) != std::string::npos;
  };
  EXPECT_TRUE(names(said([](auto& a) { a.second_moment = nullptr; }), "second_moment is null"));
  EXPECT_TRUE(names(said([](auto& a) { a.step = 0; }), "step counts from 1"));
  EXPECT_TRUE(names(said([](auto& a) { a.beta2 = 0.999f; }), "beta2 must be at most 0.996"));
  EXPECT_TRUE(names(said([&](auto& a) { a.codes = codes.data(); }), "codes and scales go together"));
  EXPECT_TRUE(names(said([&](auto& a) {
                      a.codes = codes.data();
                      a.scales = scales.data();
                      a.columns = 7;
                    }),
                    "columns must divide count"));
}

TEST_P(OptimizerTest, sum_of_squares_is_exact_to_double_and_the_same_with_any_threads) {
  Stream one = stream(1), three = stream(3);
  const auto values = random_floats(200001, 18);  // pieces of 64 Ki, the last one short
  double exact = 0;
  for (const float value : values) exact += double{value} * value;
  const double sum = *sum_of_squares(one, values.data(), values.size());
  EXPECT_NEAR(sum, exact, 1e-12 * exact);
  EXPECT_EQ(sum, *sum_of_squares(three, values.data(), values.size()));
  std::vector<double> sums((values.size() + kSquaresPiece - 1) / kSquaresPiece);
  ASSERT_TRUE(sums_of_squares(three, values.data(), values.size(), sums.data()));
  double added = 0;
  for (const double piece : sums) added += piece;
  EXPECT_EQ(added, sum);
}

// A matrix that moves by Muon.
struct Moved {
  int rows, columns;
  std::vector<float> master, momentum;
  std::vector<bf16> weight;
  std::vector<std::byte> memory;
  Moved(int rows_in, int columns_in, std::vector<float> master_in)
      : rows(rows_in),
        columns(columns_in),
        master(std::move(master_in)),
        momentum(master.size(), 0),
        weight(master.size()),
        memory(muon_workspace(rows, columns) + 64) {}
  Muon arguments(const std::vector<float>& grad) {
    auto* at = memory.data();
    while (reinterpret_cast<uintptr_t>(at) % 64 != 0) ++at;
    return {.grad = grad.data(),
            .master = master.data(),
            .momentum = momentum.data(),
            .weight = weight.data(),
            .rows = rows,
            .columns = columns,
            .learning_rate = 0.02f,
            .workspace = at};
  }
};

TEST_P(OptimizerTest, muon_moves_by_the_orthogonal_form_of_the_momentum) {
  Stream cpu = stream(), three = stream(3);
  for (const auto& [rows, columns] : {std::pair{64, 64}, {33, 70}, {71, 20}, {1, 9}, {130, 129}}) {
    SCOPED_TRACE(testing::Message() << rows << " x " << columns);
    const auto start = random_floats(static_cast<size_t>(rows) * columns, 1);
    const auto grad = random_floats(start.size(), 2);
    Moved moved(rows, columns, start), again(rows, columns, start);
    ASSERT_TRUE(muon(cpu, moved.arguments(grad)));
    ASSERT_TRUE(muon(three, again.arguments(grad)));
    EXPECT_EQ(moved.master, again.master);
    const auto exact = reference::orthogonal({grad.begin(), grad.end()}, rows, columns, 5);
    std::vector<float> step(start.size());
    const double size = 0.02 * 0.2 * std::sqrt(std::max(rows, columns));
    for (size_t i = 0; i < start.size(); ++i) {
      step[i] = static_cast<float>((start[i] - moved.master[i]) / size);
      EXPECT_EQ(moved.weight[i].bits, to_bf16(moved.master[i]).bits);
    }
    EXPECT_LT(relative_error(step, exact), 0.03);  // five rounds of bf16, each of which the polynomial stretches
  }
}

// tests/golden/make_muon.py
TEST_P(OptimizerTest, muon_takes_the_steps_of_pytorch) {
  Stream cpu = stream();
  const Json golden = Json::parse(*read_file(TANDEM_SOURCE_DIR "/tests/golden/muon.json"));
  ASSERT_GT(golden.size(), 3u);
  for (const Json& one : golden) {
    SCOPED_TRACE(one.at("name").get<std::string>());
    Moved moved(one.at("rows").get<int>(), one.at("columns").get<int>(), one.at("start").get<std::vector<float>>());
    const auto start = moved.master;
    for (const Json& grad : one.at("grads")) {
      const auto values = grad.get<std::vector<float>>();
      Muon arguments = moved.arguments(values);
      arguments.weight_decay = one.at("weight_decay").get<float>();
      arguments.nesterov = one.at("nesterov").get<bool>();
      arguments.scale = one.at("scale") == "original" ? MuonScale::kJordan : MuonScale::kLikeAdamW;
      ASSERT_TRUE(muon(cpu, arguments));
    }
    const auto end = one.at("end").get<std::vector<double>>();
    std::vector<double> theirs(end.size());
    std::vector<float> ours(end.size());
    for (size_t i = 0; i < end.size(); ++i) {
      theirs[i] = end[i] - start[i];
      ours[i] = moved.master[i] - start[i];
    }
    EXPECT_LT(relative_error(ours, theirs), 0.03);
  }
}

TEST_P(OptimizerTest, muon_says_what_is_wrong) {
  Stream cpu = stream();
  Moved moved(4, 4, random_floats(16, 1));
  const auto grad = random_floats(16, 2);
  const auto said = [&](auto change) {
    Muon arguments = moved.arguments(grad);
    change(arguments);
    return muon(cpu, arguments).to_string();
  };
  EXPECT_EQ(said([](Muon& a) { a.workspace += 8; }), "muon: workspace is not at a multiple of 64");
  EXPECT_EQ(said([](Muon& a) { a.rows = 0; }), "muon: rows and columns must be at least 1");
  EXPECT_EQ(said([](Muon& a) { a.iterations = 0; }), "muon: iterations must be 1 to 20");
  EXPECT_EQ(said([](Muon& a) { a.momentum = nullptr; }), "muon: momentum is null");
}

}  // namespace
}  // namespace tandem::kernels
