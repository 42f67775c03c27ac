// The program of spawners and of the first processes of sandboxes: linked statically and with nothing in it that they
// do not need, since every sandbox and every call is a fork of it, and a fork copies what is mapped.
//
// The spawner takes over before main (envs/sandbox/spawner.cpp), where this was started as one.
#include <cstdio>

#include "envs/sandbox/program/program.h"
#include "envs/sandbox/spawner.h"

namespace tandem::envs {

std::string_view sandbox_program() { return {}; }  // there is none inside of it

// So that the spawner is linked.
extern decltype(&Spawner::start) const kStartsSpawners;
decltype(&Spawner::start) const kStartsSpawners = &Spawner::start;

}  // namespace tandem::envs

int main() {
  fputs("this is a part of tandem, which starts it itself\n", stderr);
  return 2;
}
