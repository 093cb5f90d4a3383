// Conversion of a depth field from the source's numbers to the batch's.
#pragma once

#include <cmath>
#include <cstdint>

#include "resample/target.hpp"

namespace headrace {

// Format of all depth maps of a field.
struct DepthFormat {
    DType dtype = DType::float32;
    double scale = 1;    // from the source's unit to the batch's
    double invalid = 0;  // the source's number for "not measured", and the batch's for invalid pixels
    double near = -INFINITY, far = INFINITY;  // bounds of valid depths, in the batch's unit
    bool quantiles = false;
    double low = 0, high = 1;              // quantiles of the valid depths ...
    double range_low = 0, range_high = 1;  // ... that are mapped to these numbers
    bool clip = false;

    // False for NaN and beyond either infinity. Without branches, for loops that compilers make vectors of.
    bool valid(double number) const {
        const double depth = number * scale;
        return (number != invalid) & (depth > near) & (depth < far);
    }
};

// depth -> depth * multiply + add, clamped. Without quantiles: the identity.
struct DepthMap {
    double multiply = 1, add = 0, least = -INFINITY, most = INFINITY;

    // `low` and `high` are the depths of the quantiles, in the batch's unit.
    static DepthMap between(const DepthFormat& f, double low, double high) {
        DepthMap map;
        map.multiply = high > low ? (f.range_high - f.range_low) / (high - low) : 0;
        map.add = f.range_low - low * map.multiply;
        if (f.clip) {
            map.least = f.range_low < f.range_high ? f.range_low : f.range_high;
            map.most = f.range_low < f.range_high ? f.range_high : f.range_low;
        }
        return map;
    }
    double operator()(double depth) const {
        const double mapped = depth * multiply + add;
        return mapped < least ? least : mapped > most ? most : mapped;
    }
};

}  // namespace headrace
