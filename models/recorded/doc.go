// Package recorded reads and writes training steps that ran elsewhere, such as the steps of a user's script, and makes
// models of them, which are planned, shown and compared like others. Forward and backward passes recorded at some batch
// sizes are interpolated to others, and replace a model's own under torch.compile.
//
// A file (suffix .vprof, format [Schema]) is a [File] as gzip-compressed JSON. The events are a [program.Program] with
// the names of kinds, classes, works and precisions.
package recorded
