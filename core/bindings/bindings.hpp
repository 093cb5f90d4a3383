// One registration function per area; module.cpp calls them all. Python types appear only in this folder.
#pragma once

#include <nanobind/nanobind.h>

namespace headrace {

void bind_machine(nanobind::module_&);
void bind_constants(nanobind::module_&);
void bind_limits(nanobind::module_&);
void bind_blocks(nanobind::module_&);
void bind_rng(nanobind::module_&);
void bind_view(nanobind::module_&);
void bind_augment(nanobind::module_&);
void bind_outlines(nanobind::module_&);
void bind_names(nanobind::module_&);
void bind_samples(nanobind::module_&);
void bind_tar(nanobind::module_&);
void bind_zip(nanobind::module_&);
void bind_jpeg(nanobind::module_&);
void bind_png(nanobind::module_&);
void bind_raw(nanobind::module_&);
void bind_pack(nanobind::module_&);
void bind_cache(nanobind::module_&);
void bind_job(nanobind::module_&);
void bind_engine(nanobind::module_&);
void bind_image(nanobind::module_&);
void bind_mixing(nanobind::module_&);

}  // namespace headrace
