from vprof_hook.kernels import index_first_axis, pad_input, unpad_input  # noqa: F401
