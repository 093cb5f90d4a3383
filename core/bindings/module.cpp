#include "bindings.hpp"

NB_MODULE(_core, m) {
    // A forked child cannot free objects in the frames of its parent's threads; its user need not know.
    nanobind::set_leak_warnings(false);
    m.doc() = "Headrace's native core: what touches pixels or must not hold the GIL.";
    headrace::bind_machine(m);
    headrace::bind_constants(m);
    headrace::bind_limits(m);
    headrace::bind_blocks(m);
    headrace::bind_rng(m);
    headrace::bind_view(m);
    headrace::bind_augment(m);
    headrace::bind_outlines(m);
    headrace::bind_names(m);
    headrace::bind_samples(m);
    headrace::bind_tar(m);
    headrace::bind_zip(m);
    headrace::bind_jpeg(m);
    headrace::bind_png(m);
    headrace::bind_raw(m);
    headrace::bind_pack(m);
    headrace::bind_cache(m);
    headrace::bind_job(m);
    headrace::bind_engine(m);
    headrace::bind_image(m);
    headrace::bind_mixing(m);
}
