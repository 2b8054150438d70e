// Package fakecuda is a CUDA driver and NVML without a GPU, for tests.
//
// The driver is a C library (folder driver), built when a test first needs it. Device memory is counted, not allocated.
// Every handle, address and thread is checked as by a real driver, and calls that break a rule are recorded. Any call
// can be made to fail. The device clock advances only with work, so that times are the same in every run.
//
// A [Setup] describes the GPUs and the faults. It is passed to a process through its environment or, with Restart,
// applied to the test itself. [Stats] reports counts of calls and memory.
package fakecuda
