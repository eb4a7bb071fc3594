// Two devices for tests on machines that have none. Their memory is the processor's and the processor computes, but
// tensors, generators and events belong to a device, and what CUDA refuses to mix is refused here.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>
#include <unistd.h>

#include <array>
#include <chrono>

namespace stand_in {

using at::Tensor;
using c10::Device;
using c10::DeviceIndex;
using c10::IValue;

constexpr auto KIND = c10::DeviceType::PrivateUse1;
constexpr DeviceIndex DEVICES = 2;
thread_local DeviceIndex current_index = 0;
const auto first_process = getpid();

Device with_index(Device device) {
  return Device(KIND, device.has_index() ? device.index() : current_index);
}

// ---- Devices, streams (one each, synchronous) and events ----------------------------------------------------------

struct Event {
  DeviceIndex device;
  std::chrono::steady_clock::time_point time;
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return KIND; }
  Device getDevice() const override { return Device(KIND, current_index); }
  void setDevice(Device device) const override {
    TORCH_CHECK(device.index() < DEVICES, "invalid device ordinal");
    if (device.index() >= 0) current_index = device.index();
  }
  void uncheckedSetDevice(Device device) const noexcept override { current_index = device.index(); }
  Device exchangeDevice(Device device) const override {
    const auto before = getDevice();
    setDevice(device);
    return before;
  }
  DeviceIndex deviceCount() const noexcept override { return DEVICES; }
  c10::Stream getStream(Device device) const override { return c10::Stream(c10::Stream::DEFAULT, with_index(device)); }
  c10::Stream getDefaultStream(Device device) const override { return getStream(device); }
  c10::Stream getNewStream(Device device, int) const override { return getStream(device); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return getStream(stream.device()); }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeDevice(const DeviceIndex) const override {}
  void record(void** event, const c10::Stream& stream, const DeviceIndex device, const c10::EventFlag) const override {
    TORCH_CHECK(device == -1 || device == stream.device_index(), "Event device ", int(device),
                " does not match recording stream's device ", int(stream.device_index()));
    delete static_cast<Event*>(*event);
    *event = new Event{stream.device_index(), std::chrono::steady_clock::now()};
  }
  void destroyEvent(void* event, const DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override {}
  double elapsedTime(void* start, void* end, const DeviceIndex) const override {
    const std::chrono::duration<double, std::milli> passed =
        static_cast<Event*>(end)->time - static_cast<Event*>(start)->time;
    return passed.count();
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

// ---- Generators ---------------------------------------------------------------------------------------------------

struct Generator final : c10::GeneratorImpl {
  explicit Generator(DeviceIndex index, at::Generator source = at::detail::createCPUGenerator())
      : GeneratorImpl(Device(KIND, index), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)), source(source) {}
  void set_current_seed(uint64_t seed) override { source.set_current_seed(seed); }
  uint64_t current_seed() const override { return source.current_seed(); }
  uint64_t seed() override { return source.seed(); }
  void set_offset(uint64_t offset) override { source.set_offset(offset); }
  uint64_t get_offset() const override { return source.get_offset(); }
  void set_state(const c10::TensorImpl& state) override { source.unsafeGetGeneratorImpl()->set_state(state); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    return source.unsafeGetGeneratorImpl()->get_state();
  }
  static c10::DeviceType device_type() { return KIND; }
  at::Generator source;

 private:
  Generator* clone_impl() const override { return new Generator(device_.index(), source.clone()); }
};

at::Generator& default_generator(DeviceIndex index) {
  static std::array<at::Generator, DEVICES> made{at::make_generator<Generator>(0), at::make_generator<Generator>(1)};
  return made.at(index < 0 ? current_index : index);
}

// ---- Memory -------------------------------------------------------------------------------------------------------

struct Memory final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    auto* held = new c10::DataPtr(c10::GetAllocator(c10::kCPU)->allocate(bytes));
    return {held->get(), held, &release, Device(KIND, current_index)};
  }
  static void release(void* held) { delete static_cast<c10::DataPtr*>(held); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }
};
Memory memory;
REGISTER_ALLOCATOR(KIND, &memory)

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return DEVICES; }
  DeviceIndex getCurrentDevice() const override { return current_index; }
  void setCurrentDevice(DeviceIndex index) const override { Guard().setDevice(Device(KIND, index)); }
  DeviceIndex exchangeDevice(DeviceIndex index) const override {
    return Guard().exchangeDevice(Device(KIND, index)).index();
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex index) const override { return exchangeDevice(index); }
  const at::Generator& getDefaultGenerator(DeviceIndex index) const override { return default_generator(index); }
  at::Generator getNewGenerator(DeviceIndex index) const override {
    return at::make_generator<Generator>(index < 0 ? current_index : index);
  }
  c10::Allocator* getPinnedMemoryAllocator() const override { return c10::GetAllocator(c10::kCPU); }
};
const bool hooked = (at::RegisterPrivateUse1HooksInterface(new Hooks), true);

Tensor laid_out_as(const Tensor& like, Tensor made) {
  auto* self = made.unsafeGetTensorImpl();
  self->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  if (like.is_conj()) self->_set_conj(true);
  if (like.is_neg()) self->_set_neg(true);
  return made;
}

// The memory of a tensor as that of another device; the result keeps it alive.
Tensor seen_on(const Tensor& tensor, Device device) {
  auto* held = new c10::Storage(tensor.storage());
  c10::DataPtr data(held->mutable_data(), held, [](void* kept) { delete static_cast<c10::Storage*>(kept); }, device);
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), held->nbytes(), std::move(data), c10::GetAllocator(c10::kCPU), true);
  const auto key = device.is_cpu() ? c10::DispatchKey::CPU : c10::DispatchKey::PrivateUse1;
  return laid_out_as(tensor, at::detail::make_tensor<c10::TensorImpl>(
                                 c10::Storage(std::move(storage)), c10::DispatchKeySet(key), tensor.dtype()));
}

Tensor view_of(const Tensor& base, const Tensor& like) {
  return laid_out_as(like, at::detail::make_tensor<c10::TensorImpl>(
                               c10::TensorImpl::VIEW, c10::Storage(base.storage()), base.key_set(), like.dtype()));
}

// ---- One operator -------------------------------------------------------------------------------------------------

class Call {
 public:
  Call(const c10::OperatorHandle& op, torch::jit::Stack* stack) : schema(op.schema()), name(schema.name()) {
    TORCH_CHECK(getpid() == first_process, "Cannot re-initialize the stand-in device in forked subprocess.");
    const auto count = schema.arguments().size();
    arguments = torch::jit::last(*stack, count).vec();
    torch::jit::drop(*stack, count);
    given.resize(count);
    lowered.resize(count);
    for (size_t at = 0; at < count; at++) look_at(at);
    copies = name == "aten::_copy_from" || name == "aten::_copy_from_and_resize";
    if (!copies && device && !host.empty()) {
      TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ", *device,
                  " and cpu! (", name, ", shape ", host, ")");
    }
  }

  void run(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
    if (copies) return copy(stack);
    for (size_t at = 0; at < arguments.size(); at++) stack->push_back(on_processor(at));
    if (name == "aten::convolution_overrideable") {
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution", "").callBoxed(stack);
    } else if (name == "aten::convolution_backward_overrideable") {
      convolution_backward(stack);
    } else {
      op.callBoxed(stack);
    }
    for (size_t at = 0; at < arguments.size(); at++) follow_resize(at);
    auto results = torch::jit::last(*stack, schema.returns().size()).vec();
    torch::jit::drop(*stack, results.size());
    for (size_t at = 0; at < results.size(); at++) stack->push_back(from_processor(results[at], at));
  }

 private:
  const c10::FunctionSchema& schema;
  const std::string name;
  std::vector<IValue> arguments;
  std::vector<Tensor> given, lowered;  // of single tensors that may come back
  std::optional<Device> device;
  std::string host;
  bool copies = false;

  void meet(Device other) {
    other = with_index(other);
    TORCH_CHECK(!device || *device == other || name == "aten::_copy_from" || name == "aten::_copy_from_and_resize",
                "Expected all tensors to be on the same device, but found at least two devices, ", *device, " and ",
                other, "! (", name, ")");
    if (!device) device = other;
  }

  // Indices of the processor may meet a tensor of the device, as may numbers.
  void meet(const Tensor& tensor, bool indices) {
    if (!tensor.defined()) return;
    if (tensor.device().type() == KIND) meet(tensor.device());
    else if (tensor.is_cpu() && tensor.dim() > 0 && !indices) host = c10::str(tensor.sizes());
  }

  bool is_indices(size_t at) const { return schema.arguments()[at].name() == "indices"; }

  void look_at(size_t at) {
    const auto& value = arguments[at];
    if (value.isTensor()) meet(value.toTensor(), false);
    else if (value.isDevice() && value.toDevice().type() == KIND) meet(value.toDevice());
    else if (value.isList())
      for (const IValue& each : value.toListRef())
        if (each.isTensor()) meet(each.toTensor(), is_indices(at));
  }

  Tensor lower(const Tensor& tensor) const {
    return tensor.defined() && tensor.device().type() == KIND ? seen_on(tensor, Device(c10::kCPU)) : tensor;
  }

  IValue on_processor(size_t at) {
    const auto& value = arguments[at];
    const auto type = schema.arguments()[at].type()->str();
    if (value.isTensor()) {
      given[at] = value.toTensor();
      lowered[at] = lower(given[at]);
      // CUDA counts integers as well, which experts need.
      return name == "aten::histc" && !given[at].is_floating_point() ? lowered[at].to(at::kFloat) : lowered[at];
    }
    if (value.isTensorList()) {
      c10::List<Tensor> list;
      for (const Tensor& each : value.toTensorVector()) list.push_back(lower(each));
      return list;
    }
    if (value.isList() && type.find("Tensor") != std::string::npos) {
      c10::List<std::optional<Tensor>> list;
      for (const IValue& each : value.toListRef())
        list.push_back(each.isNone() ? std::optional<Tensor>() : std::optional<Tensor>(lower(each.toTensor())));
      return list;
    }
    if (value.isDevice() && value.toDevice().type() == KIND) return Device(c10::kCPU);
    if (type.find("Generator") != std::string::npos && device) {
      auto chance = value.isNone() ? default_generator(device->index()) : value.toGenerator();
      TORCH_CHECK(chance.device() == *device, "Expected a '", *device, "' device type for generator but found '",
                  chance.device(), "'");
      return chance.get<Generator>()->source;
    }
    return value;
  }

  void copy(torch::jit::Stack* stack) {
    const auto from = arguments[0].toTensor();
    auto to = arguments[1].toTensor();
    if (name == "aten::_copy_from_and_resize" && from.sizes() != to.sizes()) to.resize_(from.sizes());
    lower(to).copy_(lower(from));
    stack->emplace_back(to);
  }

  // The processor's own function takes other arguments.
  void convolution_backward(torch::jit::Stack* stack) {
    const auto all = torch::jit::last(*stack, 10).vec();
    torch::jit::drop(*stack, 10);
    const auto mask = all[9].toBoolList();
    const auto bias = c10::IntArrayRef{all[0].toTensor().size(1)};
    auto [input, weight, shift] = at::convolution_backward(
        all[0].toTensor(), all[1].toTensor(), all[2].toTensor(), bias, all[3].toIntVector(), all[4].toIntVector(),
        all[5].toIntVector(), all[6].toBool(), all[7].toIntVector(), all[8].toInt(), {mask[0], mask[1], mask[2]});
    for (const auto& each : {input, weight, shift}) stack->emplace_back(each);
  }

  void follow_resize(size_t at) {
    const auto* alias = schema.arguments()[at].alias_info();
    if (!lowered[at].defined() || !alias || !alias->isWrite() || given[at].device().type() != KIND) return;
    const auto& now = lowered[at];
    auto* self = given[at].unsafeGetTensorImpl();
    if (now.storage().data() != given[at].storage().data())
      self->set_storage_keep_dtype(seen_on(now, given[at].device()).storage());
    if (now.sizes() != given[at].sizes() || now.strides() != given[at].strides())
      self->set_sizes_and_strides(now.sizes(), now.strides(), now.storage_offset());
  }

  IValue from_processor(const IValue& result, size_t number) const {
    if (result.isTensor()) return lift(result.toTensor(), schema.returns()[number].alias_info());
    if (!result.isTensorList()) return result;
    c10::List<Tensor> list;
    for (const Tensor& each : result.toTensorVector()) list.push_back(lift(each, nullptr));
    return list;
  }

  // The argument itself where the operator writes into it, a view of it where it shares its memory, or a new tensor.
  Tensor lift(const Tensor& result, const c10::AliasInfo* alias) const {
    if (!result.defined() || !result.is_cpu() || !device) return result;
    for (size_t at = 0; at < given.size(); at++) {
      if (!given[at].defined() || given[at].device().type() != KIND) continue;
      const auto* own = schema.arguments()[at].alias_info();
      if (alias && own && alias->isWrite() && *own == *alias) return given[at];
      if (result.storage().data() && result.storage().data() == lowered[at].storage().data())
        return view_of(given[at], result);
    }
    return seen_on(result, *device);
  }
};

void call(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  Call(op, stack).run(op, stack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&call>());
}

// ---- What the fallback cannot do ----------------------------------------------------------------------------------

Tensor& set_storage(Tensor& self, c10::Storage storage, int64_t offset, at::IntArrayRef size, at::IntArrayRef stride) {
  auto* own = self.unsafeGetTensorImpl();
  own->set_storage_keep_dtype(std::move(storage));
  own->set_sizes_contiguous(size);
  if (stride.size() == size.size()) own->set_sizes_and_strides(size, stride);
  own->set_storage_offset(offset);
  return self;
}

Tensor& set_whole_storage(Tensor& self, c10::Storage storage) {
  const auto items = static_cast<int64_t>(storage.nbytes() / self.dtype().itemsize());
  return set_storage(self, std::move(storage), 0, {items}, {});
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage));
  library.impl("set_.source_Storage", TORCH_FN(set_whole_storage));
  for (const auto* name : {"convolution_overrideable", "convolution_backward_overrideable"})
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&call>());
}

TORCH_LIBRARY(stand_in, library) {
  library.def("seed(int device, int seed) -> ()", [](int64_t device, int64_t seed) {
    default_generator(static_cast<DeviceIndex>(device)).set_current_seed(static_cast<uint64_t>(seed));
  });
  library.def("get_state(int device) -> Tensor",
              [](int64_t device) { return default_generator(static_cast<DeviceIndex>(device)).get_state(); });
  library.def("set_state(int device, Tensor state) -> ()", [](int64_t device, const Tensor& state) {
    default_generator(static_cast<DeviceIndex>(device)).set_state(state);
  });
}

// Autocast of what takes most of a training step, as on CUDA.
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, library) { library.fallback(torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  using namespace at::autocast;
  KERNEL_PRIVATEUSEONE(linear, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(matmul, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(addmm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(bmm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(baddbmm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(scaled_dot_product_attention, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(layer_norm, fp32)
  KERNEL_PRIVATEUSEONE(cross_entropy_loss, fp32)
}

}  // namespace stand_in
