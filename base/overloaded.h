// A visitor of a variant made of one lambda for each of its types.
#pragma once

namespace tandem {

template <typename... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <typename... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;  // clang 14 deduces none for aggregates

}  // namespace tandem
