// A program that answers lines on its standard input with lines on its standard output.
#pragma once

#include <memory>

#include "envs/foreign/environment_line.h"

namespace tandem::envs {

Result<std::unique_ptr<EnvironmentLine>> open_stdio_line(const EnvironmentSpec& spec);

}  // namespace tandem::envs
