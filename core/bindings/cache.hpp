// Python's handle of a cache, for jobs that use it.
#pragma once

#include <memory>

#include "cache/store.hpp"

namespace headrace {

struct PyStore {
    std::shared_ptr<Store> store;
};

}  // namespace headrace
