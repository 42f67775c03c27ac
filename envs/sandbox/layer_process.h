// The process of a LayerHolder (layer_holder.h), as the program that starts it sees it.
#pragma once

#include <cstdint>

namespace tandem::envs {

// Its command line: this, the number of its socket, a label.
extern const char* const kLayerArgument;

// Requests: one of these and numbers, the first of them that of a layer. All but the last are answered, with kWorked or
// why not.
enum class LayerRequest : uint64_t {
  kKeep,   // with the two trees of the layer
  kBegin,  // bytes, then the layers that are begun on, the youngest first; the answer has the two trees of a sandbox,
           // and those that what it writes is in, which is the layer
  kLetGo,
};

}  // namespace tandem::envs
