// JSON values that keep the order of their members, and a strict parser for foreign JSON.
//
// Json is a value: it copies deeply, compares and prints. The header is light on purpose, since half of the product
// includes it: text is read and written by nlohmann's library, which json_text.cpp alone sees.
//
// Objects keep the order of their keys and find a key of many in constant time. Equal objects have equal members in the
// same order; numbers compare by value, whatever they are stored as. A whole number beyond 64 bits keeps its digits: it
// is a floating-point number everywhere but in text, in comparisons and in digits().
//
// Thread safety: as a standard container's. References and iterators last as those of a vector do.
// Errors: a value asked for what it is not throws Json::exception; code that reads foreign JSON asks `is_...` first, or
// catches it. At the borders of modules, use parse_json, which returns a Result.
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <iosfwd>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/status.h"

namespace tandem {

class JsonItem;     // of an initializer list
class JsonObject;   // members in order, json_object.h
class JsonPointer;  // "/tools/0/name", RFC 6901

class Json {
 public:
  enum class value_t : uint8_t {
    null,
    object,
    array,
    string,
    number_digits,  // a whole number beyond 64 bits
    boolean,
    number_integer,
    number_unsigned,
    number_float
  };
  enum class error_handler_t : uint8_t { strict, replace };
  using json_pointer = JsonPointer;

  class exception : public std::exception {
   public:
    explicit exception(std::string what) : what_(std::move(what)) {}
    const char* what() const noexcept override { return what_.c_str(); }

   private:
    std::string what_;
  };

  // ---- making ----
  Json() noexcept = default;
  Json(std::nullptr_t) noexcept {}
  Json(const Json& other);
  Json(Json&& other) noexcept : type_(other.type_), data_(other.data_) { other.type_ = value_t::null; }
  Json& operator=(Json other) noexcept {
    swap(other);
    return *this;
  }
  ~Json() {
    if (type_ <= value_t::number_digits) release();
  }

  template <typename T>
  requires std::is_same_v<T, bool> Json(T value)
  noexcept : type_(value_t::boolean) { data_.boolean = value; }
  template <typename T>
  requires(std::is_integral_v<T> && !std::is_same_v<T, bool>) Json(T value)
  noexcept {
    if constexpr (std::is_signed_v<T>) {
      type_ = value_t::number_integer;
      data_.integer = value;
    } else {
      type_ = value_t::number_unsigned;
      data_.natural = value;
    }
  }
  Json(double value) noexcept : type_(value_t::number_float) { data_.real = value; }
  Json(float value) noexcept : Json(static_cast<double>(value)) {}
  Json(std::string value);
  Json(std::string_view value);
  Json(const char* value) : Json(std::string_view(value)) {}
  Json(value_t type);  // the empty value of that type
  // A whole number as it is written: a minus or none, digits, no leading zeros. Throws where it is none.
  static Json whole_number(std::string_view digits);

  template <typename T, typename A>
  requires std::is_constructible_v<Json, T> Json(const std::vector<T, A>& values) : Json(value_t::array) {
    reserve(values.size());
    for (const auto& value : values) push_back(Json(static_cast<const T&>(value)));
  }
  template <typename T, size_t N>
  Json(const std::array<T, N>& values) : Json(value_t::array) {
    for (const auto& value : values) push_back(Json(value));
  }
  template <typename T, size_t N>
  Json(std::span<T, N> values) : Json(value_t::array) {
    for (const auto& value : values) push_back(Json(value));
  }
  template <typename A, typename B>
  Json(const std::pair<A, B>& pair) : Json(value_t::array) {
    push_back(Json(pair.first));
    push_back(Json(pair.second));
  }
  template <typename T>
  Json(const std::set<T>& values) : Json(value_t::array) {
    for (const auto& value : values) push_back(Json(value));
  }
  template <typename T, typename C>
  Json(const std::map<std::string, T, C>& values) : Json(value_t::object) {
    for (const auto& [key, value] : values) (*this)[key] = Json(value);
  }

  // An object where every item is a pair that begins with a string, else an array.
  Json(std::initializer_list<JsonItem> items);
  static Json object() { return Json(value_t::object); }
  static Json object(std::initializer_list<JsonItem> members);
  static Json array() { return Json(value_t::array); }
  static Json array(std::initializer_list<JsonItem> items);

  // ---- what it is ----
  value_t type() const noexcept { return type_; }
  const char* type_name() const noexcept;  // "object", "number"
  bool is_null() const noexcept { return type_ == value_t::null; }
  bool is_object() const noexcept { return type_ == value_t::object; }
  bool is_array() const noexcept { return type_ == value_t::array; }
  bool is_string() const noexcept { return type_ == value_t::string; }
  bool is_boolean() const noexcept { return type_ == value_t::boolean; }
  bool is_number() const noexcept { return type_ >= value_t::number_integer || is_number_digits(); }
  bool is_number_integer() const noexcept {
    return type_ == value_t::number_integer || type_ == value_t::number_unsigned;
  }
  bool is_number_unsigned() const noexcept { return type_ == value_t::number_unsigned; }
  bool is_number_float() const noexcept { return type_ == value_t::number_float || is_number_digits(); }
  bool is_number_digits() const noexcept { return type_ == value_t::number_digits; }  // digits() has them
  bool is_structured() const noexcept { return is_object() || is_array(); }

  // ---- the value itself ----
  // Numbers are converted as by a cast, booleans count as 0 and 1. Lists and maps are read item by item.
  template <typename T>
  T get() const;
  template <typename T>
  const std::string& get_ref() const {
    static_assert(std::is_same_v<T, const std::string&>);
    return text();
  }
  // The digits of a whole number beyond 64 bits, as written.
  const std::string& digits() const;
  template <typename T>
  const std::string* get_ptr() const {
    static_assert(std::is_same_v<T, const std::string*>);
    return is_string() ? data_.text : nullptr;
  }

  // ---- members and items ----
  size_t size() const noexcept;  // 0 for null, 1 for what has no items
  bool empty() const noexcept { return size() == 0; }
  bool contains(std::string_view key) const;
  bool contains(const JsonPointer& pointer) const;
  size_t count(std::string_view key) const { return contains(key) ? 1 : 0; }
  // The member, made as null where it is missing; a null becomes an object.
  Json& operator[](std::string_view key);
  Json& operator[](const std::string& key) { return (*this)[std::string_view(key)]; }
  Json& operator[](const char* key) { return (*this)[std::string_view(key)]; }
  // Throws where it is missing.
  const Json& operator[](std::string_view key) const { return at(key); }
  const Json& operator[](const std::string& key) const { return at(std::string_view(key)); }
  const Json& operator[](const char* key) const { return at(std::string_view(key)); }
  Json& at(std::string_view key);
  const Json& at(std::string_view key) const;
  Json& at(const char* key) { return at(std::string_view(key)); }
  const Json& at(const char* key) const { return at(std::string_view(key)); }
  Json& at(const std::string& key) { return at(std::string_view(key)); }
  const Json& at(const std::string& key) const { return at(std::string_view(key)); }
  const Json& at(const JsonPointer& pointer) const;
  // The item; operator[] makes nulls up to it.
  template <typename I>
  requires std::is_integral_v<I> Json& operator[](I index) { return item_or_make(static_cast<size_t>(index)); }
  template <typename I>
  requires std::is_integral_v<I>
  const Json& operator[](I index) const { return item(static_cast<size_t>(index)); }
  template <typename I>
  requires std::is_integral_v<I> Json& at(I index) { return const_cast<Json&>(item(static_cast<size_t>(index))); }
  template <typename I>
  requires std::is_integral_v<I>
  const Json& at(I index) const { return item(static_cast<size_t>(index)); }
  // The member, or `otherwise` where it is missing.
  template <typename T>
  T value(std::string_view key, T otherwise) const {
    const Json* found = find_member(key);
    return found == nullptr ? std::move(otherwise) : found->get<T>();
  }
  std::string value(std::string_view key, const char* otherwise) const { return value(key, std::string(otherwise)); }
  Json& front() { return (*this)[0]; }
  const Json& front() const { return item(0); }
  Json& back() { return const_cast<Json&>(item(size() - 1)); }
  const Json& back() const { return item(size() - 1); }

  void push_back(Json value);  // to an array; a null becomes one
  template <typename... A>
  Json& emplace_back(A&&... arguments) {
    push_back(Json(std::forward<A>(arguments)...));
    return back();
  }
  size_t erase(std::string_view key);  // members removed
  void clear() noexcept;
  void reserve(size_t items);
  void update(const Json& object);  // its members, over those of the same keys
  void swap(Json& other) noexcept {
    std::swap(type_, other.type_);
    std::swap(data_, other.data_);
  }
  friend void swap(Json& a, Json& b) noexcept { a.swap(b); }
  // Objects with their keys in the order of bytes, all the way down.
  Json sorted() const;

  template <bool kConst>
  class Iterator;
  using iterator = Iterator<false>;
  using const_iterator = Iterator<true>;
  // Iterates over items of an array or values of an object; `key()` is that of the member. Any other value is its own
  // only item.
  iterator begin();
  iterator end();
  const_iterator begin() const;
  const_iterator end() const;
  iterator find(std::string_view key);
  const_iterator find(std::string_view key) const;
  std::pair<iterator, bool> emplace(std::string_view key, Json value);  // nothing where the key is there
  iterator erase(const_iterator place);
  iterator insert(const_iterator place, Json value);  // into an array

  template <bool kConst>
  class Members;
  Members<false> items();  // pairs of key and value; of arrays, numbers are the keys
  Members<true> items() const;

  // ---- text ----
  // One line where `indent` is negative. `strict` throws where a string is not UTF-8, `replace` writes U+FFFD.
  std::string dump(int indent = -1, char fill = ' ', bool ascii = false,
                   error_handler_t errors = error_handler_t::strict) const;
  static Json parse(std::string_view text);  // throws; for text of our own

  friend bool operator==(const Json& a, const Json& b) { return a.equals(b); }
  friend std::ostream& operator<<(std::ostream& out, const Json& value);

 private:
  friend class JsonObject;
  template <bool kConst>
  friend class Iterator;

  union Data {
    JsonObject* object;
    std::vector<Json>* array;
    std::string* text;
    bool boolean;
    int64_t integer;
    uint64_t natural;
    double real;
  };

  void release() noexcept;
  bool equals(const Json& other) const;
  [[noreturn]] void not_a(const char* wanted) const;
  const std::string& text() const;
  bool boolean() const;
  int64_t integer() const;
  uint64_t natural() const;
  double real() const;
  std::vector<Json>& list();
  const std::vector<Json>& list() const;
  const Json* find_member(std::string_view key) const;  // throws where it is no object
  const Json& item(size_t index) const;
  Json& item_or_make(size_t index);
  Json* place(size_t index);  // of an iterator; size() is the end
  const std::string& key_at(size_t index) const;

  value_t type_ = value_t::null;
  Data data_{};
};

// An item of a braced list: a value, or another braced list.
class JsonItem {
 public:
  template <typename T>
  requires std::is_constructible_v<Json, T&&> JsonItem(T&& value) : value_(std::forward<T>(value)) {}
  JsonItem(std::initializer_list<JsonItem> items) : value_(items) {}
  const Json& peek() const { return value_; }
  Json take() const { return std::move(value_); }

 private:
  mutable Json value_;
};

class JsonPointer {
 public:
  JsonPointer() = default;
  explicit JsonPointer(std::string_view text);  // throws Json::exception where it is none
  std::string to_string() const;
  const std::vector<std::string>& parts() const { return parts_; }

 private:
  std::vector<std::string> parts_;  // unescaped
};

template <bool kConst>
class Json::Iterator {
 public:
  using owner_t = std::conditional_t<kConst, const Json, Json>;
  using iterator_category = std::random_access_iterator_tag;
  using difference_type = std::ptrdiff_t;
  using value_type = Json;
  using pointer = owner_t*;
  using reference = owner_t&;

  Iterator() = default;
  Iterator(owner_t* owner, size_t index) : owner_(owner), index_(index) {}
  operator Iterator<true>() const requires(!kConst) { return {owner_, index_}; }
  reference operator*() const { return *const_cast<Json*>(owner_)->place(index_); }
  pointer operator->() const { return const_cast<Json*>(owner_)->place(index_); }
  reference operator[](difference_type by) const { return *(*this + by); }
  const std::string& key() const { return owner_->key_at(index_); }
  reference value() const { return **this; }
  size_t index() const { return index_; }
  Iterator& operator++() { return ++index_, *this; }
  Iterator operator++(int) { return {owner_, index_++}; }
  Iterator& operator--() { return --index_, *this; }
  Iterator operator--(int) { return {owner_, index_--}; }
  Iterator& operator+=(difference_type by) { return index_ += static_cast<size_t>(by), *this; }
  Iterator& operator-=(difference_type by) { return index_ -= static_cast<size_t>(by), *this; }
  friend Iterator operator+(Iterator it, difference_type by) { return it += by; }
  friend Iterator operator+(difference_type by, Iterator it) { return it += by; }
  friend Iterator operator-(Iterator it, difference_type by) { return it -= by; }
  friend difference_type operator-(const Iterator& a, const Iterator& b) {
    return static_cast<difference_type>(a.index_) - static_cast<difference_type>(b.index_);
  }
  friend bool operator==(const Iterator& a, const Iterator& b) { return a.index_ == b.index_; }
  friend auto operator<=>(const Iterator& a, const Iterator& b) { return a.index_ <=> b.index_; }

 private:
  owner_t* owner_ = nullptr;
  size_t index_ = 0;
};

template <bool kConst>
class Json::Members {
 public:
  using owner_t = std::conditional_t<kConst, const Json, Json>;
  struct Member {
    const std::string& first;  // of an object, its own key; else valid until the next step
    owner_t& second;
    const std::string& key() const { return first; }
    owner_t& value() const { return second; }
  };
  class Place {
   public:
    Place(Iterator<kConst> at, bool named) : at_(at), named_(named) {}
    Member operator*() const {
      if (!named_) number_ = std::to_string(at_.index());
      return {named_ ? at_.key() : number_, *at_};
    }
    Place& operator++() { return ++at_, *this; }
    friend bool operator==(const Place& a, const Place& b) { return a.at_ == b.at_; }

   private:
    Iterator<kConst> at_;
    bool named_;
    mutable std::string number_;
  };
  explicit Members(owner_t& owner) : owner_(owner) {}
  Place begin() const { return {owner_.begin(), owner_.is_object()}; }
  Place end() const { return {owner_.end(), owner_.is_object()}; }

 private:
  owner_t& owner_;
};

inline Json::iterator Json::begin() { return {this, 0}; }
inline Json::iterator Json::end() { return {this, size()}; }
inline Json::const_iterator Json::begin() const { return {this, 0}; }
inline Json::const_iterator Json::end() const { return {this, size()}; }
inline Json::Members<false> Json::items() { return Members<false>(*this); }
inline Json::Members<true> Json::items() const { return Members<true>(*this); }

namespace json_detail {
template <typename T>
inline constexpr bool kIsList = false;
template <typename T, typename A>
inline constexpr bool kIsList<std::vector<T, A>> = true;
template <typename T>
inline constexpr bool kIsMap = false;
template <typename T, typename C>
inline constexpr bool kIsMap<std::map<std::string, T, C>> = true;
}  // namespace json_detail

template <typename T>
T Json::get() const {
  if constexpr (std::is_same_v<T, Json>) {
    return *this;
  } else if constexpr (std::is_same_v<T, std::string> || std::is_same_v<T, std::string_view>) {
    return T(text());
  } else if constexpr (std::is_same_v<T, bool>) {
    return boolean();
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(real());
  } else if constexpr (std::is_integral_v<T>) {
    if constexpr (std::is_unsigned_v<T>) return static_cast<T>(natural());
    return static_cast<T>(integer());
  } else if constexpr (json_detail::kIsList<T>) {
    T values;
    values.reserve(list().size());
    for (const Json& value : list()) values.push_back(value.get<typename T::value_type>());
    return values;
  } else {
    static_assert(json_detail::kIsMap<T>, "Json::get: no such type");
    T values;
    if (!is_object()) not_a("object");
    for (auto it = begin(); it != end(); ++it) values[it.key()] = it->get<typename T::mapped_type>();
    return values;
  }
}

// Parses one value. Duplicate keys, nesting beyond 64, numbers beyond a double, and anything after the value are errors
// that name line and column.
Result<Json> parse_json(std::string_view text);

// One line; bytes that are not UTF-8 become U+FFFD rather than an exception.
std::string dump_json(const Json& value);

// Reads the format version of a file from the key "format" of its JSON; 1 where the key is missing. `newest` and the
// version before it are accepted; any other is kInvalid, with both numbers in the message.
Result<int> format_of(const Json& object, int newest);

// The member `key`; `otherwise` where it is missing, null, or `object` is none. kInvalid, naming the key, where it is
// no bool.
Result<bool> bool_at(const Json& object, std::string_view key, bool otherwise);

// Checks that all keys of `object` are among `allowed`. The error names the first unknown key and the nearest allowed
// one.
Status check_keys(const Json& object, std::span<const std::string_view> allowed);
Status check_keys(const Json& object, std::initializer_list<std::string_view> allowed);

}  // namespace tandem
