#include "envs/sandbox/program.h"

#ifdef TANDEM_SANDBOX_PROGRAM

asm(".pushsection .rodata\n"
    ".balign 16\n"
    "tandem_sandbox_program_begin:\n"
    ".incbin \"" TANDEM_SANDBOX_PROGRAM
    "\"\n"
    "tandem_sandbox_program_end:\n"
    ".popsection\n");
extern "C" {
extern const char tandem_sandbox_program_begin[], tandem_sandbox_program_end[];
}

namespace tandem::envs {

std::string_view sandbox_program() {
  return {tandem_sandbox_program_begin, static_cast<size_t>(tandem_sandbox_program_end - tandem_sandbox_program_begin)};
}

}  // namespace tandem::envs

#else

namespace tandem::envs {

std::string_view sandbox_program() { return {}; }

}  // namespace tandem::envs

#endif
