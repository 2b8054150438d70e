// Package replay executes a program on a caching allocator and returns the result: a [Run].
//
// program × allocator × source of segments → run
//
// By default, the source of segments only counts bytes, so any GPU can be simulated on any machine. With a real device
// as the source and a hook that launches kernels, the replay is a measurement. Running out of memory is a result, not
// an error.
package replay
