#include "serve/response_store.h"

#include <vector>

namespace tandem::serve {
std::shared_ptr<const ResponseStore::Answer> ResponseStore::find(const std::string& id, const std::string& key) const {
  const auto found = answers_.find(id);
  return found != answers_.end() && found->second->key == key ? found->second : nullptr;
}

void ResponseStore::add(const std::string& id, const std::string& key, const std::string& previous, const Json& items,
                        const Json& body) {
  std::string items_text = dump_json(items), body_text = dump_json(body);
  const size_t bytes = items_text.size() + body_text.size() + id.size() + key.size() + sizeof(Answer);
  if (bytes > most_bytes_) return;
  const std::scoped_lock lock(mutex_);
  auto before = previous.empty() ? nullptr : find(previous, key);
  // What it went on from is gone meanwhile: it would be half a conversation.
  if (!previous.empty() && !before) return;
  const size_t turn = before ? before->turn + 1 : 1;
  if (turn > kMostTurns) return;
  const auto answer = std::make_shared<Answer>(used_, bytes);
  answer->key = key;
  answer->previous = std::move(before);
  answer->items = std::move(items_text);
  answer->body = std::move(body_text);
  answer->turn = turn;
  answers_[id] = answer;
  order_.push_back(id);
  while (*used_ > most_bytes_ && !order_.empty()) {
    answers_.erase(order_.front());
    order_.pop_front();
  }
  if (order_.size() > 2 * answers_.size() + 64)
    std::erase_if(order_, [&](const auto& one) { return !answers_.contains(one); });
}

std::optional<Json> ResponseStore::items_until(const std::string& id, const std::string& key) const {
  const std::scoped_lock lock(mutex_);
  std::vector<const Answer*> chain;
  const auto last = find(id, key);
  if (!last) return std::nullopt;
  for (const Answer* one = last.get(); one != nullptr; one = one->previous.get()) chain.push_back(one);
  Json items = Json::array();
  for (auto one = chain.rbegin(); one != chain.rend(); ++one) {
    auto some = parse_json((*one)->items);
    for (Json& item : *some) items.push_back(std::move(item));
  }
  return items;
}

std::optional<Json> ResponseStore::body(const std::string& id, const std::string& key) const {
  const std::scoped_lock lock(mutex_);
  const auto answer = find(id, key);
  return answer ? std::optional(*parse_json(answer->body)) : std::nullopt;
}

bool ResponseStore::remove(const std::string& id, const std::string& key) {
  const std::scoped_lock lock(mutex_);
  return find(id, key) && answers_.erase(id) > 0;
}

size_t ResponseStore::answers() const {
  const std::scoped_lock lock(mutex_);
  return answers_.size();
}

size_t ResponseStore::bytes() const {
  const std::scoped_lock lock(mutex_);
  return *used_;
}

}  // namespace tandem::serve
