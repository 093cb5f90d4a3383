#include "batch/transport.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace headrace {

TransportFault::TransportFault(int error_, const std::string& what)
    : Fault(Code::io, what + ": " + std::strerror(error_)), error(error_) {}

bool may_pass(int error) {
    static constexpr std::array those{
        EAGAIN,       EBUSY,     ECOMM,     ECONNABORTED, ECONNREFUSED, ECONNRESET, EHOSTDOWN,
        EHOSTUNREACH, EIO,       ENETDOWN,  ENETRESET,    ENETUNREACH,  ENOLINK,    ENOTCONN,
        EPIPE,        EREMOTEIO, ESHUTDOWN, ESTALE,       ETIMEDOUT,
    };
    return std::ranges::find(those, error) != those.end();
}

bool loses_descriptor(int error) { return error == ESTALE || error == ENOTCONN || error == ESHUTDOWN; }

}  // namespace headrace
