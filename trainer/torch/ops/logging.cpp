// Compiled without PyTorch's headers, which bring another release of fmt than spdlog's.
#include "trainer/torch/ops/logging.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace tandem::torch_ops {

void log_to_stderr() { spdlog::set_default_logger(spdlog::stderr_color_mt("tandem_ops")); }

}  // namespace tandem::torch_ops
