// Which upstream holds an answer that requests may go on from (previous_response_id of /v1/responses).
//
// Bounded: the oldest is forgotten first. Thread safety: none.
#pragma once

#include <deque>
#include <map>
#include <string>

namespace tandem::gateway {

struct ResponsePlace {
  size_t upstream = 0;
  std::string key, model;  // whose it is, and the served name
};

class ResponsePlaces {
 public:
  static constexpr size_t kMost = 100'000;

  void add(const std::string& id, ResponsePlace place) {
    if (places_.insert_or_assign(id, std::move(place)).second) order_.push_back(id);
    while (order_.size() > kMost) {
      places_.erase(order_.front());
      order_.pop_front();
    }
  }
  // Null: there is none of that key.
  const ResponsePlace* find(const std::string& id, const std::string& key) const {
    const auto found = places_.find(id);
    return found == places_.end() || found->second.key != key ? nullptr : &found->second;
  }

 private:
  std::map<std::string, ResponsePlace> places_;
  std::deque<std::string> order_;
};

}  // namespace tandem::gateway
