// The process of a Spawner (spawner.h), as the program that starts it sees it.
#pragma once

#include <cstddef>

namespace tandem::envs {

// Its command line: one of these, the number of its socket, a label.
extern const char* const kSpawnerArgument;
extern const char* const kBubblewrapSpawnerArgument;

// Bytes of a request; it answers with text and descriptors. An answer that is an error begins with its code, 'A' for
// the first.
inline constexpr size_t kLargestRequest = 65536;

}  // namespace tandem::envs
