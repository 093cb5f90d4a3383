// Views and sizes from libFuzzer's input.
#pragma once

#include <cstdint>
#include <vector>

#include "fuzz/input.hpp"
#include "view/program.hpp"

namespace headrace::fuzz {

// Maximum side of a source; more would only take longer.
inline constexpr int kMostLong = 1 << 15;

struct Size {
    int width, height;
};

// Returns mostly small integers and fractions, as in programs; occasionally an arbitrary double.
inline double number(Input& input) {
    const int kind = input.byte() % 8;
    if (kind < 4) return input.byte();
    if (kind == 4) return input.take<std::uint16_t>();
    if (kind == 5) return input.byte() / 128.0;
    if (kind == 6) return input.take<std::uint32_t>();
    return input.take<double>();
}

inline std::vector<double> numbers(Input& input, std::size_t count) {
    std::vector<double> values(count);
    for (double& value : values) value = number(input);
    return values;
}

inline std::vector<double> program_table(Input& input) {
    std::vector<double> table;
    for (int ops = input.byte() % 6; ops > 0; --ops) {
        const std::vector<double> row = numbers(input, kProgramColumns - 1);
        table.push_back(input.byte() % 13);
        table.insert(table.end(), row.begin(), row.end());
    }
    return table;
}

// Returns small sides, or one long side, as in panoramas and corrupt headers.
inline Size source_size(Input& input) {
    const int kind = input.byte() % 16;
    if (kind < 14) return {input.between(1, 64), input.between(1, 64)};
    const int longer = input.between(1, kMostLong), shorter = input.between(1, 4);
    return kind == 14 ? Size{longer, shorter} : Size{shorter, longer};
}

}  // namespace headrace::fuzz
