#include "base/unique_number.h"

#include <sys/random.h>

namespace tandem {

uint64_t unique_number() {
  uint64_t number = 0;
  // So few bytes come whole; only a signal soon after the kernel's start cuts in.
  do {
    if (::getrandom(&number, sizeof number, 0) != sizeof number) number = 0;
  } while (number == 0);
  return number;
}

}  // namespace tandem
