// A group of processes on one machine, over Unix sockets between every two of them.
//
// A sum takes as much memory as the values again. A rank that dies closes its sockets, which the others see at once,
// whatever they wait for. What comes in is checked against what this rank expects before it is read: operation, number
// in the order of calls, bytes.
#pragma once

#include <memory>

#include "collectives/group.h"
#include "collectives/meeting.h"

namespace tandem::collectives {

// Meets the other ranks: each listens at `folder`/rank-N and calls those below it. kInvalid names the setting;
// kExists: another process listens as this rank; kCorrupt: what called is none of the group; kDeadline names a rank
// that has not come.
Result<std::unique_ptr<Group>> meet_locally(const LocalSettings& settings);

}  // namespace tandem::collectives
