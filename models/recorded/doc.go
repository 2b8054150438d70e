// Package recorded reads and writes training steps that ran elsewhere, such as the steps of a user's own script, and makes
// models of them, which are planned, shown and compared like others. Forward and backward passes that were recorded at
// some batch sizes are interpolated to others, and stand in the place of a model's own under torch.compile.
//
// A file (suffix .vprof, format [Schema]) is text, compressed by gzip. Its first line is the [Header] as JSON. Each
// [Recording] follows: a line of JSON with its conditions and tables, and an instruction a line, of words between
// single spaces:
//
//	a BYTES CLASS STREAM SITE   allocate the next buffer; buffers are counted from 0
//	f BUFFER                    free a buffer
//	l WORK PRECISION STREAM SITE FLOPS PRODUCT GROUP READS WRITES
//	                            launch an op; READS and WRITES are BUFFER:BYTES,... or -
//	p STEP NAME                 the phase NAME of a step ends here; STEP -1 is set-up
//	c                           free cached memory (torch.cuda.empty_cache)
//	r STREAM                    record the next event; events are counted from 0
//	w STREAM EVENT              have a stream wait for an event
//	n KIND BUFFER OFFSET TEXT   a note about a recorded step, see [Note]
//
// Numbers are decimal. CLASS counts in the recording's classes, WORK and PRECISION are the words that package program
// has for them, SITE counts in the sites, STREAM in the streams (0 is the one that computes), and PRODUCT counts in the
// products from 1 (0 is none).
package recorded
