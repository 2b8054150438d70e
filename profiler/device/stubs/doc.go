// Package stubs holds libraries that stand in for NVIDIA's, so that PyTorch's own CUDA
// build runs on a machine without a GPU.
//
// Under each soname that PyTorch needs (libcudart, libcublas, libcudnn, libnccl, libcuda, ...) there is a small library
// that needs libvprof_gpu.so, which has all functions. They are public ones: what NVIDIA's headers declare, and what
// code compiled by nvcc calls. Memory is counted against the GPU and backed lazily by reserved addresses, so that what
// was never written reads as zeros and takes no memory of the host; kernels do nothing; what the host put on the device
// comes back. Two functions are vprof's own: vprof_placeholder registers memory of the host without values, of which
// copies to the device take no memory, and vprof_tell sets the next number that a thread reads back, where the host
// knows what a kernel would have counted. Functions without a meaning of their own come from the table
// source/names.inc, which names.py makes of the headers: they return 0, write 0 to their outputs, and are logged once.
//
// The binary has an archive of them for its processor, x86-64 or arm64, with the folders 12 and 13, which [Unpack]
// writes. Those for arm64 were run under emulation: by a program in C (make stubs-emulated), and by PyTorch 2.15 under
// vprof run, where three steps of a small network took the same bytes as on x86-64.
//
// The files are loaded by full path, in the order of their names and with RTLD_GLOBAL, before torch is imported: the
// loader then takes them for the sonames that torch needs, whatever its RPATH says. Every Python process does that
// again in its own start-up hook, so that children with a changed LD_PRELOAD find them, too. Triton links against
// libcuda.so.1 in the folder that TRITON_LIBCUDA_PATH names; that is this one.
//
// # Environment
//
//	VPROF_STUB_GPU        a file that describes the GPU, see [WriteGPU]; all devices are equal
//	VPROF_STUBS     the folder with the folders 12 and 13; the hook reads it
//	VPROF_STUB_LOG  a file that gets a line "default NAME" for each function of the table that
//	                   was called, and "unanswered QUESTION" for sizes that were unknown
//	VPROF_ORACLE       a Unix socket that knows sizes which libraries decide
//
// # Sizes that libraries decide
//
// A question is a connection to the socket, a line of text, and a line of answer: bytes, a space,
// and "asked" if a library said so, "modeled" if a rule did, "unknown", or "-1 none" if the library
// has no such engine. Without an answer a size is 0. Answers are kept for the life of the process. Lists are
// comma-separated; a tensor is its dimensions, ";s=" and its strides. Types are half, bfloat16, float, double or other.
//
//	conv fprop|dgrad|wgrad dtype=T compute=T x=DIMS;s=STRIDES w=... y=... pad=... stride=... dilation=...
//	    [proposal=I|fallback=I] [notes]
//	graph DESCRIPTOR DESCRIPTOR ...
//	rnn workspace|reserve mode=rnn|gru|lstm dtype=T length=N batch=N inputs=N hidden=N projected=N layers=N directions=1|2 training=0|1
//	    dropout=0|1 packed=N (the sum of the lengths of packed sequences, 0 of padded ones)
//	norm forward|backward dtype=T x=DIMS
//	size FUNCTION
//
// A graph that begins with a convolution is asked for as conv; its groups are the channels of x
// divided by the channels of w. The question is about the engine that PyTorch takes, or else about one that PyTorch
// tries with torch.backends.cudnn.benchmark: proposal is an index of cuDNN's proposals, from 1 on, fallback an index of
// its fallback engines, from 0 on. The answer to notes is the set of the engine's numerical notes, a bit for each of
// cudnnBackendNumericalNote_t.
//
// Other graphs are given by their descriptors, each after the descriptors it holds and
// the graph's own last: KIND|NAME:TYPE:VALUES|..., numbers of cuDNN's public enumerations
// cudnnBackendDescriptorType_t, cudnnBackendAttributeName_t and cudnnBackendAttributeType_t; values
// are whole numbers of the same bits, of a descriptor its place in the line. norm is a batch norm
// over channels that lie side by side. size is a function that tells a size which has no question.
package stubs
