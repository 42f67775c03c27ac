// Connection slots of a server, and which connection is closed when all are taken: first those that wait for their
// client to close, then idle ones between two requests, then those that have sent nothing; the oldest first.
//
// Private to wire/. Every operation takes constant time. Thread safety: none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>

namespace tandem::wire {

class HttpPlaces {
 public:
  // In the order in which they are closed; a busy one never is.
  enum class Use : uint8_t { kLingering, kIdle, kSilent, kBusy };

  // RAII: takes a slot, and frees it in the destructor. The slots must outlive it.
  class Place {
   public:
    explicit Place(HttpPlaces& places);
    ~Place();
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

    void use(Use use);
    // `leave` closes the connection. It returns false, and does nothing, where the connection has become busy.
    void leave_by(std::function<bool()> leave) { leave_ = std::move(leave); }

   private:
    friend class HttpPlaces;
    bool leave();

    HttpPlaces& places_;
    std::function<bool()> leave_;
    Use use_ = Use::kBusy;
    bool has_left_ = false;
    std::list<Place*>::iterator at_;  // in the list of its use; of a busy one none
  };

  explicit HttpPlaces(size_t most) : most_(most) {}

  bool is_full() const { return taken_ >= most_; }
  // Whether some connection could probably be closed.
  bool may_make_room() const;
  // Frees a slot if all are taken; false where none could be.
  bool make_room();
  // Closes all connections of this use.
  void leave(Use use);

 private:
  std::list<Place*>& of(Use use) { return waiting_[static_cast<size_t>(use)]; }

  const size_t most_;
  size_t taken_ = 0;
  std::array<std::list<Place*>, 3> waiting_;  // by their use; the oldest first
};

}  // namespace tandem::wire
