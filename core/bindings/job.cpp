#include "job.hpp"

#include <algorithm>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include "bindings.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace headrace {

PyJob::PyJob(Array<std::int64_t> ids, Array<std::uint32_t> passes, std::uint64_t key, std::uint16_t dataset,
             Table program, std::optional<Table> views, std::optional<Array<std::int64_t>> draw_ids,
             const PyAugmentation* augment, std::optional<Array<std::uint8_t>> keeps)
    : job_(std::make_shared<Job>()), owner_(::getpid()) {
    if (program.shape(1) != kProgramColumns) throw nb::value_error("expected a program of 10 columns");
    if (passes.size() != ids.size()) throw nb::value_error("expected as many passes as ids");
    job_->samples = static_cast<int>(ids.size());
    job_->ids = ids.data();
    job_->draw_ids = draw_ids ? borrow(draw_ids, "draw_ids") : ids.data();
    job_->passes = passes.data();
    job_->keeps = borrow(keeps, "keeps");
    job_->key = key;
    job_->dataset = dataset;
    if (augment != nullptr) job_->augment = augment->program;
    job_->program = parse_program(std::span(program.data(), program.size()));
    if (views) {
        if (views->shape(0) != ids.size() || views->shape(1) != kViewRow) {
            throw nb::value_error("expected one row of 17 numbers a sample in views");
        }
        job_->given_views = views->data();
    }
    keep_.push_back(nb::cast(ids));
    keep_.push_back(nb::cast(passes));
    if (views) keep_.push_back(nb::cast(*views));
}

PyJob::~PyJob() {
    if (!submitted_ || ::getpid() != owner_) {
        if (submitted_) new std::shared_ptr<Job>(job_);  // the threads are the parent's, so never wait for them here
        return;
    }
    job_->cancel();
    nb::gil_scoped_release released;
    job_->wait();
}

void PyJob::add_image(const PyRanges& at, const PyImageOptions& options, Bytes out, int height, int width,
                      std::optional<nb::list> memory, std::optional<Bytes> valid, const CachePlace& cache) {
    ImageField field = options.field;
    field.ranges = ranges(at);
    if (width < 0 || height < 0) throw nb::value_error("expected a size of at least 0");
    if (memory) take_memory(*memory, field);
    field.format.width = width;
    field.format.height = height;
    field.cache = cache_use(cache);
    check_place(field);
    if (options.table) keep_.push_back(nb::cast(*options.table));
    if (!job_->probe_only) take_outputs(field, out, valid);
    keep_.push_back(nb::cast(out));
    if (valid) keep_.push_back(nb::cast(*valid));
    job_->images.push_back(std::move(field));
}

void PyJob::add_raw(const PyRanges& at, const CachePlace& cache) {
    RawField field;
    field.ranges = ranges(at);
    field.cache = cache_use(cache);
    job_->raws.push_back(std::move(field));
}

std::shared_ptr<Job> PyJob::submit() {
    if (submitted_) throw nb::value_error("this job has been submitted before");
    submitted_ = true;
    return job_;
}

nb::list PyJob::failures() {
    nb::list list;
    if (finished().failures.empty()) return list;
    const nb::object row_failure = nb::module_::import_("headrace._core").attr("RowFailure");
    for (const Failure& f : finished().failures) {
        list.append(row_failure(f.sample, f.field, f.code, static_cast<int>(f.stage), text_of(f.why)));
    }
    return list;
}

nb::list PyJob::raw(std::size_t index) {
    nb::list list;
    for (const auto& bytes : finished().raws.at(index).out) list.append(nb::bytes(bytes.data(), bytes.size()));
    return list;
}

Ranges PyJob::ranges(const PyRanges& at) {
    Ranges r;
    if (!at.paths) return r;
    if (!at.path_id) throw nb::value_error("paths need path_id");
    r.paths = at.paths->paths;
    r.path_id = borrow(at.path_id, "path_id");
    r.offset = borrow(at.offset, "offset");
    r.length = borrow(at.length, "length");
    r.check = borrow(at.check, "check");
    if (at.zipped) {
        if (!at.offset || !at.length || !at.check) throw nb::value_error("zipped needs offset, length and check");
        const auto& [packed, room, method, crc, flags] = *at.zipped;
        r.zip = {borrow<std::int64_t>(packed, "packed"), borrow<std::int64_t>(room, "room"),
                 borrow<std::uint32_t>(method, "method"), borrow<std::uint32_t>(crc, "crc"),
                 borrow<std::uint32_t>(flags, "flags")};
    }
    if (at.held) take_held(*at.held, r);
    if (at.prefix) {
        if (at.prefix->shape(0) != static_cast<std::size_t>(job_->samples) || !at.length || at.check || at.held)
            throw nb::value_error("expected a prefix a sample, of ranges of files without a check");
        r.prefix = at.prefix->data();
        r.prefix_bytes = at.prefix->shape(1);
        keep_.push_back(nb::cast(*at.prefix));
    }
    keep_.push_back(nb::cast(at.paths->names));
    keep_.push_back(nb::cast(at.paths->offsets));
    return r;
}

void PyJob::take_held(const PyRanges::Held::value_type& held, Ranges& r) {
    const auto& [parts, first, held_in] = held;
    if (parts.size() != first.size()) throw nb::value_error("expected as many parts as first bytes");
    r.held_in = borrow<std::int64_t>(held_in, "held_in");
    const auto within = [&](std::int64_t part) { return part < static_cast<std::int64_t>(parts.size()); };
    if (!std::all_of(r.held_in, r.held_in + job_->samples, within)) throw nb::value_error("no such part is held");
    for (std::size_t i = 0; i < parts.size(); ++i) {
        r.held.push_back({std::span(parts[i].data(), parts[i].size()), first[i]});
        keep_.push_back(nb::cast(parts[i]));
    }
}

void PyJob::check_place(const ImageField& field) const {
    const int index = static_cast<int>(job_->images.size()), with = field.decoded_with();
    const auto* picture = field.as<PictureOptions>();
    if (!field.own_view && index > 0 && job_->images.back().own_view)
        throw nb::value_error("expected fields that follow the job's view before those with views of their own");
    if (field.cache.cut == Cut::shrunk && !(picture && picture->shrink_to > 0))
        throw nb::value_error("expected cut shrunk of a picture with shrink_to");
    if (with < 0) return;
    if (with > index) throw nb::value_error("expected a field to be decoded with itself or one before it");
    const ImageField& first = with == index ? field : job_->images[static_cast<std::size_t>(with)];
    const bool shrinks = picture->shrink_to > 0;
    const auto* other = first.as<PictureOptions>();
    if (first.decoded_with() != with || first.orient != field.orient || first.composite != field.composite ||
        other->shrink_to != picture->shrink_to || first.format.channels != field.format.channels ||
        field.cache.cut > (shrinks ? Cut::shrunk : Cut::file) ||
        (shrinks && (other->filter != picture->filter || other->dct_margin != picture->dct_margin)))
        throw nb::value_error("expected fields that are decoded together to be of one kind");
}

void PyJob::take_outputs(ImageField& field, Bytes& out, std::optional<Bytes>& valid) {
    if (out.size() < field.sample_bytes() * job_->samples ||
        (valid && valid->size() < field.pixels() * job_->samples)) {
        throw nb::value_error("the output is smaller than the batch");
    }
    auto* depth = std::get_if<DepthOptions>(&field.content);
    if (valid && !depth) throw nb::value_error("expected valid= for depth alone");
    field.out = out.data();
    if (valid) depth->valid = valid->data();
}

Memory PyJob::memory_of(const PixelArray& pixels) {
    if (pixels.shape(2) < 1 || pixels.shape(2) > kMostChannels) throw nb::value_error("expected 1 to 512 channels");
    if (pixels.size() == 0) throw nb::value_error("expected at least one pixel");
    Memory memory{static_cast<const std::uint8_t*>(pixels.data()),
                  pixels.nbytes(),
                  static_cast<int>(pixels.shape(1)),
                  static_cast<int>(pixels.shape(0)),
                  static_cast<int>(pixels.shape(2)),
                  PixelType::u8};
    if (pixels.dtype() == nb::dtype<std::uint16_t>()) {
        memory.type = PixelType::u16;
    } else if (pixels.dtype() == nb::dtype<float>()) {
        memory.type = PixelType::f32;
    } else if (pixels.dtype() != nb::dtype<std::uint8_t>()) {
        throw nb::value_error("expected pixels of uint8, uint16 or float32");
    }
    return memory;
}

void PyJob::take_memory(const nb::list& items, ImageField& field) {
    if (nb::len(items) != static_cast<std::size_t>(job_->samples)) throw nb::value_error("expected one item a sample");
    for (nb::handle item : items) {
        Memory memory;
        if (nb::isinstance<nb::bytes>(item)) {
            nb::bytes bytes = nb::borrow<nb::bytes>(item);
            memory.data = static_cast<const std::uint8_t*>(bytes.data());
            memory.size = bytes.size();
            static const std::uint8_t nothing = 0;
            if (memory.size == 0) memory.data = &nothing;
        } else if (!item.is_none()) {
            memory = memory_of(nb::cast<PixelArray>(item));
            if (!field.as<WideOptions>() && memory.channels != 1 && memory.channels != 3)
                throw nb::value_error("expected 1 or 3 channels");
        }
        keep_.push_back(nb::borrow(item));
        field.memory.push_back(memory);
    }
}

void bind_job(nb::module_& m) {
    nb::class_<PyPaths>(m, "Paths")
        .def(
            "__init__",
            [](PyPaths* self, nb::bytes root, Array<std::uint8_t> names, Array<std::uint64_t> offsets, bool keep_open,
               bool inside) {
                auto paths = std::make_shared<Paths>(std::string(root.c_str(), root.size()),
                                                     std::span(names.data(), names.size()),
                                                     std::span(offsets.data(), offsets.size()), keep_open, inside);
                new (self) PyPaths{std::move(paths), std::move(names), std::move(offsets)};
            },
            "root"_a, "names"_a, "offsets"_a, nb::kw_only(), "keep_open"_a, "inside"_a)
        .def("close", [](PyPaths& self) { self.paths->close(); });

    nb::class_<PyRanges>(m, "Ranges", "Where the bytes of a field lie, for each sample of a batch.")
        .def(
            "__init__",
            [](PyRanges* self, const PyPaths* paths, PyRanges::Ints path_id, PyRanges::Ints offset,
               PyRanges::Ints length, PyRanges::Words check, PyRanges::Zipped zipped, PyRanges::Held held,
               std::optional<PyRanges::Headers> prefix) {
                new (self) PyRanges{paths == nullptr ? std::nullopt : std::optional(*paths),
                                    std::move(path_id),
                                    std::move(offset),
                                    std::move(length),
                                    std::move(check),
                                    std::move(zipped),
                                    std::move(held),
                                    std::move(prefix)};
            },
            nb::arg("paths").none() = nb::none(), "path_id"_a = nb::none(), "offset"_a = nb::none(),
            "length"_a = nb::none(), "check"_a = nb::none(), "zipped"_a = nb::none(), "held"_a = nb::none(),
            "prefix"_a = nb::none());

    nb::class_<PyJob>(m, "Job")
        .def(nb::init<Array<std::int64_t>, Array<std::uint32_t>, std::uint64_t, std::uint16_t, Table,
                      std::optional<Table>, std::optional<Array<std::int64_t>>, const PyAugmentation*,
                      std::optional<Array<std::uint8_t>>>(),
             "ids"_a, "passes"_a, nb::kw_only(), "key"_a, "dataset"_a = 0, "program"_a, "views"_a = nb::none(),
             "draw_ids"_a = nb::none(), nb::arg("augment").none() = nb::none(), "keeps"_a = nb::none())
        .def("add_image", &PyJob::add_image, "at"_a, "options"_a, nb::kw_only(), "out"_a, "height"_a, "width"_a,
             "memory"_a = nb::none(), "valid"_a = nb::none(), "cache"_a = nb::none())
        .def("add_raw", &PyJob::add_raw, "at"_a, nb::kw_only(), "cache"_a = nb::none())
        .def("probe_only", [](PyJob& job) { job.set_probe_only(true); })
        .def("wait", &PyJob::wait)
        .def("cancel", &PyJob::cancel)
        .def_prop_ro("done", &PyJob::done)
        .def("failures", &PyJob::failures)
        .def_prop_ro("narrowed", &PyJob::narrowed)
        .def_prop_ro("transparent", &PyJob::transparent)
        .def("raw", &PyJob::raw, "field"_a)
        .def_prop_ro("views", &PyJob::views)
        .def_prop_ro("sizes", &PyJob::sizes);
}

}  // namespace headrace
