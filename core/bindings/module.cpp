#include "bindings.hpp"

NB_MODULE(_core, m) {
    m.doc() = "Headrace's native core: what touches pixels or must not hold the GIL.";
    headrace::bind_rng(m);
    headrace::bind_view(m);
    headrace::bind_tar(m);
    headrace::bind_jpeg(m);
    headrace::bind_png(m);
    headrace::bind_batch(m);
}
