// The program of spawners, of what holds layers and of the first processes of sandboxes: linked statically and with
// nothing in it that they do not need, since every sandbox and every call is a fork of it, and a fork copies what is
// mapped.
//
// The spawner, a guest, what holds layers and what prepares images take over before main, where this was started as one
// of them.
#include <cstdio>

#include "envs/container/image_plan.h"
#include "envs/sandbox/guest.h"
#include "envs/sandbox/layer_process.h"
#include "envs/sandbox/program.h"
#include "envs/sandbox/spawner.h"

namespace tandem::envs {

std::string_view sandbox_program() { return {}; }  // there is none inside of it

// So that they are linked.
extern decltype(&Spawner::start) const kStartsSpawners;
decltype(&Spawner::start) const kStartsSpawners = &Spawner::start;
extern const char* const* const kGuests;
const char* const* const kGuests = &kGuestArgument;
extern const char* const* const kLayers;
const char* const* const kLayers = &kLayerArgument;
extern const char* const* const kPreparations;
const char* const* const kPreparations = &kPrepareArgument;

}  // namespace tandem::envs

int main() {
  fputs("this is a part of tandem, which starts it itself\n", stderr);
  return 2;
}
