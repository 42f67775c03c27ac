// The ledger's table of rollout processes: their leases, their credits, and who may steal from whom.
//
// No query scans all workers or episodes. An absent worker keeps its leases until the ledger revokes them.
//
// Thread safety: none; a part of the ledger, pure like it. References stay valid as long as the table.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace tandem::rollout {

class WorkerTable {
 public:
  struct Worker {
    std::string name;
    bool present = false;       // has introduced itself and was not lost
    bool stealing = false;      // its last attempt to steal has not ended
    uint32_t credits = 0;       // episodes that it wants more
    std::set<uint64_t> leased;  // episodes
  };
  struct Theft {
    const Worker* victim = nullptr;
    const Worker* thief = nullptr;
    uint32_t count = 0;
  };

  WorkerTable() = default;
  WorkerTable(WorkerTable&&) = default;
  WorkerTable& operator=(WorkerTable&&) = default;

  // Returns nullptr for a name that was never seen.
  const Worker* find(const std::string& name) const;
  bool is_present(const std::string& name) const;
  const std::map<std::string, Worker>& all() const { return workers_; }

  void set_credits(const std::string& name, uint32_t credits);  // it is present from now on
  void leave(const std::string& name);
  void leave_all();

  void lease(const Worker& worker, std::span<const uint64_t> episodes);  // takes a credit for each
  void release(const std::string& name, uint64_t episode);
  void hand_over(const std::string& from, const std::string& to, uint64_t episode);

  // The first worker by name with credits, and the next one after `worker`; nullptr where there is none.
  const Worker* first_wanting() const;
  const Worker* next_wanting(const Worker& worker) const;

  // Pairs each worker that is dry with the worker that holds most, if the difference is at least `gap`. Marks the
  // former as stealing.
  std::vector<Theft> start_thefts(uint32_t gap);
  void end_theft(const std::string& thief);
  void end_thefts();

  // Inserts a worker of a snapshot.
  void restore(Worker worker);

 private:
  struct ByName {
    bool operator()(const Worker* a, const Worker* b) const { return a->name < b->name; }
  };
  struct MostHeldFirst {
    bool operator()(const Worker* a, const Worker* b) const {
      return a->leased.size() != b->leased.size() ? a->leased.size() > b->leased.size() : a->name < b->name;
    }
  };
  struct FewestHeldFirst {
    bool operator()(const Worker* a, const Worker* b) const {
      return a->leased.size() != b->leased.size() ? a->leased.size() < b->leased.size() : a->name < b->name;
    }
  };
  // All changes of a worker go through here, since the sets below are ordered by its fields.
  template <typename Change>
  void change(Worker& worker, const Change& edit);
  Worker& of(const std::string& name);

  std::map<std::string, Worker> workers_;
  std::set<const Worker*, ByName> wanting_;         // present, with credits
  std::set<const Worker*, MostHeldFirst> holders_;  // that hold something
  std::set<const Worker*, FewestHeldFirst> dry_;    // that want more, hold little, and are not stealing
};

}  // namespace tandem::rollout
