// Package replay executes a program on a caching allocator and returns the result: a [Run].
//
// program × allocator × source of segments → run
//
// By default the memory below the allocator is only counted, so that any GPU can be simulated on any machine. With a
// real device below and a hook that launches kernels, the same replay is a measurement. Running out of memory is a
// result, not an error.
package replay
