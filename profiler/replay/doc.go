// Package replay carries a program out on a caching allocator and describes what that took: a [Run].
//
//	program × allocator × source of segments → run
//
// By default the segments come from memory that is only counted, so that any GPU can be tried anywhere; a real device
// below the allocator, with a hook that launches kernels, makes the same replay a measurement. Running out of memory is
// a result, not an error.
package replay
