// Package recorded reads and writes training steps that ran elsewhere, such as the steps of a user's own script, and
// makes models of them, which are planned, shown and compared like others. Forward and backward passes that were
// recorded at some batch sizes are interpolated to others, and stand in place of a model's own under torch.compile.
//
// A file (suffix .vprof, format [Schema]) is a [File] as JSON, compressed by gzip. What happened is a [program.Program]
// as it is, with the names of kinds, classes, works and precisions.
package recorded
