// The process of a LayerHolder (layer_holder.h), as the program that starts it sees it.
#pragma once

#include <cstdint>

namespace tandem::envs {

// Its command line: this, the number of its socket, a label.
extern const char* const kLayerArgument;

// Requests: one of these and numbers, the first of them that of a layer.
enum class LayerRequest : uint64_t {
  kKeep,   // with the two trees of the layer -> kWorked, or why not
  kBegin,  // bytes, then the layers that are begun on, the youngest first; with a socket, where kWorked goes with the
           // two trees of a sandbox and those that what it writes is in, which is the layer; or why not
  kLetGo,
};

}  // namespace tandem::envs
