// The public functions of norms and gates that quantise: arguments checked, then handed to the instruction set of the
// stream.
#include "kernels/fused_ops.h"

#include "kernels/argument_check.h"
#include "kernels/cpu/operations.h"

namespace tandem::kernels {

// What NormQuantize and GateQuantize share.
template <typename Arguments>
static Status check_codes(const char* operation, const Arguments& a) {
  return Check{operation}
      .positive("rows", a.rows)
      .positive("width", a.width)
      .that(a.out || a.codes, "neither out nor codes is given")
      .that((a.codes == nullptr) == (a.scales == nullptr), "codes and scales go together")
      .that(a.block == kScaleBlock || a.block == kMicroscaleBlock, "block must be 128 or 32")
      .status;
}

Status norm_quantize(Stream& stream, const NormQuantize& a) {
  TRY(Check{"norm_quantize"}.given("x", a.x).given("weight", a.weight).status);
  TRY(check_codes("norm_quantize", a));
  stream.operations().norm_quantize(stream.threads(), a);
  return {};
}

Status gate_quantize(Stream& stream, const GateQuantize& a) {
  TRY(Check{"gate_quantize"}
          .given("gate_up", a.gate_up)
          .that(a.activation == GateActivation::kSilu || a.activation == GateActivation::kGeluTanh,
                "activation is none that there is")
          .status);
  TRY(check_codes("gate_quantize", a));
  stream.operations().gate_quantize(stream.threads(), a);
  return {};
}

}  // namespace tandem::kernels
