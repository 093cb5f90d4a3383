"""How large a batch a device's memory holds, found before training starts."""
