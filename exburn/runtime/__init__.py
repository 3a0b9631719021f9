"""The machine: devices, memory, signals, the compiler's options."""
