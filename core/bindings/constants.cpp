// Numbers that Python shares with the core: each is declared in the core only.
#include "batch/job.hpp"
#include "bindings.hpp"
#include "common/fault.hpp"
#include "rng/stream.hpp"
#include "view/program.hpp"

namespace nb = nanobind;

namespace headrace {

enum class ViewColumn : int {};  // index in kViewColumns

void bind_constants(nb::module_& m) {
    m.attr("RNG_VERSION") = kRngVersion;
    m.attr("MAX_VIEW_OPS") = kMaxOps;
    m.attr("MAX_COPIES") = kMostCopies;
    m.attr("FLIPPED_FIRST") = static_cast<int>(kFlippedFirst);
    nb::enum_<Code>(m, "Code", nb::is_arithmetic(), "Reasons why a sample could not be delivered.")
        .value("DECLINED", Code::declined)
        .value("CORRUPT", Code::corrupt)
        .value("LIMIT", Code::limit)
        .value("UNSUPPORTED", Code::unsupported)
        .value("IO", Code::io)
        .value("CHANGED", Code::changed)
        .value("CANCELLED", Code::cancelled)
        .value("VIEW", Code::view)
        .value("UNFIT", Code::unfit)
        .value("MEMORY", Code::memory)
        .value("OUTSIDE", Code::outside)
        .value("MISSING", Code::missing);
    nb::enum_<ViewKind>(m, "ViewKind", nb::is_arithmetic(), "First number of each step of a view program.")
        .value("RANDOM_RESIZED_CROP", kRandomResizedCrop)
        .value("RESIZE_SHORT", kResizeShort)
        .value("RESIZE", kResize)
        .value("CENTER_CROP", kCenterCrop)
        .value("RANDOM_CROP", kRandomCrop)
        .value("LETTERBOX", kLetterbox)
        .value("HORIZONTAL_FLIP", kHorizontalFlip)
        .value("VERTICAL_FLIP", kVerticalFlip)
        .value("FIVE_CROP", kFiveCrop)
        .value("TEN_CROP", kTenCrop)
        .value("TILES", kTiles)
        .value("QUARTER_TURN", kQuarterTurn);
    nb::enum_<ViewColumn> columns(m, "ViewColumn", nb::is_arithmetic(), "Columns of a view as a row of numbers.");
    for (int i = 0; i < kViewRow; ++i) columns.value(kViewColumns[i], static_cast<ViewColumn>(i));
    nb::enum_<ReservedStage>(m, "ReservedStage", nb::is_arithmetic(), "Stages of draws that are made in Python.")
        .value("OFFSETS", ReservedStage::offsets)
        .value("DRAWS", ReservedStage::draws)
        .value("MIXING", ReservedStage::mixing)
        .value("CAPTIONS", ReservedStage::captions)
        .value("REPLACEMENTS", ReservedStage::replacements);
    const nb::object namedtuple = nb::module_::import_("collections").attr("namedtuple");
    m.attr("RowFailure") = namedtuple("RowFailure", nb::make_tuple("row", "field", "code", "stage", "why"),
                                      nb::arg("module") = "headrace._core");
}

}  // namespace headrace
