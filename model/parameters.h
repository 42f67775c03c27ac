// Where each parameter of a model lies in one flat array, the same for weights, masters, gradients and moments.
//
// Matrices that are used together lie together ([q | k | v], [gate | up], the experts of a layer), so one product
// serves them; each keeps the names that a checkpoint gives to its parts. A layout is a pure function of the config:
// two processes that agree on the config agree on every offset, which is what lets a weight update be a range of bytes.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "model/config.h"

namespace tandem::model {

// Rows [first_row, first_row + rows) of a parameter, under the name of the checkpoint.
struct ParameterPart {
  std::string checkpoint_name;
  int first_row = 0;
  int rows = 0;
};

struct Parameter {
  std::string name;       // "layers.3.qkv"
  size_t offset = 0;      // elements from the start of the flat array
  int rows = 0;           // outputs of a matrix, 1 for a norm
  int columns = 0;        // inputs
  bool matrix = false;    // packed for products
  bool bias = false;      // one number a row
  bool split = false;     // three rows whose sum is an fp32 row of the checkpoint; not trained
  int groups = 1;         // experts, or heads: as many matrices, equal parts of the rows, packed one by one
  int absorbed_rows = 0;  // the first of each group's are multiplied by their transpose, as a matrix of their own
  std::vector<ParameterPart> parts;
  size_t elements() const { return static_cast<size_t>(rows) * columns; }
  int group_rows() const { return rows / groups; }
};

// Indices into parameters; -1 for what the layer does not have.
struct LayerParameters {
  int attention_norm = 0, qkv = 0, output = 0, mlp_norm = 0;
  int qkv_bias = -1, output_bias = -1, query_norm = -1, key_norm = -1, attention_post_norm = -1, mlp_post_norm = -1;
  int router_bias = -1, shared_gate_up = -1, shared_down = -1;
  int query_up = -1, key_value_up = -1;  // of latent attention, whose qkv makes latents and whose norms are theirs
  int router = -1;                       // where there is one, gate_up and down are those of all experts
  int gate_up = 0, down = 0;
};

struct ParameterLayout {
  std::vector<Parameter> parameters;
  std::vector<LayerParameters> layers;
  int embedding = 0, final_norm = 0;
  int head = 0;  // equal to `embedding` where they are tied
  size_t elements = 0;
};

// kInvalid names a feature of the config that the transformer does not compute.
Result<ParameterLayout> parameter_layout(const ModelConfig& config);

}  // namespace tandem::model
