// The places of a server for connections, and which of them make room where all are taken: first those that only wait
// for their client to close, then those between two requests, then those that have sent nothing; of each the oldest.
//
// Private to wire/. A place has the same time whichever and however many others there are. Thread safety: none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>

namespace tandem::wire {

class HttpPlaces {
 public:
  // The order is that in which they make room; a busy one never does.
  enum class Use : uint8_t { kLingering, kIdle, kSilent, kBusy };

  // Taken as it is made, free as it goes. The places must outlive it.
  class Place {
   public:
    explicit Place(HttpPlaces& places);
    ~Place();
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

    void use(Use use);
    // `leave` closes the connection; false, and nothing is done, where there is something to do for it by now.
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
  // Whether there is one that looks as if it could make room.
  bool may_make_room() const;
  // False where all are taken and none leaves.
  bool make_room();
  // Closes all of this use.
  void leave(Use use);

 private:
  std::list<Place*>& of(Use use) { return waiting_[static_cast<size_t>(use)]; }

  const size_t most_;
  size_t taken_ = 0;
  std::array<std::list<Place*>, 3> waiting_;  // by their use; the oldest first
};

}  // namespace tandem::wire
