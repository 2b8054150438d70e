// Package fakecuda is a CUDA driver and NVML without a GPU, for tests.
//
// The driver is a library in C (the folder driver) that is built when a test
// first asks for it. Its device memory is counted, not there; every handle,
// address and thread is checked as a real driver would, and a call that breaks
// a rule is noted. Any call can be told to fail. Its clock moves with the work,
// so that times are the same on every run.
//
// A [Setup] says which GPUs there are and what goes wrong. It becomes the
// environment of a process, or, with Restart, that of the test itself. What
// happened is in [Stats].
package fakecuda
