_KERNEL_REGISTRY = {}


def _register_kernel_internal(functional, input_type):
    registry = _KERNEL_REGISTRY.setdefault(functional, {})

    def decorator(kernel):
        registry[input_type] = kernel
        return kernel

    return decorator


def register_kernel(functional, input_type):
    return _register_kernel_internal(functional, input_type)


def _get_kernel(functional, input_type):
    return _KERNEL_REGISTRY[functional][input_type]
