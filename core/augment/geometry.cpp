#include "augment/geometry.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "view/exact_math.hpp"

namespace headrace {
namespace {

constexpr double kRadian = 0.017453292519943295;  // pi / 180

double sin_series(double x) {
    const double square = x * x;
    double sum = 1;
    for (int n = 20; n >= 2; n -= 2) sum = 1 - square / (n * (n + 1)) * sum;
    return x * sum;
}

double cos_series(double x) {
    const double square = x * x;
    double sum = 1;
    for (int n = 19; n >= 1; n -= 2) sum = 1 - square / (n * (n + 1)) * sum;
    return sum;
}

// Gaussian elimination with partial pivoting of 8 equations; returns false for a singular system, and the caller keeps
// the identity map.
bool solve(double (&rows)[8][9]) {
    for (int column = 0; column < 8; ++column) {
        int pivot = column;
        for (int row = column + 1; row < 8; ++row)
            if (std::abs(rows[row][column]) > std::abs(rows[pivot][column])) pivot = row;
        if (!(std::abs(rows[pivot][column]) > 1e-12)) return false;
        std::swap(rows[pivot], rows[column]);
        for (int row = 0; row < 8; ++row) {
            if (row == column) continue;
            const double factor = rows[row][column] / rows[column][column];
            for (int k = column; k < 9; ++k) rows[row][k] = rows[row][k] - factor * rows[column][k];
        }
    }
    return true;
}

}  // namespace

SinCos exact_sin_cos(double degrees) {
    const double quarter = round_half_even(degrees / 90);
    const double rest = (degrees - quarter * 90) * kRadian;
    const double sine = sin_series(rest), cosine = cos_series(rest);
    const double turn = quarter - 4 * std::floor(quarter / 4);
    if (turn == 0) return {sine, cosine};
    if (turn == 1) return {cosine, -sine};
    if (turn == 2) return {-sine, -cosine};
    return {-cosine, sine};
}

Map affine_map(const double* p, Translation unit, bool corner, bool tangents, int width, int height) {
    double x = p[1], y = p[2];
    const bool whole = unit == Translation::whole_share || unit == Translation::whole_pixels;
    if (unit != Translation::pixels && unit != Translation::whole_pixels) {
        x = x * width;
        y = y * height;
    }
    if (unit == Translation::rounded_share) {
        x = round_half_even(x);
        y = round_half_even(y);
    } else if (whole) {
        x = std::trunc(x + std::copysign(1e-6, x));
        y = std::trunc(y + std::copysign(1e-6, y));
    }
    const double centre_x = corner ? 0 : width * 0.5, centre_y = corner ? 0 : height * 0.5;
    const SinCos turn = exact_sin_cos(p[0]), across = exact_sin_cos(p[4]), down = exact_sin_cos(p[5]);
    const double tan_x = tangents ? p[4] : across.sin / across.cos, tan_y = tangents ? p[5] : down.sin / down.cos;
    // Rotation, shear y, shear x, multiplied like in torchvision: [a b; c d]. The map is its inverse divided by the
    // scale.
    const double a = turn.cos + turn.sin * tan_y, b = -a * tan_x - turn.sin;
    const double c = turn.sin - turn.cos * tan_y, d = -c * tan_x + turn.cos;
    Map m{d / p[3], -b / p[3], 0, -c / p[3], a / p[3], 0, 0, 0, 1};
    m[2] = m[0] * (-centre_x - x) + m[1] * (-centre_y - y) + centre_x;
    m[5] = m[3] * (-centre_x - x) + m[4] * (-centre_y - y) + centre_y;
    return m;
}

Map perspective_map(const std::array<Draw, 4>& corners, double distortion, int width, int height) {
    const auto most_x = static_cast<std::uint64_t>(distortion * (width / 2)) + 1;
    const auto most_y = static_cast<std::uint64_t>(distortion * (height / 2)) + 1;
    const double right = width - 1.0, bottom = height - 1.0;
    const double from[4][2] = {{0, 0}, {right, 0}, {right, bottom}, {0, bottom}};
    double rows[8][9];
    for (int k = 0; k < 4; ++k) {
        const auto in_x = static_cast<double>(below(corners[k].first, most_x));
        const auto in_y = static_cast<double>(below(corners[k].second, most_y));
        const double x = (from[k][0] == 0 ? in_x : right - in_x), y = (from[k][1] == 0 ? in_y : bottom - in_y);
        const double u = from[k][0], v = from[k][1];
        const double first[9] = {x, y, 1, 0, 0, 0, -u * x, -u * y, u};
        const double second[9] = {0, 0, 0, x, y, 1, -v * x, -v * y, v};
        std::copy(first, first + 9, rows[2 * k]);
        std::copy(second, second + 9, rows[2 * k + 1]);
    }
    if (!solve(rows)) return {1, 0, 0, 0, 1, 0, 0, 0, 1};
    Map map{};
    for (int k = 0; k < 8; ++k) map[k] = rows[k][8] / rows[k][k];
    map[8] = 1;
    return map;
}

}  // namespace headrace
