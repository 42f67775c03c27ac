// A loss, or advantages, in TorchScript: a file of Python source, which LibTorch compiles itself, or a module that
// torch.jit.save wrote. Tensors and options are handed over by the names of the function's parameters.
//
// LibTorch 2.11 calls TorchScript deprecated; what comes after it is another reader here.
#include <torch/csrc/jit/frontend/resolver.h>
#include <torch/csrc/jit/frontend/sugared_value.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/script.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "trainer/torch/plugin/user_loss.h"

namespace tandem::torch_plugin {

namespace {

// The functions of the file alone: LibTorch's compiler knows no imports, decorators or texts beside them. What is left
// out becomes an empty line, so that lines keep their numbers.
std::string functions_of(const std::string& source) {
  std::istringstream lines(source);
  std::string result;
  bool inside = false;
  std::string quotes;  // of the text of several lines that is open
  for (std::string line; std::getline(lines, line);) {
    const bool goes_on = line.empty() || line.front() == ' ' || line.front() == '\t' || line.front() == ')' ||
                         line.front() == '#' || !quotes.empty();
    if (!goes_on) inside = line.starts_with("def ");
    const bool is_remark = quotes.empty() && line.starts_with("#");
    result += (inside && !is_remark ? line : "") + "\n";
    for (size_t at = 0; at < line.size();) {
      if (quotes.empty() && line[at] == '#') break;
      const std::string three = line.substr(at, 3);
      const bool is_quotes = three == "\"\"\"" || three == "'''";
      if (is_quotes && (quotes.empty() || quotes == three)) {
        quotes = quotes.empty() ? three : "";
        at += 3;
      } else {
        ++at;
      }
    }
  }
  return result;
}

// `torch` in a script: LibTorch's operators, and the names of types of numbers.
struct TorchNames final : torch::jit::BuiltinModule {
  TorchNames() : BuiltinModule("aten") {}

  std::shared_ptr<torch::jit::SugaredValue> attr(const torch::jit::SourceRange& place,
                                                 torch::jit::GraphFunction& function,
                                                 const std::string& field) override {
    static const std::map<std::string, torch::Dtype> kTypes = {
        {"float16", torch::kFloat16}, {"half", torch::kFloat16},  {"bfloat16", torch::kBFloat16},
        {"float32", torch::kFloat32}, {"float", torch::kFloat32}, {"float64", torch::kFloat64},
        {"double", torch::kFloat64},  {"int8", torch::kInt8},     {"int16", torch::kInt16},
        {"int32", torch::kInt32},     {"int", torch::kInt32},     {"int64", torch::kInt64},
        {"long", torch::kInt64},      {"uint8", torch::kUInt8},   {"bool", torch::kBool}};
    const auto found = kTypes.find(field);
    if (found == kTypes.end()) return BuiltinModule::attr(place, function, field);
    return std::make_shared<torch::jit::SimpleValue>(
        function.graph()->insertConstant(static_cast<int64_t>(found->second), place));
  }
};

struct Names final : torch::jit::Resolver {
  std::shared_ptr<torch::jit::SugaredValue> resolveValue(const std::string& name, torch::jit::GraphFunction& function,
                                                         const torch::jit::SourceRange& place) override {
    if (name == "torch") return std::make_shared<TorchNames>();
    return torch::jit::nativeResolver()->resolveValue(name, function, place);
  }
};

std::shared_ptr<torch::jit::CompilationUnit> compile(const std::string& source) {
  auto unit = std::make_shared<torch::jit::CompilationUnit>();
  unit->define(std::nullopt, functions_of(source), std::make_shared<Names>(), nullptr);
  return unit;
}

// The parameter that is a dictionary.
constexpr const char* kMetrics = "metrics";

// "line 7: AssertionError: its words" of the interpreter's stack, whose last line is the exception; all of any other
// error.
std::string without_stack(std::string_view text) {
  constexpr std::string_view kStack = "Traceback of TorchScript", kLine = ", line ", kOuter = "RuntimeError: ";
  while (text.ends_with('\n')) text.remove_suffix(1);
  if (text.find(kStack) == std::string_view::npos) return std::string(text);
  std::string_view last = text.substr(text.rfind('\n') + 1);
  if (last.starts_with(kOuter)) last.remove_prefix(kOuter.size());
  const size_t at = text.rfind(kLine);
  if (at == std::string_view::npos) return std::string(last);
  const std::string_view number = text.substr(at + kLine.size());
  return "line " + std::string(number.substr(0, number.find_first_not_of("0123456789"))) + ": " + std::string(last);
}

class Script final : public UserFunction {
 public:
  Script(std::shared_ptr<torch::jit::CompilationUnit> unit, const std::string& name,
         const std::vector<std::string>& options)
      : unit_(std::move(unit)), function_(unit_->find_function(c10::QualifiedName(name))) {
    if (function_ == nullptr) {
      std::string names;
      for (const auto* function : unit_->get_functions()) names += (names.empty() ? "" : ", ") + function->name();
      throw std::runtime_error("defines no function " + name + ", only " + (names.empty() ? "nothing" : names));
    }
    read_parameters(function_->getSchema(), 0, options);
  }
  Script(torch::jit::Module module, const std::vector<std::string>& options) : module_(std::move(module)) {
    const auto method = module_.find_method("forward");
    if (!method) throw std::runtime_error("is a module without forward()");
    read_parameters(method->function().getSchema(), 1, options);
  }

  bool takes_reference() const override { return takes("ref_logprobs"); }

  UserOutput call(const LossInput& input) const override {
    std::vector<c10::IValue> arguments;
    for (const Parameter& parameter : parameters_) arguments.push_back(argument(parameter, input));
    return output_of(called(std::move(arguments), input));
  }

 private:
  c10::IValue called(std::vector<c10::IValue> arguments, const LossInput& input) const {
    try {
      return function_ != nullptr ? (*function_)(arguments) : torch::jit::Module(module_).forward(std::move(arguments));
    } catch (const std::exception& error) {
      // A name that no metric has, told by the names that there are and not by the interpreter's own stack.
      constexpr std::string_view kMissing = "KeyError: ";
      const std::string_view text = error.what();
      const size_t at = text.rfind(kMissing);
      if (at == std::string_view::npos || !takes(kMetrics)) throw std::runtime_error(without_stack(text));
      const auto key = text.substr(at + kMissing.size());
      std::string names;
      for (const auto& [name, tensor] : input.metrics) names += (names.empty() ? "" : ", ") + name;
      throw std::runtime_error("a dictionary has no \"" + std::string(key.substr(0, key.find('\n'))) +
                               "\"; metrics has " + (names.empty() ? "nothing" : names));
    }
  }

  struct Parameter {
    std::string name;
    c10::IValue option;  // none: it is an input
  };

  bool takes(std::string_view name) const {
    return std::any_of(parameters_.begin(), parameters_.end(), [&](const auto& p) { return p.name == name; });
  }

  static torch::Tensor LossInput::*tensor_named(const std::string& name) {
    static const std::map<std::string, torch::Tensor LossInput::*> kTensors = {
        {"logprobs", &LossInput::logprobs},
        {"old_logprobs", &LossInput::old_logprobs},
        {"rollout_logprobs", &LossInput::rollout_logprobs},
        {"ref_logprobs", &LossInput::ref_logprobs},
        {"advantages", &LossInput::advantages},
        {"token_rewards", &LossInput::token_rewards},
        {"rewards", &LossInput::rewards},
        {"mask", &LossInput::mask},
        {"segments", &LossInput::segments},
        {"groups", &LossInput::groups}};
    const auto found = kTensors.find(name);
    return found == kTensors.end() ? nullptr : found->second;
  }

  void read_parameters(const c10::FunctionSchema& schema, size_t first, const std::vector<std::string>& options) {
    std::vector<LossOption> declared;
    for (size_t i = first; i < schema.arguments().size(); ++i) {
      const auto& argument = schema.arguments()[i];
      if (tensor_named(argument.name()) != nullptr) {
        if (argument.type()->kind() != c10::TypeKind::TensorType)
          throw std::runtime_error("the parameter " + argument.name() + " is a Tensor");
        continue;
      }
      if (argument.name() == kMetrics) {
        if (argument.type()->annotation_str() != "Dict[str, Tensor]")
          throw std::runtime_error("the parameter metrics is a Dict[str, Tensor]");
        continue;
      }
      if (argument.name() == "step") {
        if (argument.type()->kind() != c10::TypeKind::IntType)
          throw std::runtime_error("the parameter step is an int: write step: int");
        continue;
      }
      declared.push_back(option_of(argument, options));
    }
    set_options(declared, options);
    size_t next = 0;
    for (size_t i = first; i < schema.arguments().size(); ++i) {
      const std::string& name = schema.arguments()[i].name();
      Parameter parameter{name, {}};
      if (next < declared.size() && declared[next].name == name)
        parameter.option = std::visit([](const auto& value) { return c10::IValue(value); }, declared[next++].value);
      parameters_.push_back(std::move(parameter));
    }
  }

  // A parameter that is no input, with its default or what stands for one until set_options().
  static LossOption option_of(const c10::Argument& argument, const std::vector<std::string>& options) {
    const std::string& name = argument.name();
    const bool is_given = std::any_of(options.begin(), options.end(),
                                      [&](const std::string& option) { return option.starts_with(name + "="); });
    const auto& preset = argument.default_value();
    if (!preset && !is_given) {
      throw std::runtime_error("the parameter " + name +
                               " is neither an input nor set. Inputs are logprobs, old_logprobs, rollout_logprobs, "
                               "ref_logprobs, advantages, rewards, token_rewards, mask, segments, groups, metrics and "
                               "step; an option has a default, or algorithm.options: [" +
                               name + "=VALUE]");
    }
    LossOption option(name.c_str(), 0.0);
    switch (argument.type()->kind()) {
      case c10::TypeKind::FloatType:
        option.value = preset ? preset->toDouble() : 0.0;
        return option;
      case c10::TypeKind::IntType:
        option.value = preset ? preset->toInt() : int64_t{0};
        return option;
      case c10::TypeKind::BoolType:
        option.value = preset ? preset->toBool() : false;
        return option;
      case c10::TypeKind::StringType:
        option.value = preset ? preset->toStringRef() : std::string();
        return option;
      default:
        throw std::runtime_error("the parameter " + name + " is of type " + argument.type()->annotation_str() +
                                 "; options are float, int, bool or str, and no input has this name");
    }
  }

  static c10::IValue argument(const Parameter& parameter, const LossInput& input) {
    if (!parameter.option.isNone()) return parameter.option;
    if (parameter.name == "step") return input.step;
    if (parameter.name == kMetrics) {
      c10::Dict<std::string, torch::Tensor> metrics;
      for (const auto& [name, tensor] : input.metrics) metrics.insert(name, tensor);
      return metrics;
    }
    const torch::Tensor& tensor = input.*tensor_named(parameter.name);
    if (!tensor.defined()) throw std::runtime_error("the function takes " + parameter.name + ", which were not given");
    return tensor;
  }

  static UserOutput output_of(const c10::IValue& returned) {
    if (returned.isTensor()) return {returned.toTensor(), {}};
    const char* const wrong = "returns neither a Tensor nor (Tensor, metrics), metrics a Dict[str, Tensor or float]";
    if (!returned.isTuple()) throw std::runtime_error(wrong);
    const auto& elements = returned.toTupleRef().elements();
    if (elements.size() != 2 || !elements[0].isTensor() || !elements[1].isGenericDict())
      throw std::runtime_error(wrong);
    UserOutput output{elements[0].toTensor(), {}};
    for (const auto& entry : elements[1].toGenericDict()) {
      const c10::IValue &key = entry.key(), &value = entry.value();
      if (!key.isString() || !(value.isDouble() || value.isInt() || value.isTensor())) throw std::runtime_error(wrong);
      if (value.isTensor() && value.toTensor().numel() != 1)
        throw std::runtime_error("the metric " + key.toStringRef() + " has " +
                                 std::to_string(value.toTensor().numel()) + " numbers, not one: take its mean()");
      output.metrics[key.toStringRef()] =
          value.isTensor() ? value.toTensor().item<double>() : value.toScalar().toDouble();
    }
    return output;
  }

  std::shared_ptr<torch::jit::CompilationUnit> unit_;  // of source
  torch::jit::Function* function_ = nullptr;
  torch::jit::Module module_;  // of a saved module
  std::vector<Parameter> parameters_;
};

}  // namespace

std::unique_ptr<UserFunction> read_script(const std::string& file, const std::string& name,
                                          const std::vector<std::string>& options) {
  // What is compiled for the shapes of the first calls would add in another order than they did.
  torch::jit::setGraphExecutorOptimize(false);
  std::error_code error;
  if (std::filesystem::exists(file, error) && !std::filesystem::is_regular_file(file, error))
    throw std::runtime_error("is no regular file");
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw std::runtime_error("cannot be read");
  std::ostringstream bytes;
  bytes << stream.rdbuf();
  const std::string content = bytes.str();
  if (content.starts_with("PK")) return std::make_unique<Script>(torch::jit::load(file), options);
  return std::make_unique<Script>(compile(content), name, options);
}

}  // namespace tandem::torch_plugin
