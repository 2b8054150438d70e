// Package fakecuda is a CUDA driver and NVML without a GPU, for tests.
//
// The driver is a library in C (the folder driver) that is built when a test first needs it. Its device memory is
// counted, not allocated. Every handle, address and thread is checked as a real driver would, and a call that breaks a
// rule is noted. Any call can be made to fail. Its clock moves with the work, so that times are the same on every run.
//
// A [Setup] describes the GPUs and the faults. It becomes the environment of a process, or, with Restart, of the test
// itself. [Stats] reports what happened.
package fakecuda
