#include "kernels/experts.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/reference/experts.h"
#include "tests/kernels/support.h"

namespace tandem::kernels {
namespace {

class ExpertsTest : public EachIsa {};
FOR_EACH_ISA(ExpertsTest);

struct Routes {
  int rows, experts, top_k;
  bool normalise;
  std::vector<float> logits, weights;
  std::vector<int32_t> ids, offsets, places;
};

Routes routes_of(Stream& stream, std::vector<float> logits, int experts, int top_k, bool normalise) {
  const int rows = static_cast<int>(logits.size()) / experts;
  const size_t pairs = static_cast<size_t>(rows) * top_k;
  Routes out{rows, experts, top_k, normalise, std::move(logits), {}, {}, {}, {}};
  out.weights.resize(pairs), out.ids.resize(pairs), out.places.resize(pairs), out.offsets.resize(experts + 1);
  EXPECT_TRUE(route(stream, {.logits = out.logits.data(),
                             .ids = out.ids.data(),
                             .weights = out.weights.data(),
                             .normalise = normalise,
                             .rows = rows,
                             .experts = experts,
                             .top_k = top_k}));
  EXPECT_TRUE(group_by_expert(stream, {.ids = out.ids.data(),
                                       .offsets = out.offsets.data(),
                                       .places = out.places.data(),
                                       .rows = rows,
                                       .experts = experts,
                                       .top_k = top_k}));
  return out;
}

Routes random_routes(Stream& stream, int rows, int experts, int top_k, bool normalise = true) {
  return routes_of(stream, random_floats(static_cast<size_t>(rows) * experts, 40, 2), experts, top_k, normalise);
}

TEST_P(ExpertsTest, rows_take_the_experts_that_they_are_given) {
  Stream cpu = stream();
  const int rows = 33, experts = 12, top_k = 3;
  for (const bool normalise : {false, true}) {
    const Routes own = random_routes(cpu, rows, experts, top_k, normalise);
    const auto take = [&](std::vector<int32_t> given, std::vector<uint8_t>& changed) {
      Routes out = own;
      changed.assign(rows, 9);
      EXPECT_TRUE(route(cpu, {.logits = own.logits.data(),
                              .ids = out.ids.data(),
                              .weights = out.weights.data(),
                              .normalise = normalise,
                              .rows = rows,
                              .experts = experts,
                              .top_k = top_k,
                              .given = given.data(),
                              .changed = changed.data()}));
      return out;
    };
    std::vector<uint8_t> changed;
    const Routes same = take(own.ids, changed);
    EXPECT_EQ(same.ids, own.ids);
    EXPECT_EQ(same.weights, own.weights) << "the bits of what it would choose";
    EXPECT_EQ(changed, std::vector<uint8_t>(rows, 0));
    // Others, the same in another order, and none.
    auto given = own.ids;
    for (int32_t& id : std::span(given).first(3)) id = (id + 1) % experts;
    std::swap(given[3], given[5]);
    given[6] = -1;
    const Routes other = take(given, changed);
    EXPECT_EQ(std::vector<int32_t>(other.ids.begin(), other.ids.begin() + 6),
              std::vector<int32_t>(given.begin(), given.begin() + 6));
    EXPECT_EQ(changed[1], 0) << "the same experts";
    EXPECT_EQ(changed[2], 0) << "it chose";
    EXPECT_EQ(std::vector<int32_t>(other.ids.begin() + 6, other.ids.end()),
              std::vector<int32_t>(own.ids.begin() + 6, own.ids.end()));
    const auto p = reference::softmax(std::span(own.logits).first(experts));
    double total = 0;
    for (int rank = 0; rank < top_k; ++rank) total += p[given[rank]];
    for (int rank = 0; rank < top_k; ++rank)
      EXPECT_NEAR(other.weights[rank], normalise ? p[given[rank]] / total : p[given[rank]], 1e-6);
  }
}

TEST_P(ExpertsTest, experts_that_are_given_twice_or_do_not_exist_are_refused) {
  Stream cpu = stream();
  const Routes own = random_routes(cpu, 4, 5, 2);
  for (const auto& [place, id] : {std::pair{3, 5}, {3, -1}, {2, -2}, {5, -9}}) {
    auto given = own.ids;
    given[place] = id;
    Routes out = own;
    const auto refused = [&] {
      return route(cpu, {.logits = own.logits.data(),
                         .ids = out.ids.data(),
                         .weights = out.weights.data(),
                         .rows = 4,
                         .experts = 5,
                         .top_k = 2,
                         .given = given.data()});
    };
    EXPECT_EQ(refused().code(), Code::kInvalid) << place << " " << id;
    given = own.ids;
    given[3] = given[2];
    EXPECT_NE(refused().message().find("row 1 is given expert"), std::string::npos) << refused().message();
  }
}

TEST_P(ExpertsTest, a_row_goes_to_the_experts_of_its_largest_logits_with_their_probabilities) {
  Stream cpu = stream();
  for (const auto& [rows, experts, top_k] : {std::tuple{40, 7, 3}, {33, 128, 8}, {3, 1, 1}, {5, 20, 20}}) {
    for (const bool normalise : {false, true}) {
      const Routes routes = random_routes(cpu, rows, experts, top_k, normalise);
      for (int row = 0; row < rows; ++row) {
        const auto exact = reference::route(std::span(routes.logits).subspan(row * experts, experts), top_k, normalise);
        for (int rank = 0; rank < top_k; ++rank) {
          ASSERT_EQ(routes.ids[row * top_k + rank], exact.ids[rank]) << "row " << row << ", rank " << rank;
          ASSERT_NEAR(routes.weights[row * top_k + rank], exact.weights[rank], 1e-6);
        }
      }
    }
  }
}

TEST_P(ExpertsTest, ties_go_to_the_lowest_expert_and_a_nan_comes_last_and_is_seen_in_all_weights) {
  Stream cpu = stream();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Routes routes = routes_of(cpu, {1, 2, 2, 0, 2, 0, -0.0f, 0, 0, 0, 3, nan, 1, 2, nan}, 5, 3, true);
  EXPECT_EQ(routes.ids, (std::vector<int32_t>{1, 2, 4, 0, 1, 2, 0, 3, 2}));
  EXPECT_EQ(routes.weights[0], routes.weights[2]);
  for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(std::isnan(routes.weights[6 + rank]));
}

TEST_P(ExpertsTest, the_gradient_of_the_weights_reaches_the_logits) {
  Stream cpu = stream();
  const int rows = 37, experts = 21, top_k = 4, stride = 22;
  for (const bool normalise : {false, true}) {
    const Routes routes = random_routes(cpu, rows, experts, top_k, normalise);
    const auto grads = random_floats(rows * top_k, 41);
    std::vector<bf16> grad_logits(rows * stride, to_bf16(9));
    ASSERT_TRUE(route_backward(cpu, {.logits = routes.logits.data(),
                                     .ids = routes.ids.data(),
                                     .weights = routes.weights.data(),
                                     .grad_weights = grads.data(),
                                     .grad_logits = grad_logits.data(),
                                     .grad_stride = stride,
                                     .normalise = normalise,
                                     .rows = rows,
                                     .experts = experts,
                                     .top_k = top_k}));
    for (int row = 0; row < rows; ++row) {
      const auto exact = reference::route_backward(std::span(routes.logits).subspan(row * experts, experts),
                                                   std::span(grads).subspan(row * top_k, top_k), normalise);
      for (int i = 0; i < experts; ++i) {
        // One rounding to bf16 and a few of fp32.
        ASSERT_NEAR(to_float(grad_logits[row * stride + i]), exact[i], 0x1p-8 * std::abs(exact[i]) + 1e-6);
      }
      EXPECT_EQ(grad_logits[row * stride + experts].bits, 0);
    }
  }
}

TEST_P(ExpertsTest, sigmoids_are_chosen_with_a_bias_and_weighted_without_it) {
  Stream cpu = stream();
  const int rows = 37, experts = 21, top_k = 4;
  const float scale = 2.5f;
  const auto logits = random_floats(rows * experts, 58, 2), bias = random_floats(experts, 59, 0.5f);
  const auto grads = random_floats(rows * top_k, 60);
  for (const bool normalise : {false, true}) {
    std::vector<int32_t> ids(rows * top_k);
    std::vector<float> weights(rows * top_k);
    std::vector<bf16> grad_logits(rows * experts);
    ASSERT_TRUE(route(cpu, {.logits = logits.data(),
                            .ids = ids.data(),
                            .weights = weights.data(),
                            .score = Score::kSigmoid,
                            .bias = bias.data(),
                            .scale = scale,
                            .normalise = normalise,
                            .rows = rows,
                            .experts = experts,
                            .top_k = top_k}));
    ASSERT_TRUE(route_backward(cpu, {.logits = logits.data(),
                                     .ids = ids.data(),
                                     .weights = weights.data(),
                                     .grad_weights = grads.data(),
                                     .grad_logits = grad_logits.data(),
                                     .grad_stride = static_cast<size_t>(experts),
                                     .score = Score::kSigmoid,
                                     .scale = scale,
                                     .normalise = normalise,
                                     .rows = rows,
                                     .experts = experts,
                                     .top_k = top_k}));
    for (int row = 0; row < rows; ++row) {
      const auto mine = std::span(logits).subspan(row * experts, experts);
      const auto exact = reference::route_sigmoid(mine, bias, top_k, scale, normalise);
      for (int rank = 0; rank < top_k; ++rank) {
        ASSERT_EQ(ids[row * top_k + rank], exact.ids[rank]) << "row " << row << ", rank " << rank;
        ASSERT_NEAR(weights[row * top_k + rank], exact.weights[rank], 1e-6);
      }
      const auto gradients = reference::route_sigmoid_backward(
          mine, exact, std::span(grads).subspan(row * top_k, top_k), scale, normalise);
      for (int i = 0; i < experts; ++i) {
        ASSERT_NEAR(to_float(grad_logits[row * experts + i]), gradients[i], 0x1p-8 * std::abs(gradients[i]) + 1e-6);
      }
    }
  }
}

TEST_P(ExpertsTest, of_groups_only_those_with_the_best_pairs_are_looked_at) {
  Stream cpu = stream();
  const int rows = 41, experts = 20, top_k = 4;
  auto logits = random_floats(rows * experts, 61, 2);
  const auto bias = random_floats(experts, 62, 0.5f);
  std::fill_n(logits.begin() + 5, 5, NAN);  // a group of nothing but NaN
  for (const auto& [groups, top_k_groups] : {std::pair{5, 2}, {5, 1}, {4, 3}, {4, 4}, {10, 2}}) {
    std::vector<int32_t> ids(rows * top_k);
    std::vector<float> weights(rows * top_k);
    ASSERT_TRUE(route(cpu, {.logits = logits.data(),
                            .ids = ids.data(),
                            .weights = weights.data(),
                            .score = Score::kSigmoid,
                            .bias = bias.data(),
                            .normalise = true,
                            .rows = rows,
                            .experts = experts,
                            .top_k = top_k,
                            .groups = groups,
                            .top_k_groups = top_k_groups}));
    for (int row = 1; row < rows; ++row) {
      const auto exact = reference::route_sigmoid(std::span(logits).subspan(row * experts, experts), bias, top_k, 1,
                                                  true, groups, top_k_groups);
      for (int rank = 0; rank < top_k; ++rank) {
        ASSERT_EQ(ids[row * top_k + rank], exact.ids[rank]) << groups << " groups, row " << row << ", rank " << rank;
        ASSERT_NEAR(weights[row * top_k + rank], exact.weights[rank], 1e-6);
      }
    }
  }
}

TEST(Experts, groups_that_do_not_fit_are_refused) {
  Stream cpu = std::move(*Stream::cpu(1));
  const std::vector<float> logits(12);
  std::vector<int32_t> ids(4);
  std::vector<float> weights(4);
  const auto refused = [&](int groups, int top_k_groups, Score score) {
    const Status status = route(cpu, {.logits = logits.data(),
                                      .ids = ids.data(),
                                      .weights = weights.data(),
                                      .score = score,
                                      .rows = 1,
                                      .experts = 12,
                                      .top_k = 4,
                                      .groups = groups,
                                      .top_k_groups = top_k_groups});
    return status.to_string();
  };
  EXPECT_NE(refused(5, 2, Score::kSigmoid).find("multiple of groups"), std::string::npos);
  EXPECT_NE(refused(3, 1, Score::kSoftmax).find("groups go with sigmoids"), std::string::npos);
  EXPECT_NE(refused(12, 4, Score::kSigmoid).find("two experts at least"), std::string::npos);
  EXPECT_NE(refused(3, 4, Score::kSigmoid).find("top_k_groups must be"), std::string::npos);
  EXPECT_NE(refused(4, 1, Score::kSigmoid).find("more than the chosen groups have"), std::string::npos);
}

TEST(ExpertsReference, has_the_gradient_of_finite_differences_in_a_router_of_sigmoids) {
  const int experts = 9, top_k = 3;
  const auto logits = random_floats(experts, 61), bias = random_floats(experts, 62),
             grad_weights = random_floats(top_k, 63);
  for (const bool normalise : {false, true}) {
    const auto choice = reference::route_sigmoid(logits, bias, top_k, 1.5, normalise);
    const auto loss = [&](const std::vector<float>& at) {
      double sum = 0;
      const auto moved = reference::route_sigmoid(at, bias, top_k, 1.5, normalise);
      EXPECT_EQ(moved.ids, choice.ids);
      for (int rank = 0; rank < top_k; ++rank) sum += moved.weights[rank] * grad_weights[rank];
      return sum;
    };
    const auto gradient = reference::route_sigmoid_backward(logits, choice, grad_weights, 1.5, normalise);
    for (int i = 0; i < experts; ++i) {
      auto up = logits, down = logits;
      up[i] += 0x1p-10f, down[i] -= 0x1p-10f;
      EXPECT_NEAR((loss(up) - loss(down)) / (double{up[i]} - down[i]), gradient[i], 1e-5);
    }
  }
}

TEST(ExpertsReference, has_the_gradient_of_finite_differences_in_the_router) {
  const int experts = 9, top_k = 3;
  const auto logits = random_floats(experts, 42), grad_weights = random_floats(top_k, 43);
  for (const bool normalise : {false, true}) {
    const auto ids = reference::route(logits, top_k, normalise).ids;
    const auto loss = [&](const std::vector<float>& at) {
      double sum = 0;
      const auto choice = reference::route(at, top_k, normalise);
      EXPECT_EQ(choice.ids, ids);
      for (int rank = 0; rank < top_k; ++rank) sum += choice.weights[rank] * grad_weights[rank];
      return sum;
    };
    const auto gradient = reference::route_backward(logits, grad_weights, normalise);
    for (int i = 0; i < experts; ++i) {
      auto up = logits, down = logits;
      up[i] += 0x1p-10f, down[i] -= 0x1p-10f;
      EXPECT_NEAR((loss(up) - loss(down)) / (double{up[i]} - down[i]), gradient[i], 1e-5);
    }
  }
}

TEST_P(ExpertsTest, places_are_sorted_by_expert_and_within_one_by_row) {
  Stream cpu = stream();
  const Routes routes = random_routes(cpu, 50, 13, 4);
  EXPECT_EQ(routes.offsets.front(), 0);
  EXPECT_EQ(routes.offsets.back(), 200);
  std::vector<int> pair_at(200, -1);
  for (int pair = 0; pair < 200; ++pair) {
    const int expert = routes.ids[pair], place = routes.places[pair];
    EXPECT_GE(place, routes.offsets[expert]);
    EXPECT_LT(place, routes.offsets[expert + 1]);
    EXPECT_EQ(pair_at[place], -1) << "two pairs at place " << place;
    pair_at[place] = pair;
  }
  for (int expert = 0; expert < 13; ++expert) {
    const auto begin = pair_at.begin() + routes.offsets[expert], end = pair_at.begin() + routes.offsets[expert + 1];
    EXPECT_TRUE(std::is_sorted(begin, end));
  }
}

TEST_P(ExpertsTest, rows_go_to_their_places_and_their_gradients_come_back_added_by_rank) {
  Stream cpu = stream();
  const int rows = 41, top_k = 3, width = 72;  // not a multiple of 16
  const Routes routes = random_routes(cpu, rows, 6, top_k);
  const auto x = random_bf16(rows * width, 44), grad = random_bf16(rows * top_k * width, 45);
  std::vector<bf16> sorted(rows * top_k * width), grad_x(rows * width);
  ASSERT_TRUE(permute(cpu, {.x = x.data(),
                            .places = routes.places.data(),
                            .out = sorted.data(),
                            .rows = rows,
                            .top_k = top_k,
                            .width = width}));
  ASSERT_TRUE(permute_backward(cpu, {.grad_out = grad.data(),
                                     .places = routes.places.data(),
                                     .grad_x = grad_x.data(),
                                     .rows = rows,
                                     .top_k = top_k,
                                     .width = width}));
  for (int row = 0; row < rows; ++row) {
    std::vector<float> sums(width, 0);
    for (int rank = 0; rank < top_k; ++rank) {
      const int place = routes.places[row * top_k + rank];
      EXPECT_TRUE(same_bits(&sorted[place * width], &x[row * width], width));
      for (int i = 0; i < width; ++i) sums[i] += to_float(grad[place * width + i]);
    }
    for (int i = 0; i < width; ++i) ASSERT_EQ(grad_x[row * width + i].bits, to_bf16(sums[i]).bits);
  }
}

TEST_P(ExpertsTest, what_the_experts_say_is_weighted_and_added_in_the_order_of_rank) {
  Stream cpu = stream();
  const int rows = 35, top_k = 4, width = 100;
  const Routes routes = random_routes(cpu, rows, 11, top_k);
  const auto y = random_bf16(rows * top_k * width, 46), grad = random_bf16(rows * width, 47);
  auto out = random_bf16(rows * width, 48);
  const auto residual = out;
  ASSERT_TRUE(combine(cpu, {.y = y.data(),
                            .places = routes.places.data(),
                            .weights = routes.weights.data(),
                            .residual = out.data(),
                            .out = out.data(),
                            .rows = rows,
                            .top_k = top_k,
                            .width = width}));
  std::vector<bf16> grad_y(y.size());
  std::vector<float> grad_weights(rows * top_k);
  ASSERT_TRUE(combine_backward(cpu, {.y = y.data(),
                                     .places = routes.places.data(),
                                     .weights = routes.weights.data(),
                                     .grad_out = grad.data(),
                                     .grad_y = grad_y.data(),
                                     .grad_weights = grad_weights.data(),
                                     .rows = rows,
                                     .top_k = top_k,
                                     .width = width}));
  for (int row = 0; row < rows; ++row) {
    const auto places = std::span(routes.places).subspan(row * top_k, top_k);
    const auto weights = std::span(routes.weights).subspan(row * top_k, top_k);
    const auto exact = reference::combine(std::span(residual).subspan(row * width, width), y, places, weights);
    for (int i = 0; i < width; ++i) {
      float sum = 0;
      for (int rank = 0; rank < top_k; ++rank) {
        sum = std::fma(weights[rank], to_float(y[places[rank] * width + i]), sum);
      }
      ASSERT_EQ(out[row * width + i].bits, to_bf16(to_float(residual[row * width + i]) + sum).bits);
      ASSERT_NEAR(to_float(out[row * width + i]), exact[i], 0x1p-8 * std::abs(exact[i]) + 1e-5);
    }
    for (int rank = 0; rank < top_k; ++rank) {
      double dot = 0;
      for (int i = 0; i < width; ++i) {
        const float gradient = to_float(grad[row * width + i]);
        ASSERT_EQ(grad_y[places[rank] * width + i].bits, to_bf16(weights[rank] * gradient).bits);
        dot += double{gradient} * to_float(y[places[rank] * width + i]);
      }
      ASSERT_NEAR(grad_weights[row * top_k + rank], dot, 1e-4);
    }
  }
}

// Routing, the way there, the product, the way back: a row alone, among others, with any threads.
TEST_P(ExpertsTest, a_row_has_the_same_bits_alone_and_among_others_all_the_way_through_its_experts) {
  Stream one = stream(1), three = stream(3);
  const int largest = 257, experts = 12, top_k = 3, width = 64;
  const auto x = random_bf16(largest * width, 55), weights = random_bf16(experts * width * width, 56, 0.1f);
  const auto logits = random_floats(largest * experts, 57);
  std::vector<bf16> packed(experts * packed_size(width, width));
  for (int e = 0; e < experts; ++e) {
    ASSERT_TRUE(pack(one, &weights[e * width * width], width, width, &packed[e * packed_size(width, width)]));
  }
  const auto through = [&](Stream& cpu, int first, int rows) {
    const Routes routes = routes_of(cpu, {logits.begin() + first * experts, logits.begin() + (first + rows) * experts},
                                    experts, top_k, true);
    std::vector<bf16> sorted(rows * top_k * width), said(sorted.size()), out(rows * width);
    EXPECT_TRUE(permute(cpu, {.x = &x[first * width],
                              .places = routes.places.data(),
                              .out = sorted.data(),
                              .rows = rows,
                              .top_k = top_k,
                              .width = width}));
    EXPECT_TRUE(grouped_gemm(cpu, {.a = sorted.data(),
                                   .a_stride = static_cast<size_t>(width),
                                   .offsets = routes.offsets.data(),
                                   .b = packed.data(),
                                   .out = said.data(),
                                   .out_stride = static_cast<size_t>(width),
                                   .groups = experts,
                                   .m = rows * top_k,
                                   .n = width,
                                   .k = width}));
    EXPECT_TRUE(combine(cpu, {.y = said.data(),
                              .places = routes.places.data(),
                              .weights = routes.weights.data(),
                              .residual = &x[first * width],
                              .out = out.data(),
                              .rows = rows,
                              .top_k = top_k,
                              .width = width}));
    return out;
  };
  const auto whole = through(three, 0, largest);
  for (const int m : {1, 2, 3, 16, 17, 33, 64, 128}) {
    for (const int first : {0, 5, largest - m}) {
      const auto part = through(m % 2 ? one : three, first, m);
      ASSERT_TRUE(same_bits(part.data(), &whole[first * width], part.size())) << "m = " << m << ", first " << first;
    }
  }
}

TEST(ExpertArguments, are_checked_and_the_wrong_one_is_named) {
  Stream cpu = std::move(*Stream::cpu(1));
  float logits[4] = {}, weights[4] = {};
  int32_t ids[4] = {0, 1, 2, 0}, offsets[3] = {0, 3, 2}, places[4] = {0, 1, 2, 4};
  bf16 x[8] = {};
  EXPECT_EQ(
      route(cpu, {.logits = logits, .ids = ids, .weights = weights, .rows = 1, .experts = 4, .top_k = 5}).message(),
      "route: top_k must be from 1 to experts");
  EXPECT_EQ(
      group_by_expert(cpu, {.ids = ids, .offsets = offsets, .places = places, .rows = 2, .experts = 2, .top_k = 2})
          .message(),
      "group_by_expert: expert 2 at row 1 is outside the 2 there are");
  const int32_t wrong[] = {0, 1, 2, 4};
  EXPECT_EQ(permute(cpu, {.x = x, .places = wrong, .out = x, .rows = 2, .top_k = 2, .width = 1}).message(),
            "permute: place 4 of row 1 is outside the 4 there are");
  GroupedGemm product{.a = x, .a_stride = 2, .b = x, .out = x, .out_stride = 2, .groups = 2, .m = 2, .n = 2, .k = 2};
  EXPECT_EQ(grouped_gemm(cpu, product).message(), "grouped_gemm: offsets is null");
  const int32_t falling[] = {0, 3, 2}, short_of[] = {0, 1, 1};
  product.offsets = falling;
  EXPECT_EQ(grouped_gemm(cpu, product).message(), "grouped_gemm: offsets[2] is 2, below the 3 before it");
  product.offsets = short_of;
  EXPECT_EQ(grouped_gemm(cpu, product).message(),
            "grouped_gemm: offsets go from 0 to 1, expected from 0 to the 2 rows");
}

}  // namespace
}  // namespace tandem::kernels
