// fmt from its headers: Debian has no static library of it.
#include <fmt/format-inl.h>

template auto fmt::detail::thousands_sep_impl<char>(fmt::detail::locale_ref) -> fmt::detail::thousands_sep_result<char>;
template char fmt::detail::decimal_point_impl<char>(fmt::detail::locale_ref);
