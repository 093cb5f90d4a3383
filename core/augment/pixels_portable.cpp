#include "augment/pixel_kernels_of.hpp"

namespace headrace {
namespace {
#include "augment/pixel_kernels.inl"
}  // namespace

const PixelKernels& pixel_kernels_portable() { return kTable; }

}  // namespace headrace
