#include "base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <ostream>

#include "base/json_object.h"
#include "base/text.h"

namespace tandem {

// ---- objects ----

size_t JsonObject::find(std::string_view key) const {
  if (slots_.empty()) {
    for (size_t i = 0; i < members_.size(); ++i)
      if (members_[i].key == key) return i;
    return npos;
  }
  const size_t mask = slots_.size() - 1;
  for (size_t slot = std::hash<std::string_view>{}(key)&mask; slots_[slot] != 0; slot = (slot + 1) & mask)
    if (members_[slots_[slot] - 1].key == key) return slots_[slot] - 1;
  return npos;
}

void JsonObject::note(size_t member) {
  const size_t mask = slots_.size() - 1;
  size_t slot = std::hash<std::string_view>{}(members_[member].key) & mask;
  while (slots_[slot] != 0) slot = (slot + 1) & mask;
  slots_[slot] = static_cast<uint32_t>(member + 1);
}

void JsonObject::index_all() {
  slots_.clear();
  if (members_.size() <= kScanned) return;
  size_t slots = 64;
  while (slots < 4 * members_.size()) slots *= 2;
  slots_.resize(slots);
  for (size_t i = 0; i < members_.size(); ++i) note(i);
}

Json& JsonObject::add(std::string key, Json value) {
  members_.push_back({std::move(key), std::move(value)});
  if (members_.size() > kScanned) {
    if (2 * members_.size() > slots_.size())
      index_all();
    else
      note(members_.size() - 1);
  }
  return members_.back().value;
}

void JsonObject::erase(size_t index) {
  members_.erase(members_.begin() + static_cast<ptrdiff_t>(index));
  index_all();
}

// ---- making ----

Json::Json(const Json& other) : type_(other.type_), data_(other.data_) {
  if (type_ == value_t::object) data_.object = new JsonObject(*other.data_.object);
  if (type_ == value_t::array) data_.array = new std::vector<Json>(*other.data_.array);
  if (type_ == value_t::string || is_number_digits()) data_.text = new std::string(*other.data_.text);
}

void Json::release() noexcept {
  if (type_ == value_t::object) delete data_.object;
  if (type_ == value_t::array) delete data_.array;
  if (type_ == value_t::string || is_number_digits()) delete data_.text;
  type_ = value_t::null;
}

Json::Json(std::string value) : type_(value_t::string) { data_.text = new std::string(std::move(value)); }
Json::Json(std::string_view value) : type_(value_t::string) { data_.text = new std::string(value); }

Json::Json(value_t type) : type_(type) {
  if (type_ == value_t::object) data_.object = new JsonObject;
  if (type_ == value_t::array) data_.array = new std::vector<Json>;
  if (type_ == value_t::string) data_.text = new std::string;
  if (is_number_digits()) data_.text = new std::string("0");
}

Json Json::whole_number(std::string_view digits) {
  const auto unsigned_part = digits.substr(digits.starts_with('-') ? 1 : 0);
  if (unsigned_part.empty() || unsigned_part.find_first_not_of("0123456789") != std::string_view::npos ||
      (unsigned_part.size() > 1 && unsigned_part[0] == '0'))
    throw exception(fmt::format("{} is no whole number", digits));
  const auto read = [&](auto value) -> std::optional<Json> {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return error == std::errc() && end == digits.data() + digits.size() ? std::optional(Json(value)) : std::nullopt;
  };
  if (auto value = read(uint64_t{})) return std::move(*value);
  if (auto value = read(int64_t{})) return std::move(*value);
  Json made(value_t::number_digits);
  *made.data_.text = digits;
  return made;
}

Json Json::array(std::initializer_list<JsonItem> items) {
  Json made(value_t::array);
  made.reserve(items.size());
  for (const JsonItem& item : items) made.data_.array->push_back(item.take());
  return made;
}

Json Json::object(std::initializer_list<JsonItem> members) {
  Json made(value_t::object);
  for (const JsonItem& item : members) {
    Json pair = item.take();
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string())
      throw exception("an object is made of pairs of a key and a value");
    if (!made.contains(pair[0].text())) made.data_.object->add(std::move(*pair[0].data_.text), std::move(pair[1]));
  }
  return made;
}

Json::Json(std::initializer_list<JsonItem> items) {
  const bool members = std::all_of(items.begin(), items.end(), [](const JsonItem& item) {
    return item.peek().is_array() && item.peek().size() == 2 && item.peek()[0].is_string();
  });
  *this = members ? object(items) : array(items);
}

// ---- what it is ----

const char* Json::type_name() const noexcept {
  switch (type_) {
    case value_t::null:
      return "null";
    case value_t::object:
      return "object";
    case value_t::array:
      return "array";
    case value_t::string:
      return "string";
    case value_t::boolean:
      return "boolean";
    default:
      return "number";
  }
}

void Json::not_a(const char* wanted) const {
  throw exception(fmt::format("type must be {}, but is {}", wanted, type_name()));
}

const std::string& Json::text() const {
  if (!is_string()) not_a("string");
  return *data_.text;
}

const std::string& Json::digits() const {
  if (!is_number_digits()) not_a("whole number beyond 64 bits");
  return *data_.text;
}

bool Json::boolean() const {
  if (!is_boolean()) not_a("boolean");
  return data_.boolean;
}

int64_t Json::integer() const {
  switch (type_) {
    case value_t::number_integer:
      return data_.integer;
    case value_t::number_unsigned:
      return static_cast<int64_t>(data_.natural);
    case value_t::number_float:
      return static_cast<int64_t>(data_.real);
    case value_t::number_digits:
      return data_.text->starts_with('-') ? INT64_MIN : INT64_MAX;
    case value_t::boolean:
      return data_.boolean ? 1 : 0;
    default:
      not_a("number");
  }
}

uint64_t Json::natural() const {
  if (type_ == value_t::number_unsigned) return data_.natural;
  if (type_ == value_t::number_float) return static_cast<uint64_t>(data_.real);
  if (is_number_digits()) return data_.text->starts_with('-') ? 0 : UINT64_MAX;
  return static_cast<uint64_t>(integer());
}

double Json::real() const {
  switch (type_) {
    case value_t::number_float:
      return data_.real;
    case value_t::number_unsigned:
      return static_cast<double>(data_.natural);
    case value_t::number_digits:
      return std::strtod(data_.text->c_str(), nullptr);
    default:
      return static_cast<double>(integer());
  }
}

std::vector<Json>& Json::list() {
  if (!is_array()) not_a("array");
  return *data_.array;
}
const std::vector<Json>& Json::list() const { return const_cast<Json&>(*this).list(); }

// ---- members and items ----

size_t Json::size() const noexcept {
  if (is_null()) return 0;
  if (is_object()) return data_.object->members().size();
  return is_array() ? data_.array->size() : 1;
}

const Json* Json::find_member(std::string_view key) const {
  if (!is_object()) not_a("object");
  const size_t at = data_.object->find(key);
  return at == JsonObject::npos ? nullptr : &data_.object->members()[at].value;
}

bool Json::contains(std::string_view key) const { return is_object() && find_member(key) != nullptr; }

Json& Json::operator[](std::string_view key) {
  if (is_null()) *this = object();
  if (const Json* found = find_member(key)) return const_cast<Json&>(*found);
  return data_.object->add(std::string(key), Json());
}

const Json& Json::at(std::string_view key) const {
  if (const Json* found = find_member(key)) return *found;
  throw exception(fmt::format("key '{}' not found", key));
}
Json& Json::at(std::string_view key) { return const_cast<Json&>(std::as_const(*this).at(key)); }

const Json& Json::item(size_t index) const {
  const auto& items = list();
  if (index >= items.size()) throw exception(fmt::format("array index {} is out of range", index));
  return items[index];
}

Json& Json::item_or_make(size_t index) {
  if (is_null()) *this = array();
  auto& items = list();
  if (index >= items.size()) items.resize(index + 1);
  return items[index];
}

void Json::push_back(Json value) {
  if (is_null()) *this = array();
  list().push_back(std::move(value));
}

void Json::reserve(size_t items) {
  if (is_array()) data_.array->reserve(items);
  if (is_object()) data_.object->reserve(items);
}

size_t Json::erase(std::string_view key) {
  if (!is_object()) not_a("object");
  const size_t at = data_.object->find(key);
  if (at == JsonObject::npos) return 0;
  data_.object->erase(at);
  return 1;
}

void Json::clear() noexcept {
  if (type_ <= value_t::number_digits && !is_null()) {
    const value_t type = type_;
    release();
    *this = Json(type);
  } else {
    data_ = {};
  }
}

void Json::update(const Json& object) {
  if (is_null()) *this = Json::object();
  if (!is_object()) not_a("object");
  if (!object.is_object()) object.not_a("object");
  for (const auto& member : object.data_.object->members()) (*this)[member.key] = member.value;
}

Json Json::sorted() const {
  Json made(type_);
  if (is_array()) {
    made.reserve(size());
    for (const Json& value : *data_.array) made.push_back(value.sorted());
  } else if (is_object()) {
    std::vector<const JsonObject::Member*> members;
    for (const auto& member : data_.object->members()) members.push_back(&member);
    std::sort(members.begin(), members.end(), [](const auto* a, const auto* b) { return a->key < b->key; });
    for (const auto* member : members) made.data_.object->add(member->key, member->value.sorted());
  } else {
    made = *this;
  }
  return made;
}

Json* Json::place(size_t index) {
  if (is_object()) return &data_.object->members()[index].value;
  return is_array() ? &(*data_.array)[index] : this;
}

const std::string& Json::key_at(size_t index) const {
  if (!is_object()) not_a("object");
  return data_.object->members()[index].key;
}

Json::iterator Json::find(std::string_view key) {
  const auto found = std::as_const(*this).find(key);
  return {this, found.index()};
}
Json::const_iterator Json::find(std::string_view key) const {
  const size_t at = is_object() ? data_.object->find(key) : JsonObject::npos;
  return at == JsonObject::npos ? end() : const_iterator(this, at);
}

std::pair<Json::iterator, bool> Json::emplace(std::string_view key, Json value) {
  if (is_null()) *this = object();
  if (!is_object()) not_a("object");
  if (const size_t at = data_.object->find(key); at != JsonObject::npos) return {{this, at}, false};
  data_.object->add(std::string(key), std::move(value));
  return {{this, size() - 1}, true};
}

Json::iterator Json::erase(const_iterator place) {
  if (is_object())
    data_.object->erase(place.index());
  else
    list().erase(list().begin() + static_cast<ptrdiff_t>(place.index()));
  return {this, place.index()};
}

Json::iterator Json::insert(const_iterator place, Json value) {
  list().insert(list().begin() + static_cast<ptrdiff_t>(place.index()), std::move(value));
  return {this, place.index()};
}

// ---- comparing ----

namespace {

bool same_members(const JsonObject& a, const JsonObject& b) {
  return std::equal(a.members().begin(), a.members().end(), b.members().begin(), b.members().end(),
                    [](const auto& x, const auto& y) { return x.key == y.key && x.value == y.value; });
}

}  // namespace

bool Json::equals(const Json& other) const {
  if (is_number() && other.is_number()) {
    if (is_number_digits() && other.is_number_digits()) return *data_.text == *other.data_.text;
    if (is_number_digits() != other.is_number_digits() && (is_number_integer() || other.is_number_integer()))
      return false;
    if (is_number_float() || other.is_number_float()) return real() == other.real();
    if (type_ == other.type_) return data_.natural == other.data_.natural;
    const Json& whole = type_ == value_t::number_integer ? *this : other;
    return whole.data_.integer >= 0 && data_.natural == other.data_.natural;
  }
  if (type_ != other.type_) return false;
  switch (type_) {
    case value_t::object:
      return same_members(*data_.object, *other.data_.object);
    case value_t::array:
      return *data_.array == *other.data_.array;
    case value_t::string:
      return *data_.text == *other.data_.text;
    case value_t::boolean:
      return data_.boolean == other.data_.boolean;
    default:
      return true;
  }
}

// ---- pointers ----

JsonPointer::JsonPointer(std::string_view text) {
  if (text.empty()) return;
  if (text[0] != '/') throw Json::exception(fmt::format("JSON pointer must be empty or begin with '/': '{}'", text));
  for (size_t at = 1; at <= text.size();) {
    const size_t end = std::min(text.find('/', at), text.size());
    std::string part;
    for (; at < end; ++at) {
      if (text[at] != '~') {
        part += text[at];
        continue;
      }
      if (at + 1 >= end || (text[at + 1] != '0' && text[at + 1] != '1'))
        throw Json::exception("escape character '~' must be followed with '0' or '1'");
      part += text[++at] == '0' ? '~' : '/';
    }
    parts_.push_back(std::move(part));
    at = end + 1;
  }
}

std::string JsonPointer::to_string() const {
  std::string text;
  for (const auto& part : parts_) {
    text += '/';
    for (const char c : part) text += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  }
  return text;
}

namespace {

const Json* child(const Json& of, const std::string& part) {
  if (of.is_object()) {
    const auto found = of.find(part);
    return found == of.end() ? nullptr : &*found;
  }
  const bool digits = !part.empty() && part.size() <= 9 && part.find_first_not_of("0123456789") == std::string::npos;
  if (!of.is_array() || !digits || (part.size() > 1 && part[0] == '0')) return nullptr;
  const size_t index = std::stoul(part);
  return index < of.size() ? &of[index] : nullptr;
}

const Json* follow(const Json& from, const JsonPointer& pointer) {
  const Json* at = &from;
  for (const auto& part : pointer.parts())
    if ((at = child(*at, part)) == nullptr) break;
  return at;
}

}  // namespace

bool Json::contains(const JsonPointer& pointer) const { return follow(*this, pointer) != nullptr; }

const Json& Json::at(const JsonPointer& pointer) const {
  if (const Json* found = follow(*this, pointer)) return *found;
  throw exception(fmt::format("nothing is at {}", pointer.to_string()));
}

std::ostream& operator<<(std::ostream& out, const Json& value) {
  return out << value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string dump_json(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

Result<int> format_of(const Json& object, int newest) {
  const auto found = object.find("format");
  const Json format = found == object.end() ? Json(1) : *found;
  const double number = format.is_number_integer() ? format.get<double>() : 0;
  const int oldest = std::max(1, newest - 1);
  if (number >= oldest && number <= newest) return format.get<int>();
  const std::string read =
      oldest == newest ? fmt::format("format {}", newest) : fmt::format("formats {} to {}", oldest, newest);
  return fail(Status::invalid(fmt::format("is of format {}; this program reads {}", dump_json(format), read)));
}

Result<bool> bool_at(const Json& object, std::string_view key, bool otherwise) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (found == object.end() || found->is_null()) return otherwise;
  if (!found->is_boolean()) return fail(Status::invalid(fmt::format("{} is {}, not a bool", key, dump_json(*found))));
  return found->get<bool>();
}

Status check_keys(const Json& object, std::initializer_list<std::string_view> allowed) {
  return check_keys(object, std::span(allowed.begin(), allowed.size()));
}

Status check_keys(const Json& object, std::span<const std::string_view> allowed) {
  for (const auto& [key, value] : object.items()) {
    if (std::find(allowed.begin(), allowed.end(), key) != allowed.end()) continue;
    return Status::invalid(fmt::format("unknown key \"{}\"{}", key, did_you_mean(key, allowed)));
  }
  return {};
}

}  // namespace tandem
