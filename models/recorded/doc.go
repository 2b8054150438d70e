// Package recorded reads and writes programs that were recorded elsewhere, such as by a run of a
// user's own script, and makes models of them that are planned, shown and compared like others.
//
// A file (suffix .vprof, format [Schema]) is text, compressed by gzip. Its first line is the
// [Header] as JSON; every further line is an instruction, of words between single spaces:
//
//	a BYTES CLASS STREAM SITE   allocate the next buffer; buffers are counted from 0
//	f BUFFER                    free a buffer
//	l WORK PRECISION STREAM SITE FLOPS PRODUCT GROUP READS WRITES
//	                            launch an op; READS and WRITES are BUFFER:BYTES,... or -
//	p STEP NAME                 the phase NAME of a step ends here; STEP -1 is set-up
//	c                           give cached memory back (torch.cuda.empty_cache)
//	r STREAM                    record the next event; events are counted from 0
//	w STREAM EVENT              have a stream wait for an event
//
// Numbers are decimal. CLASS counts in [Header.Classes], WORK and PRECISION are the words that
// package program has for them, SITE counts in [Header.Sites], STREAM in [Header.Streams] (0 is the one that
// computes), and PRODUCT counts in [Header.Products] from 1 (0 is none).
//
// Whoever records a run builds a [program.Program], whose buffers need their class only when all is
// recorded, and hands it to [Write].
package recorded
